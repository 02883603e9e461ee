"""A file system that can lose power: it forgets, wholly or in part, whatever was not synced.

Files live in a real directory, so that mapping works; beside it `FaultyFiles` keeps what a disk would hold.
It can also say no: disk full, read-only, or a failing sync.
"""

import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from pyromq.filesystem import Files, MappedFile, Space

SECTOR_BYTES = 512
PAGE_BYTES = 4096


@dataclass
class _File:
    """What the disk holds of a file."""

    content: bytes = b""


_Change = tuple[str, Path, _File | None, Path | None]


@dataclass
class _Removal:
    """A tree that was removed: its files, one by one, in each of its directories."""

    directories: list[Path]
    changes: dict[Path, list[_Change]]


@dataclass
class _Disk:
    """Names and contents that are safe, and name changes that are not yet, in order, by directory."""

    names: dict[Path, _File] = field(default_factory=dict)
    directories: set[Path] = field(default_factory=set)
    pending: dict[Path, list[_Change]] = field(default_factory=dict)
    removals: dict[Path, _Removal] = field(default_factory=dict)

    def change(
        self, kind: str, path: Path, file: _File | None = None, former_name: Path | None = None
    ) -> None:
        self.pending.setdefault(path.parent, []).append((kind, path, file, former_name))

    def settle(self, directory: Path, count: int | None = None) -> None:
        """Let the first `count` changes of a directory (or all) become safe."""
        changes = self.pending.pop(directory, [])
        self.apply(changes[:count])

    def apply(self, changes: list[_Change]) -> None:
        for kind, path, file, former_name in changes:
            if kind == "mkdir":
                self.directories.add(path)
            elif kind == "link" and file is not None:
                self.names[path] = file
                if former_name is not None:
                    self.names.pop(former_name, None)
            elif kind == "unlink":
                self.names.pop(path, None)
            elif kind == "rmtree":
                removal = self.removals.pop(path)
                for each in removal.changes.values():
                    self.apply(each)
                self.directories.difference_update(
                    each
                    for each in removal.directories
                    if not each.is_dir()  # else it was made again
                )

    def remove_tree(self, path: Path, files: list[Path], directories: list[Path]) -> None:
        """Safe when its parent is synced; until then any of its files may be gone or not."""
        if path in self.removals:
            self.settle(path.parent)
        changes = {each: self.pending.pop(each, []) for each in directories}
        for each in files:
            changes[each.parent].append(("unlink", each, None, None))
        self.removals[path] = _Removal(directories, changes)
        self.change("rmtree", path)

    def lose_removals(self, random: Random) -> None:
        """The power goes: of trees whose removal is not safe, some files are gone and others are not."""
        for removal in self.removals.values():
            for changes in removal.changes.values():
                self.apply(changes[: random.randint(0, len(changes))])
        self.removals.clear()


class FaultyFiles(Files):
    def __init__(self, root: Path) -> None:
        super().__init__()
        self._root = root
        self._disk = _Disk()
        self._live: dict[Path, _File] = {}
        self.failures: dict[str, int] = {}
        """Error numbers by operation: `create`, `allocate`, `map`, `sync`, `overwrite`, `write`."""
        self.space_now: Space | None = None
        self._adopt_what_is_there()

    def _adopt_what_is_there(self) -> None:
        self._disk.directories.add(self._root)
        for path in _everything_below(self._root):
            if path.is_dir():
                self._disk.directories.add(path)
            else:
                file = _File(path.read_bytes())
                self._disk.names[path] = self._live[path] = file

    def _fail_if_told(self, operation: str) -> None:
        error_number = self.failures.get(operation)
        if error_number is not None:
            raise OSError(error_number, os.strerror(error_number))

    # What changes contents

    def create(self, path: Path, size_bytes: int, allocate_bytes: int = 0) -> None:
        self._fail_if_told("create")
        super().create(path, size_bytes, 0)
        self._live[path] = _File()
        self._disk.change("link", path, self._live[path])

    def allocate(self, path: Path, start: int, length: int) -> None:
        self._fail_if_told("allocate")

    def map(self, path: Path, *, writable: bool = True, in_small_pieces: bool = False) -> MappedFile:
        if writable:
            self._fail_if_told("map")
        return super().map(path, writable=writable, in_small_pieces=in_small_pieces)

    def resize(self, path: Path, size_bytes: int, allocate_bytes: int = 0) -> None:
        super().resize(path, size_bytes, 0)

    def zero_after(self, path: Path, position: int, allocate_bytes: int = 0) -> None:
        super().zero_after(path, position, 0)

    def sync(self, path: Path) -> None:
        self._fail_if_told("sync")
        self._live[path].content = path.read_bytes()

    def write(self, path: Path, content: bytes) -> None:
        self._fail_if_told("write")
        self.make_directories(path.parent)
        is_new = path not in self._live
        path.write_bytes(content)
        if is_new:
            self._live[path] = _File()
            self._disk.change("link", path, self._live[path])
            self._unsynced_directories[path.parent] = None
        self._live[path].content = content

    def overwrite(self, path: Path, position: int, content: bytes) -> None:
        self._fail_if_told("overwrite")
        with path.open("r+b") as stream:
            stream.seek(position)
            stream.write(content)
        self._live[path].content = path.read_bytes()

    # What changes names

    def make_directories(self, path: Path) -> None:
        missing = [each for each in (path, *path.parents) if not each.is_dir()]
        super().make_directories(path)
        for each in reversed(missing):
            self._disk.change("mkdir", each)

    def rename(self, source: Path, target: Path) -> None:
        super().rename(source, target)
        file = self._live.pop(source)
        self._live[target] = file
        self._disk.change("link", target, file, source)

    def remove(self, path: Path) -> None:
        super().remove(path)
        if self._live.pop(path, None) is not None:
            self._disk.change("unlink", path)

    def remove_tree(self, path: Path) -> None:
        if path.is_dir():
            files = [each for each in self._live if path in each.parents]
            directories = [path, *(each for each in path.rglob("*") if each.is_dir())]
            self._disk.remove_tree(path, files, directories)
            for each in files:
                self._live.pop(each)
        super().remove_tree(path)

    def _sync_directory_now(self, directory: Path) -> None:
        self._fail_if_told("sync")
        self._disk.settle(directory)

    # The partition

    def space(self, path: Path) -> Space:
        return self.space_now or Space(1_000_000, 900_000, False)

    # Losing power

    def crash(self, random: Random) -> None:
        """Leave in the directory what a disk could hold after the power went."""
        for directory in list(self._disk.pending):
            self._disk.settle(directory, random.randint(0, len(self._disk.pending[directory])))
        self._disk.lose_removals(random)
        survivors: dict[Path, bytes] = {}
        for path, file in self._disk.names.items():
            if not all(each in self._disk.directories for each in path.parents if self._root in each.parents):
                continue
            is_same_file = self._live.get(path) is file
            survivors[path] = _torn(file.content, path.read_bytes(), random) if is_same_file else file.content
        for child in self._root.iterdir():
            shutil.rmtree(child) if child.is_dir() else child.unlink()
        for directory in sorted(self._disk.directories):
            directory.mkdir(parents=True, exist_ok=True)
        for path, content in survivors.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)


def _everything_below(root: Path) -> Iterator[Path]:
    return root.rglob("*")


def _torn(safe: bytes, live: bytes, random: Random) -> bytes:
    """A mixture of what was safe and what was written since."""
    if safe == live:
        return safe
    if len(safe) != len(live):
        if random.random() < 0.3:
            return safe
        safe = safe[: len(live)].ljust(len(live), b"\0")
        if safe == live:
            return safe
    choice = random.randrange(4)
    if choice == 0:
        return safe
    if choice == 1:
        return live
    if choice == 2:
        return _cut_somewhere(safe, live, random)
    step = random.choice((SECTOR_BYTES, PAGE_BYTES))
    pieces = []
    for start in range(0, len(live), step):
        source = random.choice((safe, live))
        pieces.append(source[start : start + step])
    return b"".join(pieces)


def _cut_somewhere(safe: bytes, live: bytes, random: Random) -> bytes:
    """New up to some byte among those that changed, old from there on."""
    first = next(index for index, (old, new) in enumerate(zip(safe, live, strict=True)) if old != new)
    last = len(live) - next(
        index for index, (old, new) in enumerate(zip(safe[::-1], live[::-1], strict=True)) if old != new
    )
    cut = random.randint(first, last)
    return live[:cut] + safe[cut:]
