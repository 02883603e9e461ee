"""A table in a JSON file, which is replaced as a whole; the previous version is kept as `.bak`.

At any moment the file or its backup is complete. An empty file is damage, because no table is ever written
as an empty file. A table starts empty only if there is neither a file nor a backup.
"""

from pathlib import Path
from typing import Any, TypeVar

import msgspec

from pyromq.errors import PyroError, StoreError
from pyromq.filesystem import BACKUP_SUFFIX, UNFINISHED_SUFFIX, Files
from pyromq.protocol import json_body
from pyromq.store.filenames import BROKEN_SUFFIX

T = TypeVar("T")

_NOTHING = b" \t\r\n\0"
"""The rest of a file whose content never reached the disk."""


class JsonTable:
    def __init__(self, files: Files, path: Path) -> None:
        self._files = files
        self._backup = path.with_name(path.name + BACKUP_SUFFIX)
        self._broken = path.with_name(path.name + BROKEN_SUFFIX)
        self._unfinished = path.with_name(path.name + UNFINISHED_SUFFIX)
        self.path = path
        self.remark = ""
        """The fault in the file when it was loaded, though a table was found."""
        self.is_older = False
        """Whether what was loaded is the backup, and a change may have been on disk after it."""

    @property
    def modified_ms(self) -> int:
        """When the file was written last; 0 if there is none."""
        return 0 if self._files.size(self.path) is None else self._files.modified_ms(self.path)

    def __repr__(self) -> str:
        return f"<JsonTable {self.path.name}>"

    @property
    def is_missing(self) -> bool:
        """Whether there is neither a file nor a backup."""
        return self._files.size(self.path) is None and self._files.size(self._backup) is None

    def load(self, type_: type[T]) -> T | None:
        """The table, from the backup if the file is missing or damaged; None if there is neither.

        A damaged file is put aside as `.broken`, so that it does not become the next backup, and `remark`
        says so.
        """
        problems = []
        for path in (self.path, self._backup):
            try:
                if self._files.size(path) is None:
                    continue
                table = json_body.decode(self._content(path), type_)
            except (PyroError, OSError) as error:
                problems.append(f"{path}: {error}")
                continue
            if problems:
                self._files.rename(self.path, self._broken)
                self.remark = f"{problems[0]}: kept as {self._broken.name}; {path.name} was loaded instead"
            # An unfinished file means that a save was interrupted, before its caller relied on it.
            is_interrupted = not problems and self._files.size(self._unfinished) is not None
            self.is_older = path == self._backup and not is_interrupted
            return table
        if problems:
            raise StoreError(
                f"{'; '.join(problems)}. Restore the file from a backup of your own, or delete"
                f" {self.path.name} and {self._backup.name} to start with an empty table"
            )
        return None

    def _content(self, path: Path) -> bytes:
        content = self._files.read(path)
        if not content.strip(_NOTHING):
            raise StoreError(
                f"it has only blanks ({len(content)} bytes)" if content else "it is empty (0 bytes)"
            )
        return content

    def save(self, value: Any) -> None:
        """Replace the table; on return it is safe."""
        self._replace(json_body.encode(value))

    def save_from_thread(self, value: msgspec.Struct) -> None:
        """The same, from another thread than the loop's, which need not wait while a large table is
        encoded."""
        pieces = []
        for piece in json_body.encode_in_pieces(value):
            pieces.append(piece)
            # Gives up the interpreter's lock, which the loop would otherwise get after five milliseconds.
            self._files.give_way()
        self._replace(b"".join(pieces))

    def _replace(self, content: bytes) -> None:
        if self._files.size(self.path) and self._files.read(self.path) == content:
            return
        self._files.write(self._unfinished, content)
        if self._files.size(self.path):
            self._files.rename(self.path, self._backup)
        self._files.rename(self._unfinished, self.path)
        self._files.sync_directory(self.path.parent)
        self._files.sync_directory(self.path.parent.parent)  # the first table makes the directory
