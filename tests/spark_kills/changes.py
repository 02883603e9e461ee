"""What happens in a directory and below it: Linux tells of every file that is made, moved or removed."""

import ctypes
import os
import select
from collections.abc import Iterator
from pathlib import Path
from struct import Struct
from typing import Final

_CREATE, _MOVED_TO, _CLOSED, _DELETE, _IS_DIRECTORY = 0x100, 0x80, 0x8, 0x200, 0x4000_0000
_EVENT: Final = Struct("iIII")
_READ_BYTES: Final = 1 << 16


class Changes:
    """`with Changes(root) as changes: changes.next(1.0)` gives the paths, relative to `root`."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._file = self._libc.inotify_init1(os.O_CLOEXEC)
        if self._file < 0:
            raise OSError(ctypes.get_errno(), "inotify")
        self._directories: dict[int, Path] = {}
        self.seen = 0

    def __enter__(self) -> "Changes":
        for _ in self._watch(self._root):
            pass
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._file)

    def next(self, timeout_s: float) -> list[str]:
        """The next changes; none if nothing happens for that long."""
        if not select.select([self._file], [], [], timeout_s)[0]:
            return []
        content = os.read(self._file, _READ_BYTES)
        found, at = [], 0
        while at < len(content):
            number, mask, _, length = _EVENT.unpack_from(content, at)
            at += _EVENT.size + length
            directory = self._directories.get(number)
            if directory is None or not length:
                continue
            path = directory / os.fsdecode(content[at - length : at].rstrip(b"\0"))
            found.append(path)
            if mask & _IS_DIRECTORY and mask & (_CREATE | _MOVED_TO):
                found += self._watch(path)
        self.seen += len(found)
        return [str(path.relative_to(self._root)) for path in found]

    def _watch(self, directory: Path) -> Iterator[Path]:
        """Watch it and everything below; what is there already has been made a moment ago."""
        mask = _CREATE | _MOVED_TO | _CLOSED | _DELETE
        number = self._libc.inotify_add_watch(self._file, os.fsencode(directory), mask)
        if number < 0:
            return  # it is gone again
        self._directories[number] = directory
        try:
            entries = list(os.scandir(directory))
        except FileNotFoundError:
            return
        for entry in entries:
            yield Path(entry.path)
            if entry.is_dir(follow_symlinks=False):
                yield from self._watch(Path(entry.path))
