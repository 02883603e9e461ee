"""Files of a journal, of batches or of a table's versions: whole or not there, created by one writer only.

A decision rests on `create`. A disk has hard links for it, HDFS a rename that replaces nothing, object stores
conditional writes. Arrow does not offer these, so object stores are reached with obstore.
"""

import contextlib
import os
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol
from urllib.parse import urlsplit

from pyarrow import fs

from pyromq.errors import TransportError
from pyromq.object_stores import checked, is_object_store, object_store
from pyromq.spark.object_stores import arrow_files

if TYPE_CHECKING:
    from obstore.store import ObjectStore

_UNFINISHED: Final = ".unfinished"
_ATTEMPTS: Final = 20
"""Of a write that the store puts off. Everything else is tried again by obstore, for up to three minutes."""


class JournalFiles(Protocol):
    directory: str
    """Its path, without what says how it is reached."""

    def create(self, name: str, data: bytes) -> None:
        """Raises FileExistsError if there is a file of this name, also if it came a moment ago."""

    def replace(self, name: str, data: bytes) -> None:
        """Write it whatever is there; it is never missing meanwhile."""

    def read(self, name: str) -> bytes | None: ...

    def written_ms(self, name: str) -> int | None:
        """When it was written; None if it is not there."""

    def names(self) -> list[str]: ...

    def remove(self, name: str) -> None:
        """A file that is not there is removed already."""


def journal_files(directory: str, option: str = "journal") -> JournalFiles:
    """`directory`: a path or a URI; `option` is what gave it."""
    parts = urlsplit(checked(directory, option))
    if is_object_store(directory):
        return ObjectFiles(object_store(directory, option), parts.netloc + parts.path)
    if parts.scheme == "file" or "://" in directory:
        files, path = arrow_files(directory)
        return LocalFiles(path) if isinstance(files, fs.LocalFileSystem) else RenamedFiles(files, path)
    return LocalFiles(os.path.abspath(directory))


class LocalFiles:
    def __init__(self, directory: str) -> None:
        self.directory = directory
        self._path = Path(directory)

    def create(self, name: str, data: bytes) -> None:
        unfinished = self._write(name, data)
        try:
            os.link(unfinished, self._path / name)
        finally:
            unfinished.unlink()
        self._sync()

    def replace(self, name: str, data: bytes) -> None:
        self._write(name, data).replace(self._path / name)
        self._sync()

    def _write(self, name: str, data: bytes) -> Path:
        self._path.mkdir(parents=True, exist_ok=True)
        unfinished = self._path / _unfinished(name)
        with unfinished.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        return unfinished

    def _sync(self) -> None:
        directory = os.open(self._path, os.O_RDONLY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)

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

    def replace(self, name: str, data: bytes) -> None:
        with self._files.open_output_stream(f"{self.directory}/{name}") as stream:
            stream.write(data)

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
    """An object is written whole. Whatever goes wrong with a write, it may have been done."""

    def __init__(self, store: "ObjectStore", directory: str) -> None:
        self._store = store
        self.directory = directory

    def create(self, name: str, data: bytes) -> None:
        from obstore.exceptions import AlreadyExistsError, BaseError

        for attempt in range(1, _ATTEMPTS + 1):
            try:
                self._store.put(name, data, mode="create")
                return
            except (BaseError, OSError) as problem:
                # Reading decides: an object that "exists already" may be our own, whose answer was lost.
                found = self.read(name)
                if found == data:
                    return
                if found is not None:
                    raise FileExistsError(name) from None
                # S3 answers 409 while another write is under way, which obstore takes for "exists already".
                if attempt == _ATTEMPTS or not isinstance(problem, AlreadyExistsError):
                    raise _lost(f"{self.directory}/{name}", problem) from None

    def replace(self, name: str, data: bytes) -> None:
        with self._reached(name):
            try:
                self._store.put(name, data)
            except FileNotFoundError as problem:  # there is no such bucket
                raise _lost(f"{self.directory}/{name}", problem) from None

    def read(self, name: str) -> bytes | None:
        with contextlib.suppress(FileNotFoundError), self._reached(name):
            return bytes(self._store.get(name).bytes())
        return None

    def written_ms(self, name: str) -> int | None:
        with contextlib.suppress(FileNotFoundError), self._reached(name):
            return int(self._store.head(name)["last_modified"].timestamp() * 1000)
        return None

    def names(self) -> list[str]:
        with self._reached(""):
            return [meta["path"].rpartition("/")[2] for meta in self._store.list().collect()]

    def remove(self, name: str) -> None:
        with contextlib.suppress(FileNotFoundError), self._reached(name):
            self._store.delete(name)

    @contextlib.contextmanager
    def _reached(self, name: str) -> Iterator[None]:
        from obstore.exceptions import BaseError

        try:
            yield
        except BaseError as problem:
            raise _lost(f"{self.directory}/{name}", problem) from None


def _lost(place: str, problem: Exception) -> TransportError:
    """obstore's text continues with its own state, over many lines."""
    return TransportError(f"{place}: {str(problem).partition(chr(10))[0]}")


def _unfinished(name: str) -> str:
    """Two writers may be at it at the same time."""
    return f"{name}.{uuid.uuid4().hex[:8]}{_UNFINISHED}"
