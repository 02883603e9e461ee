"""A file system that can lose power: it forgets, wholly or in part, whatever was not synced.

Files live in a real directory, best one in memory, so that mapping works. Beside it `Disk` keeps what a disk
would hold; several processes may use one, one after the other. It can also say no: disk full, read-only, or a
failing sync.
"""

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from pyromq.filesystem import Files, MappedFile, Space

SECTOR_BYTES = 512
PAGE_BYTES = 4096


@dataclass(eq=False)
class _File:
    """What the disk holds of a file."""

    content: bytearray = field(default_factory=bytearray)
    has_new_holes: bool = False
    """Whether bytes became zeros without having been written, since the last sync."""
    lost: dict[int, bytes] = field(default_factory=dict)
    """Pages that a sync failed to write, by their place. As with Linux, no later sync tries them again unless
    they change."""

    def sync_failed(self, path: Path) -> None:
        live = path.read_bytes()
        for start in range(0, len(live), PAGE_BYTES):
            page = live[start : start + PAGE_BYTES]
            if page != self.content[start : start + PAGE_BYTES].ljust(len(page), b"\0"):
                self.lost[start] = page

    def written(self, start: int, end: int) -> None:
        """These bytes were written again: a sync tries them again, too."""
        for page in [each for each in self.lost if each < end and each + PAGE_BYTES > start]:
            del self.lost[page]

    def save(self, path: Path) -> None:
        """Its content becomes safe as it is. Holes are skipped: most files are larger than their data."""
        descriptor = os.open(path, os.O_RDONLY)
        try:
            size_bytes = os.fstat(descriptor).st_size
            if self.has_new_holes:
                self.content = bytearray(size_bytes)
                self.has_new_holes = False
            elif (missing_bytes := size_bytes - len(self.content)) > 0:
                self.content.extend(bytes(missing_bytes))
            else:
                del self.content[size_bytes:]
            with memoryview(self.content) as view:
                safe = {start: bytes(view[start : start + PAGE_BYTES]) for start in self.lost}
                for start, end in _data(descriptor, size_bytes):
                    os.preadv(descriptor, [view[start:end]], start)
                for start, page in list(self.lost.items()):
                    if view[start : start + PAGE_BYTES] == page:
                        view[start : start + len(page)] = safe[start].ljust(len(page), b"\0")
                    else:
                        del self.lost[start]
        finally:
            os.close(descriptor)


@dataclass
class _Change:
    """A change of a name that is not safe yet."""

    kind: str
    path: Path
    file: _File | None = None
    former_name: Path | None = None


@dataclass
class _Removal:
    """A tree that was removed: its files, one by one, in each of its directories."""

    directories: list[Path]
    changes: dict[Path, list[_Change]]


class Disk:
    """Names and contents that are safe, and name changes that are not yet, in order, by directory."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.live: dict[Path, _File] = {}
        self.locked: set[tuple[int, int]] = set()
        self.syncs = 0
        """So often something became safe."""
        self._names: dict[Path, _File] = {}
        self._directories: dict[Path, None] = {}
        self._pending: dict[Path, list[_Change]] = {}
        self._removals: dict[Path, _Removal] = {}
        self._adopt()

    def __repr__(self) -> str:
        return f"<Disk {self.root} files={len(self.live)}>"

    def _adopt(self) -> None:
        """All that is there is safe."""
        self._directories[self.root] = None
        for path in sorted(self.root.rglob("*")):
            if path.is_dir():
                self._directories[path] = None
            else:
                file = _File()
                file.save(path)
                self._names[path] = self.live[path] = file

    # Changes

    def made(self, path: Path) -> None:
        """There is a new file."""
        file = self.live[path] = _File()
        self._change(_Change("link", path, file))

    def made_directory(self, path: Path) -> None:
        self._change(_Change("mkdir", path))

    def linked(self, source: Path, target: Path) -> None:
        file = self.live[target] = self.live[source]
        self._change(_Change("link", target, file))

    def renamed(self, source: Path, target: Path) -> None:
        file = self.live[target] = self.live.pop(source)
        self._change(_Change("link", target, file, source))

    def removed(self, path: Path) -> None:
        if self.live.pop(path, None) is not None:
            self._change(_Change("unlink", path))

    def removed_tree(self, path: Path, directories: list[Path]) -> None:
        """Safe when its parent is synced; until then any of its files may be gone or not."""
        files = [each for each in self.live if path in each.parents]
        if path in self._removals:
            self.sync_directory(path.parent)
        changes = {each: self._pending.pop(each, []) for each in directories}
        for each in files:
            del self.live[each]
            changes[each.parent].append(_Change("unlink", each))
        self._removals[path] = _Removal(directories, changes)
        self._change(_Change("rmtree", path))

    def sync(self, path: Path) -> None:
        """The content is safe. Raises FileNotFoundError."""
        if path not in self.live:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        self.syncs += 1
        self.live[path].save(path)

    def safe(self, path: Path) -> bytes | None:
        """What a loss of power leaves of a file at least; None if its name may be gone."""
        file = self._names.get(path)
        directory = path.parent
        while directory != self.root and directory in self._directories:
            directory = directory.parent
        return bytes(file.content) if file is not None and directory == self.root else None

    def sync_directory(self, directory: Path) -> None:
        """Its names are safe."""
        self.syncs += 1
        self._apply(self._pending.pop(directory, []))

    def _change(self, change: _Change) -> None:
        self._pending.setdefault(change.path.parent, []).append(change)

    def _apply(self, changes: list[_Change]) -> None:
        for change in changes:
            if change.kind == "mkdir":
                self._directories[change.path] = None
            elif change.kind == "unlink":
                self._names.pop(change.path, None)
            elif change.kind == "rmtree":
                removal = self._removals.pop(change.path)
                for each in removal.changes.values():
                    self._apply(each)
                for directory in removal.directories:
                    if not directory.is_dir():  # else it was made again
                        self._directories.pop(directory, None)
            elif change.file is not None:
                self._names[change.path] = change.file
                if change.former_name is not None:
                    self._names.pop(change.former_name, None)

    # Losing power

    def crash(self, chance: Random) -> None:
        """Leave in the directory what a disk could hold after the power went."""
        self.syncs += 1
        for changes in self._pending.values():
            self._apply(changes[: chance.randint(0, len(changes))])
        # Of trees whose removal is not safe, some files are gone and others are not.
        for removal in self._removals.values():
            for changes in removal.changes.values():
                self._apply(changes[: chance.randint(0, len(changes))])
        self._pending, self._removals = {}, {}
        self.locked.clear()
        directories: dict[Path, None] = {}
        for each in sorted(self._directories):  # a parent comes before its children
            if each == self.root or each.parent in directories:
                directories[each] = None
        names = {path: file for path, file in self._names.items() if path.parent in directories}
        torn: dict[_File, bytearray] = {}
        live_paths = {id(file): path for path, file in self.live.items()}
        for file in names.values():
            if file not in torn:
                live_path = live_paths.get(id(file))
                torn[file] = file.content if live_path is None else _torn(file, live_path, chance)
        for path in sorted(self.root.rglob("*"), reverse=True):
            if path.is_dir():
                if path not in directories:
                    path.rmdir()
            elif path not in names:
                path.unlink()
        for directory in directories:
            directory.mkdir(exist_ok=True)
        for path, file in names.items():
            if self.live.get(path) is not file or torn[file] is not file.content:
                # A new file: nothing that a dead process has mapped can change it any more.
                path.unlink(missing_ok=True)
                path.write_bytes(torn[file])
        # Two names of one file are two files from now on.
        self.live = {path: _File(bytearray(torn[file])) for path, file in names.items()}
        self._names, self._directories = dict(self.live), directories


class FaultyFiles(Files):
    """What one process sees of a disk."""

    def __init__(self, root: Path, disk: Disk | None = None) -> None:
        super().__init__()
        self.disk = disk or Disk(root)
        self._locked = self.disk.locked
        self.failures: dict[str, int] = {}
        """Error numbers by operation: `create`, `allocate`, `map`, `sync`, `overwrite`, `write`."""
        self.space_now: Space | None = None

    def _before(self, operation: str, path: Path) -> None:
        """Every change begins here; those that also sync come here twice."""
        error_number = self.failures.get(operation)
        if error_number is not None:
            raise OSError(error_number, os.strerror(error_number))

    # Contents

    def create(self, path: Path, size_bytes: int, allocate_bytes: int = 0) -> None:
        self._before("create", path)
        super().create(path, size_bytes, 0)
        self.disk.made(path)

    def allocate(self, path: Path, start: int, length: int) -> None:
        self._before("allocate", path)

    def map(self, path: Path, *, writable: bool = True, in_small_pieces: bool = False) -> MappedFile:
        if writable:
            self._before("map", path)
        return super().map(path, writable=writable, in_small_pieces=in_small_pieces)

    def resize(self, path: Path, size_bytes: int, allocate_bytes: int = 0) -> None:
        self._before("resize", path)
        super().resize(path, size_bytes, 0)
        self.disk.live[path].has_new_holes = True
        self.disk.live[path].written(size_bytes, 1 << 63)

    def zero_after(self, path: Path, position: int, allocate_bytes: int = 0) -> None:
        self._before("zero_after", path)
        super().zero_after(path, position, 0)
        self.disk.live[path].has_new_holes = True
        self.disk.live[path].written(position, 1 << 63)

    def fill(self, path: Path) -> None:
        """Its zeros are there already."""

    def sync(self, path: Path) -> None:
        self._before("sync", path)
        self.disk.sync(path)

    def read_back(self, path: Path) -> None:
        self.sync(path)
        if self.disk.live[path].lost:
            path.write_bytes(self.disk.live[path].content)
            self.disk.live[path].lost.clear()

    def write(self, path: Path, content: bytes, mode: int | None = None) -> None:
        self._before("write", path)
        self.make_directories(path.parent)
        is_new = path not in self.disk.live
        path.write_bytes(content)
        if mode is not None:
            path.chmod(mode)
        if is_new:
            self.disk.made(path)
            self._unsynced_directories[path.parent] = None
        self.disk.live[path].written(0, 1 << 63)
        self._before("write: sync", path)
        self.disk.sync(path)

    def overwrite(self, path: Path, position: int, content: bytes) -> None:
        self._before("overwrite", path)
        with path.open("r+b") as stream:
            stream.seek(position)
            stream.write(content)
        self.disk.live[path].written(position, position + len(content))
        self._before("overwrite: sync", path)
        self.disk.sync(path)

    # Names

    def make_directories(self, path: Path) -> None:
        if path.is_dir():
            return
        missing = [each for each in (path, *path.parents) if not each.is_dir()]
        super().make_directories(path)
        for each in reversed(missing):
            self.disk.made_directory(each)

    def rename(self, source: Path, target: Path) -> None:
        self._before("rename", target)
        super().rename(source, target)
        self.disk.renamed(source, target)

    def link(self, source: Path, target: Path) -> None:
        self._before("link", target)
        super().link(source, target)
        self.disk.linked(source, target)

    def remove(self, path: Path) -> None:
        self._before("remove", path)
        path.unlink(missing_ok=True)
        self._unsynced_directories[path.parent] = None
        self.disk.removed(path)

    def remove_tree(self, path: Path) -> None:
        self._before("remove_tree", path)
        directories = [path, *(each for each in path.rglob("*") if each.is_dir())] if path.is_dir() else []
        super().remove_tree(path)
        if directories:
            self.disk.removed_tree(path, directories)

    def _sync_directory_now(self, directory: Path) -> None:
        self._before("sync", directory)
        self.disk.sync_directory(directory)

    # The partition

    def space(self, path: Path) -> Space:
        return self.space_now or Space(1_000_000, 900_000, False)

    @contextmanager
    def taking_turns(self, directory: Path) -> Iterator[None]:
        yield

    def crash(self, chance: Random) -> None:
        self.disk.crash(chance)


def _data(descriptor: int, size_bytes: int) -> Iterator[tuple[int, int]]:
    """The ranges of a file that are not holes."""
    end = 0
    with suppress(OSError):  # there is none behind the last one
        while end < size_bytes:
            start = os.lseek(descriptor, end, os.SEEK_DATA)
            end = os.lseek(descriptor, start, os.SEEK_HOLE)
            yield start, end


def _torn(file: _File, path: Path, chance: Random) -> bytearray:
    """A mixture of what was safe and what was written since; the safe content itself if nothing was."""
    safe, live = file.content, bytearray(path.read_bytes())
    for start, lost in file.lost.items():
        if live[start : start + len(lost)] == lost:
            live[start : start + len(lost)] = safe[start : start + len(lost)].ljust(len(lost), b"\0")
    if safe == live or (len(safe) != len(live) and chance.random() < 0.3):
        return safe
    before = safe[: len(live)].ljust(len(live), b"\0")
    pages = [
        start
        for start in range(0, len(live), PAGE_BYTES)
        if before[start : start + PAGE_BYTES] != live[start : start + PAGE_BYTES]
    ]
    choice = chance.randrange(4)
    if choice == 0 or not pages:
        return before
    if choice == 1:
        return live
    if choice == 2:
        page = chance.choice(pages)
        changed = [at for at in range(page, min(page + PAGE_BYTES, len(live))) if before[at] != live[at]]
        cut = chance.randint(changed[0], changed[-1] + 1)
        return live[:cut] + before[cut:]
    step = chance.choice((SECTOR_BYTES, PAGE_BYTES))
    for page in pages:
        for start in range(page, page + PAGE_BYTES, step):
            if chance.random() < 0.5:
                before[start : start + step] = live[start : start + step]
    return before
