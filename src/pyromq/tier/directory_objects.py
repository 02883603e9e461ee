"""Objects in a directory: safe on disk before a method returns, and each there whole or not at all.

A file is written under a temporary name, synced, and linked to its name: a link is created only if the name
is free. The directory is synced before the answer.
"""

from pathlib import Path
from typing import Final

from pyromq.chance import uuid
from pyromq.errors import TransportError
from pyromq.filesystem import UNFINISHED_SUFFIX, Files
from pyromq.tier.objects import ObjectExists, ObjectInfo, ObjectMissing

_COPY_BYTES: Final = 4 * 1024 * 1024


class DirectoryObjects:
    def __init__(self, directory: Path, files: Files | None = None) -> None:
        self._directory = directory
        self._files = files if files is not None else Files()
        # A process that was killed may not have synced the names of what it wrote.
        self._files.distrust_names(directory)

    def __repr__(self) -> str:
        return f"<DirectoryObjects {self._directory}>"

    @property
    def place(self) -> str:
        return str(self._directory)

    def create(self, name: str, content: bytes) -> None:
        path = self._directory / name
        try:
            if self._is_there(path):
                raise ObjectExists(name)
            self._publish(self._written(path, content), path)
        except FileExistsError:
            raise ObjectExists(name) from None
        except OSError as problem:
            raise TransportError(f"{path}: {problem}") from None

    def _is_there(self, path: Path) -> bool:
        if self._files.size(path) is None:
            return False
        self._files.sync_all_directories()
        return True

    def replace(self, name: str, content: bytes) -> None:
        path = self._directory / name
        try:
            self._files.rename(self._written(path, content), path)
            self._files.sync_all_directories()
        except OSError as problem:
            raise TransportError(f"{path}: {problem}") from None

    def put_file(self, name: str, path: Path) -> None:
        target = self._directory / name
        try:
            if self._is_there(target):
                return
            temporary = _temporary(target)
            self._files.write(temporary, b"")
            with self._files.open(path) as source:
                for start in range(0, source.size_bytes, _COPY_BYTES):
                    self._files.overwrite(temporary, start, source.read(start, _COPY_BYTES))
            self._publish(temporary, target)
        except FileExistsError:
            return
        except OSError as problem:
            raise TransportError(f"{target}: {problem}") from None

    def _written(self, path: Path, content: bytes) -> Path:
        temporary = _temporary(path)
        self._files.write(temporary, content)
        return temporary

    def _publish(self, temporary: Path, path: Path) -> None:
        try:
            self._files.link(temporary, path)
            self._files.sync_all_directories()
        finally:
            self._files.remove(temporary)

    def read(self, name: str, start: int = 0, size_bytes: int | None = None) -> bytes:
        try:
            return self._files.read(self._directory / name, start, size_bytes)
        except FileNotFoundError:
            raise ObjectMissing(name) from None
        except OSError as problem:
            raise TransportError(f"{self._directory / name}: {problem}") from None

    def info(self, name: str) -> ObjectInfo | None:
        path = self._directory / name
        try:
            size_bytes = self._files.size(path)
            return None if size_bytes is None else ObjectInfo(name, size_bytes, self._files.modified_ms(path))
        except FileNotFoundError:
            return None
        except OSError as problem:
            raise TransportError(f"{path}: {problem}") from None

    def list(self, prefix: str) -> "list[ObjectInfo]":
        directory, _, beginning = prefix.rpartition("/")
        try:
            names, _ = self._files.names(self._directory / directory)
        except OSError as problem:
            raise TransportError(f"{self._directory / directory}: {problem}") from None
        wanted = [
            f"{directory}/{name}" if directory else name for name in names if name.startswith(beginning)
        ]
        return [found for name in wanted if (found := self.info(name)) is not None]

    def remove(self, name: str) -> None:
        try:
            self._files.remove(self._directory / name)
            self._files.sync_all_directories()
        except FileNotFoundError:
            return
        except OSError as problem:
            raise TransportError(f"{self._directory / name}: {problem}") from None


def _temporary(path: Path) -> Path:
    """Two writers may be at it at the same time."""
    return path.with_name(f"{path.name}.{uuid().hex[:8]}{UNFINISHED_SUFFIX}")
