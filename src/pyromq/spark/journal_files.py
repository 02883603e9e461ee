"""Files of a batch journal: whole or not there, and created by one writer only, wherever they are.

A decision rests on `create`. A disk has hard links for it, HDFS a rename that replaces nothing, object stores
conditional writes. Arrow does not offer these, so object stores are reached with obstore.
"""

import contextlib
import os
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol
from urllib.parse import urlsplit

from pyarrow import fs

from pyromq.errors import ConfigError

if TYPE_CHECKING:
    from obstore.store import ObjectStore

_OBJECT_STORES: Final = frozenset({"s3", "s3a", "gs", "az", "adl", "azure", "abfs", "abfss"})
_UNFINISHED: Final = ".unfinished"


class JournalFiles(Protocol):
    directory: str
    """Its path, without what says how it is reached."""

    def create(self, name: str, data: bytes) -> None:
        """Raises FileExistsError if there is a file of this name, also if it came a moment ago."""

    def empty(self, name: str) -> None:
        """Drop its content; its name stays taken."""

    def read(self, name: str) -> bytes | None: ...

    def written_ms(self, name: str) -> int | None:
        """When it was written; None if it is not there."""

    def names(self) -> list[str]: ...

    def remove(self, name: str) -> None:
        """A file that is not there is removed already."""


def journal_files(directory: str) -> JournalFiles:
    """`directory`: a path or a URI."""
    parts = urlsplit(directory)
    if parts.scheme in _OBJECT_STORES:
        return ObjectFiles(_object_store(directory), parts.netloc + parts.path)
    if parts.scheme == "file" or "://" in directory:
        files, path = fs.FileSystem.from_uri(directory)
        return LocalFiles(path) if isinstance(files, fs.LocalFileSystem) else RenamedFiles(files, path)
    return LocalFiles(os.path.abspath(directory))


def _object_store(uri: str) -> "ObjectStore":
    try:
        from obstore.store import from_url
    except ImportError:
        needed = "a directory, or pip install 'pyromq[object-store]' on the driver and on every executor"
        raise ConfigError("journal", uri, needed) from None
    return from_url(uri)


class LocalFiles:
    def __init__(self, directory: str) -> None:
        self.directory = directory
        self._path = Path(directory)

    def create(self, name: str, data: bytes) -> None:
        self._path.mkdir(parents=True, exist_ok=True)
        unfinished = self._path / _unfinished(name)
        with unfinished.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        try:
            os.link(unfinished, self._path / name)
        finally:
            unfinished.unlink()
        directory = os.open(self._path, os.O_RDONLY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)

    def empty(self, name: str) -> None:
        os.truncate(self._path / name, 0)

    def read(self, name: str) -> bytes | None:
        with contextlib.suppress(FileNotFoundError):
            return (self._path / name).read_bytes()
        return None

    def written_ms(self, name: str) -> int | None:
        with contextlib.suppress(FileNotFoundError):
            return (self._path / name).stat().st_mtime_ns // 1_000_000
        return None

    def names(self) -> list[str]:
        with contextlib.suppress(FileNotFoundError):
            return os.listdir(self._path)
        return []

    def remove(self, name: str) -> None:
        (self._path / name).unlink(missing_ok=True)


class RenamedFiles:
    """HDFS, where a killed writer leaves a part of its file."""

    def __init__(self, files: fs.FileSystem, directory: str) -> None:
        self._files = files
        self.directory = directory

    def create(self, name: str, data: bytes) -> None:
        self._files.create_dir(self.directory, recursive=True)
        unfinished = f"{self.directory}/{_unfinished(name)}"
        with self._files.open_output_stream(unfinished) as stream:
            stream.write(data)
        try:
            self._files.move(unfinished, f"{self.directory}/{name}")
        except OSError as problem:
            if self.written_ms(name) is None:
                raise
            self._files.delete_file(unfinished)
            raise FileExistsError(name) from problem

    def empty(self, name: str) -> None:
        self._files.open_output_stream(f"{self.directory}/{name}").close()

    def read(self, name: str) -> bytes | None:
        with (
            contextlib.suppress(FileNotFoundError),
            self._files.open_input_stream(f"{self.directory}/{name}") as stream,
        ):
            return bytes(stream.read())
        return None

    def written_ms(self, name: str) -> int | None:
        info = self._files.get_file_info(f"{self.directory}/{name}")
        return None if info.type == fs.FileType.NotFound else int(info.mtime_ns) // 1_000_000

    def names(self) -> list[str]:
        selector = fs.FileSelector(self.directory, allow_not_found=True)
        return [info.base_name for info in self._files.get_file_info(selector)]

    def remove(self, name: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            self._files.delete_file(f"{self.directory}/{name}")


class ObjectFiles:
    """An object is written whole. A write may be repeated after its answer was lost."""

    def __init__(self, store: "ObjectStore", directory: str) -> None:
        self._store = store
        self.directory = directory

    def create(self, name: str, data: bytes) -> None:
        from obstore.exceptions import AlreadyExistsError

        try:
            self._store.put(name, data, mode="create")
        except AlreadyExistsError as problem:
            if self.read(name) != data:
                raise FileExistsError(name) from problem

    def empty(self, name: str) -> None:
        self._store.put(name, b"")

    def read(self, name: str) -> bytes | None:
        with contextlib.suppress(FileNotFoundError):
            return bytes(self._store.get(name).bytes())
        return None

    def written_ms(self, name: str) -> int | None:
        with contextlib.suppress(FileNotFoundError):
            return int(self._store.head(name)["last_modified"].timestamp() * 1000)
        return None

    def names(self) -> list[str]:
        return [meta["path"].rpartition("/")[2] for meta in self._store.list().collect()]

    def remove(self, name: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            self._store.delete(name)


def _unfinished(name: str) -> str:
    """Two writers may be at it at the same time."""
    return f"{name}.{uuid.uuid4().hex[:8]}{_UNFINISHED}"
