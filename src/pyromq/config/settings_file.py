"""The file for settings that are changed over the network.

It belongs to the operator: a change replaces the changed values and leaves everything else as it is,
comments, order, and edits since the start.
"""

from collections.abc import Mapping
from pathlib import Path

from pyromq.config import properties
from pyromq.config.durable_file import DurableFile
from pyromq.config.saving import Saving
from pyromq.filesystem import Files

# Every byte is a character, so that a text in any encoding comes back unchanged; what we write is ASCII.
_ENCODING = "iso-8859-1"
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


class SettingsFile:
    def __init__(self, path: Path, files: Files | None = None) -> None:
        self._file = DurableFile(path, files)
        self._changes: dict[str, str] = {}
        self._saving = Saving(path, self._changes.copy, self._rewrite)

    def __repr__(self) -> str:
        return f"<SettingsFile {self._saving!r}>"

    async def save(self, changes: Mapping[str, str]) -> None:
        """Return when the changes are on disk; raises StoreError if that failed.

        Changes that could not be written are written with the next ones.
        """
        self._changes.update(changes)
        await self._saving.save()
        for key, value in changes.items():
            if self._changes.get(key) == value:
                del self._changes[key]

    async def close(self) -> None:
        await self._saving.close()

    def _rewrite(self, changes: Mapping[str, str]) -> None:
        former = self._file.read() or b""
        mark = _BYTE_ORDER_MARK if former.startswith(_BYTE_ORDER_MARK) else b""
        text = properties.rewrite(former[len(mark) :].decode(_ENCODING), changes)
        content = mark + text.encode(_ENCODING)
        if content != former:
            self._file.save(content)
