"""A table kept as one JSON file: replaced as a whole, and the one before it kept as `.bak`.

At every moment either the file or its backup is complete.
"""

from pathlib import Path
from typing import Any, TypeVar

from pyromq.errors import PyroError, StoreError
from pyromq.protocol import json_body
from pyromq.store.filenames import BACKUP_SUFFIX, BROKEN_SUFFIX, UNFINISHED_SUFFIX
from pyromq.store.filesystem import Files

T = TypeVar("T")


class JsonTable:
    def __init__(self, files: Files, path: Path) -> None:
        self._files = files
        self._backup = path.with_name(path.name + BACKUP_SUFFIX)
        self._broken = path.with_name(path.name + BROKEN_SUFFIX)
        self._unfinished = path.with_name(path.name + UNFINISHED_SUFFIX)
        self.path = path

    def __repr__(self) -> str:
        return f"<JsonTable {self.path.name}>"

    def load(self, type_: type[T]) -> T | None:
        """The table, from the backup if the file is missing, empty or unreadable; None without either.

        An unreadable file is put aside as `.broken`, lest it become the next backup.
        """
        problems = []
        for path in (self.path, self._backup):
            try:
                if not self._files.size(path):
                    continue
                table = json_body.decode(self._files.read(path), type_)
            except (PyroError, OSError) as error:
                problems.append(f"{path}: {error}")
                continue
            if problems:
                self._files.rename(self.path, self._broken)
            return table
        if problems:
            raise StoreError("; ".join(problems))
        return None

    def save(self, value: Any) -> None:
        """Replace the table; on return it is safe."""
        content = json_body.encode(value)
        if self._files.size(self.path) and self._files.read(self.path) == content:
            return
        self._files.write(self._unfinished, content)
        if self._files.size(self.path):
            self._files.rename(self.path, self._backup)
        self._files.rename(self._unfinished, self.path)
        self._files.sync_directory(self.path.parent)
