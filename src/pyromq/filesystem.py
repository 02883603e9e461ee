"""The servers' interface to the file system: all reads and writes of what they keep go through `Files`.

A written file is safe only after `sync`, a new or removed name only after `sync_directory`. Tests replace
`Files` with a file system that loses everything that was not synced.
"""

import contextlib
import errno
import fcntl
import mmap
import os
import shutil
import stat
import threading
import time
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pyromq.disk_steps import DiskThread, DiskWorker
from pyromq.errors import StoreError

UNFINISHED_SUFFIX: Final = ".tmp"
"""Of a file that is being written, and gets its name when it is safe."""
BACKUP_SUFFIX: Final = ".bak"
_CANNOT_ALLOCATE = frozenset({errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS})
_CANNOT_WRITE = frozenset({errno.EROFS, errno.EACCES})
_BLOCK_BYTES = 65536
_FILL_BYTES = 4 * 1024 * 1024
_LARGE_BYTES = 1024 * 1024
_CREATE = os.O_RDWR | os.O_CREAT
_PAUSE_S = 0.0002
_LOCKED: Final[set[tuple[int, int]]] = set()
"""Device and number of every file that this process has locked: the system would give it the same lock again,
and take both away with the first file that is closed."""


@contextlib.contextmanager
def _opened(path: Path, flags: int, mode: int = 0o644) -> Iterator[int]:
    """The descriptor of a file that is open during the block."""
    descriptor = os.open(path, flags | os.O_CLOEXEC, mode)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


@dataclass(frozen=True, slots=True)
class Space:
    """The space on the partition of a path."""

    total_bytes: int
    free_bytes: int
    read_only: bool

    @property
    def used_ratio(self) -> float:
        return 1.0 - self.free_bytes / self.total_bytes if self.total_bytes else 1.0


class MappedFile:
    """A mapped file. Slices of `view` keep the mapping alive, even after the file is deleted."""

    __slots__ = ("buffer", "is_writable", "path", "size_bytes", "view")

    def __init__(self, path: Path, buffer: mmap.mmap) -> None:
        self.path = path
        self.buffer = buffer
        self.size_bytes = len(buffer)
        self.view = memoryview(buffer)
        self.is_writable = not self.view.readonly

    def __repr__(self) -> str:
        return (
            f"<MappedFile {self.path.name} {self.size_bytes} bytes{' closed' if self.buffer.closed else ''}>"
        )

    def set_read_ahead(self, is_on: bool) -> None:
        """Whether an access to one page also loads its neighbours."""
        self.buffer.madvise(mmap.MADV_NORMAL if is_on else mmap.MADV_RANDOM)

    def try_close(self) -> bool:
        """Unmap the file if no slice of it is held; otherwise change nothing and return False."""
        self.view.release()
        try:
            self.buffer.close()
        except BufferError:
            self.view = memoryview(self.buffer)
            return False
        return True


class FileReader:
    """One open file, read at chosen places without mapping it."""

    __slots__ = ("_descriptor", "size_bytes")

    def __init__(self, path: Path) -> None:
        self._descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        self.size_bytes = os.fstat(self._descriptor).st_size

    def __enter__(self) -> "FileReader":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        os.close(self._descriptor)

    def read(self, position: int, length: int) -> bytes:
        return os.pread(self._descriptor, length, position)

    def send_to(self, socket: int, position: int, length: int) -> int:
        """Send bytes to a socket without copying them; how many, at least one. Raises OSError."""
        sent_bytes = os.sendfile(socket, self._descriptor, position, length)
        if not sent_bytes:
            raise OSError(errno.EIO, f"the file ends before {position}")
        return sent_bytes

    def is_zero_after(self, position: int) -> bool:
        """Whether only zeros follow `position`; ranges without data on disk are not read."""
        for start, end in self.data_after(position):
            for block in range(start, end, _BLOCK_BYTES):
                content = self.read(block, min(_BLOCK_BYTES, end - block))
                if content.count(0) != len(content):
                    return False
        return True

    def data_after(self, position: int) -> list[tuple[int, int]]:
        """The ranges behind `position` that have data on disk; everything else is zeros."""
        # Find all ranges before any is read: reading reserved blocks makes them look like data.
        return list(self._data_after(position))

    def _data_after(self, position: int) -> Iterator[tuple[int, int]]:
        while position < self.size_bytes:
            try:
                start = os.lseek(self._descriptor, position, os.SEEK_DATA)
            except OSError as error:
                if error.errno == errno.ENXIO:
                    return
                raise
            position = os.lseek(self._descriptor, start, os.SEEK_HOLE)
            yield start, position


class Writer:
    """One open file, written at chosen places; its mapping shows the same bytes.

    Large pieces are written much faster than through the mapping, which fills fresh pages with zeros first.
    """

    __slots__ = ("_descriptor",)

    def __init__(self, path: Path) -> None:
        self._descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)

    def write(self, position: int, content: memoryview) -> int:
        """How many bytes were written, at least one; raises OSError if there were none."""
        return os.pwrite(self._descriptor, content, position)

    def close(self) -> None:
        os.close(self._descriptor)


class FileLock:
    """An exclusive lock on a file, held until `release`."""

    __slots__ = ("_descriptor", "_held", "_identity")

    def __init__(self, descriptor: int, held: set[tuple[int, int]]) -> None:
        """`held`: the locks of this process, to which this one is added."""
        self._descriptor = descriptor
        self._held = held
        self._identity = _identity(os.fstat(descriptor))
        held.add(self._identity)

    def release(self) -> None:
        self._held.discard(self._identity)
        os.close(self._descriptor)


def _open_large(path: Path) -> int | None:
    """A descriptor that keeps the blocks of a large file; None if it is small or missing."""
    try:
        if path.stat().st_size < _LARGE_BYTES:
            return None
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None


def _identity(status: os.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino


class Files:
    """The real file system."""

    def __init__(self) -> None:
        self._unsynced_directories: dict[Path, None] = {}
        self._syncing_directories = threading.Lock()
        self._releaser: ThreadPoolExecutor | None = None
        self._held: dict[Path, int] = {}
        self._locked = _LOCKED

    def worker(self, name: str) -> DiskWorker:
        """Does what has to wait for this disk: on a real one, a thread."""
        return DiskThread(name)

    # Files that are mapped

    def create(self, path: Path, size_bytes: int, allocate_bytes: int = 0) -> None:
        """A new file of zeros; the first `allocate_bytes` get real blocks, so touching them cannot fail."""
        self.make_directories(path.parent)
        with _opened(path, _CREATE | os.O_EXCL) as descriptor:
            try:
                os.ftruncate(descriptor, size_bytes)
                _allocate(descriptor, 0, allocate_bytes)
            except OSError:
                path.unlink()
                raise
        self._unsynced_directories[path.parent] = None

    def allocate(self, path: Path, start: int, length: int) -> None:
        with _opened(path, os.O_RDWR) as descriptor:
            _allocate(descriptor, start, length)

    def resize(self, path: Path, size_bytes: int, allocate_bytes: int = 0) -> None:
        with _opened(path, os.O_RDWR) as descriptor:
            os.ftruncate(descriptor, size_bytes)
            _allocate(descriptor, 0, allocate_bytes)

    def map(self, path: Path, *, writable: bool = True, in_small_pieces: bool = False) -> MappedFile:
        """Map a whole file. `in_small_pieces`: an access loads one page and not its neighbours."""
        with _opened(path, os.O_RDWR if writable else os.O_RDONLY) as descriptor:
            access = mmap.ACCESS_WRITE if writable else mmap.ACCESS_READ
            buffer = mmap.mmap(descriptor, 0, access=access)
            if in_small_pieces:
                # Otherwise the first write to a fresh file takes a millisecond and dirties a megabyte.
                buffer.madvise(mmap.MADV_RANDOM)
            return MappedFile(path, buffer)

    def map_for_reading(self, path: Path, *, in_small_pieces: bool = False) -> MappedFile:
        """The same, but read-only on a read-only disk; see `MappedFile.is_writable`."""
        try:
            return self.map(path, in_small_pieces=in_small_pieces)
        except OSError as error:
            if error.errno not in _CANNOT_WRITE:
                raise
            return self.map(path, writable=False, in_small_pieces=in_small_pieces)

    def sync(self, path: Path) -> None:
        """Make the content safe."""
        if (held := self._held.get(path)) is not None:
            os.fdatasync(held)
            return
        with _opened(path, os.O_RDONLY) as descriptor:
            os.fdatasync(descriptor)

    def hold(self, path: Path) -> None:
        """Keep a file open until `release`: `sync` hears of every write that failed since, even if another
        process heard of it before."""
        if path not in self._held:
            self._held[path] = os.open(path, os.O_RDONLY | os.O_CLOEXEC)

    def release(self, path: Path) -> None:
        if (held := self._held.pop(path, None)) is not None:
            os.close(held)

    def read_back(self, path: Path) -> None:
        """Sync a file and forget what is in memory of it: the next reads say what the disk has.

        After a failed sync the two may differ, and no later sync reports it. The file must not be mapped.
        """
        self.sync(path)
        with _opened(path, os.O_RDONLY) as descriptor:
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)

    # Plain reads and writes

    def open(self, path: Path) -> FileReader:
        return FileReader(path)

    def open_for_writing(self, path: Path) -> Writer:
        return Writer(path)

    def read(self, path: Path, position: int = 0, length: int | None = None) -> bytes:
        with FileReader(path) as reader:
            return reader.read(position, reader.size_bytes - position if length is None else length)

    def write(self, path: Path, content: bytes, mode: int | None = None) -> None:
        """Replace the whole content and sync it. This is not atomic: write another file and rename it."""
        self.make_directories(path.parent)
        with _opened(path, _CREATE | os.O_TRUNC, 0o644 if mode is None else 0o600) as descriptor:
            if mode is not None:
                os.fchmod(descriptor, mode)
            _write_fully(descriptor, content, 0)
            os.fsync(descriptor)
        self._unsynced_directories[path.parent] = None

    def overwrite(self, path: Path, position: int, content: bytes) -> None:
        """Replace a few bytes in place, or append them, and sync them."""
        with _opened(path, os.O_RDWR) as descriptor:
            _write_fully(descriptor, content, position)
            os.fdatasync(descriptor)

    def zero_after(self, path: Path, position: int, allocate_bytes: int = 0) -> None:
        """Overwrite everything behind `position` with zeros."""
        with _opened(path, os.O_RDWR) as descriptor:
            size_bytes = os.fstat(descriptor).st_size
            os.ftruncate(descriptor, position)
            os.ftruncate(descriptor, size_bytes)
            _allocate(descriptor, 0, allocate_bytes)

    def fill(self, path: Path) -> None:
        """Fill a file with zeros, so that its pages are in memory and its blocks are allocated."""
        zeros = bytes(_FILL_BYTES)
        with _opened(path, os.O_RDWR) as descriptor:
            size_bytes = os.fstat(descriptor).st_size
            for position in range(0, size_bytes, _FILL_BYTES):
                _write_fully(descriptor, zeros[: size_bytes - position], position)

    # Names

    def names(self, directory: Path) -> tuple[list[str], list[str]]:
        """Sorted names of the files and of the directories in a directory; nothing if there is none."""
        files: list[str] = []
        directories: list[str] = []
        try:
            with os.scandir(directory) as entries:
                for entry in entries:
                    (directories if entry.is_dir() else files).append(entry.name)
        except FileNotFoundError:
            return [], []
        return sorted(files), sorted(directories)

    def size(self, path: Path) -> int | None:
        """The size of a file, None if there is none."""
        try:
            return path.stat().st_size
        except FileNotFoundError:
            return None

    def mode(self, path: Path) -> int | None:
        """The permissions of a file, None if there is none."""
        try:
            return stat.S_IMODE(path.stat().st_mode)
        except FileNotFoundError:
            return None

    def modified_ms(self, path: Path) -> int:
        return path.stat().st_mtime_ns // 1_000_000

    def place(self, directory: Path) -> str:
        """The same for processes that use the same directory, and for no others."""
        status = directory.stat()
        return f"{_machine()} {status.st_dev} {status.st_ino}"

    def copy_times(self, source: Path, target: Path) -> None:
        status = source.stat()
        os.utime(target, ns=(status.st_atime_ns, status.st_mtime_ns))

    def make_directories(self, path: Path) -> None:
        missing = []
        while not path.is_dir():
            missing.append(path)
            path = path.parent
        for each in reversed(missing):
            with contextlib.suppress(FileExistsError):
                each.mkdir()
            self._unsynced_directories[each.parent] = None

    def rename(self, source: Path, target: Path) -> None:
        source.replace(target)
        self._unsynced_directories[target.parent] = None

    def link(self, source: Path, target: Path) -> None:
        """Give a file a second name. Raises FileExistsError if that is taken."""
        try:
            os.link(source, target)
        except (FileExistsError, FileNotFoundError):
            raise
        except OSError:  # a file system without hard links
            shutil.copy(source, target)
        self._unsynced_directories[target.parent] = None

    def remove(self, path: Path) -> None:
        """Remove a file. A thread frees the blocks of a large file, which may take half a second."""
        descriptor = _open_large(path)
        try:
            path.unlink(missing_ok=True)
        finally:
            if descriptor is not None:
                self._releasing().submit(self._release, descriptor)
        self._unsynced_directories[path.parent] = None

    def _releasing(self) -> ThreadPoolExecutor:
        if self._releaser is None:
            self._releaser = ThreadPoolExecutor(1, thread_name_prefix="release-files")
        return self._releaser

    def _release(self, descriptor: int) -> None:
        """Closing the last descriptor of a removed file frees its blocks."""
        os.close(descriptor)

    def remove_tree(self, path: Path) -> None:
        with contextlib.suppress(FileNotFoundError):
            shutil.rmtree(path)
        for each in tuple(self._unsynced_directories):
            if each == path or path in each.parents:
                self._unsynced_directories.pop(each, None)
        self._unsynced_directories[path.parent] = None

    def sync_directory(self, directory: Path) -> None:
        """Make the names in this directory safe, if any changed; wait if another thread is doing it."""
        with self._syncing_directories:
            if directory in self._unsynced_directories:
                self._unsynced_directories.pop(directory, None)
                try:
                    self._sync_directory_now(directory)
                except OSError:
                    self._unsynced_directories[directory] = None
                    raise

    def distrust_names(self, root: Path) -> None:
        """A process that is gone may have changed names in these directories and not synced them."""
        for directory, below, _ in os.walk(root):
            below.sort()
            self._unsynced_directories[Path(directory)] = None

    def sync_all_directories(self) -> None:
        for directory in tuple(self._unsynced_directories):
            self.sync_directory(directory)

    def _sync_directory_now(self, directory: Path) -> None:
        with (
            contextlib.suppress(FileNotFoundError),
            _opened(directory, os.O_RDONLY | os.O_DIRECTORY) as descriptor,
        ):
            os.fsync(descriptor)

    # Threads

    def give_way(self) -> None:
        """A thread that computes lets the event loop have the interpreter for a moment."""
        time.sleep(_PAUSE_S)

    # The partition

    def space(self, path: Path) -> Space:
        status = os.statvfs(path)
        used = status.f_blocks - status.f_bfree
        # As `df` counts: what only root may use is neither used nor free.
        total = used + status.f_bavail
        return Space(
            total * status.f_frsize, status.f_bavail * status.f_frsize, bool(status.f_flag & os.ST_RDONLY)
        )

    @contextlib.contextmanager
    def taking_turns(self, directory: Path) -> Iterator[None]:
        """Wait until no other process is in such a block for the directory."""
        with _opened(directory, os.O_RDONLY | os.O_DIRECTORY) as descriptor:
            with contextlib.suppress(OSError):  # a file system without locks
                fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield

    def lock(self, path: Path) -> FileLock:
        """Raises StoreError if it is held, by another process or by this one."""
        with contextlib.suppress(FileNotFoundError):
            if _identity(path.stat()) in self._locked:
                raise StoreError(f"{path.parent} is in use by this process")
        descriptor = os.open(path, _CREATE | os.O_CLOEXEC, 0o644)
        try:
            # java: bytes 0..1 of the file, text `lock`
            fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB, 1)
            os.pwrite(descriptor, b"lock", 0)
        except OSError as error:
            os.close(descriptor)
            if isinstance(error, BlockingIOError | PermissionError):
                raise StoreError(f"{path.parent} is in use by another process") from error
            raise
        return FileLock(descriptor, self._locked)


def _allocate(descriptor: int, start: int, length: int) -> None:
    if length <= 0:
        return
    try:
        os.posix_fallocate(descriptor, start, length)
    except OSError as error:
        if error.errno not in _CANNOT_ALLOCATE:
            raise


def _write_fully(descriptor: int, content: bytes, position: int) -> None:
    view = memoryview(content)
    while view:
        written = os.pwrite(descriptor, view, position)
        view = view[written:]
        position += written


def _machine() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:  # not Linux
        return f"{uuid.getnode():x}"
