"""The audit log: one JSON line for every write and every look at bodies, synced before it counts.

A write has two lines under one id: what is about to happen, with the former values, then how it ended. What
cannot be written here does not happen.
"""

import os
from collections.abc import Iterator
from pathlib import Path
from secrets import token_hex
from typing import Any

import msgspec

from pyromq.clock import Clock
from pyromq.errors import PyroError


class CannotAudit(PyroError):
    """The audit log cannot be written; nothing was done."""


class AuditEntry(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    id: str = ""
    """The same for an intention and its outcome; the log gives one to an entry without."""
    at_ms: int = 0
    """The log fills it in."""
    who: str
    where_from: str
    what: str
    cluster: str = ""
    fields: dict[str, Any] = {}
    before: Any = None
    outcome: str = ""
    """Empty for an intention, `ok`, or the text of the failure."""


class AuditLog:
    """Blocking: a line costs one sync of the disk."""

    def __init__(self, path: Path, clock: Clock, *, max_bytes: int, backups: int) -> None:
        self.path = path
        self._clock = clock
        self._max_bytes = max_bytes
        self._backups = backups

    def __repr__(self) -> str:
        return f"<AuditLog {self.path}>"

    def write(self, entry: AuditEntry) -> str:
        """Append one line; returns its id. `CannotAudit` if that fails."""
        entry = msgspec.structs.replace(entry, id=entry.id or token_hex(8), at_ms=self._clock.now_ms())
        try:
            self._append(msgspec.json.encode(entry) + b"\n")
        except OSError as problem:
            raise CannotAudit(f"the audit log {self.path} cannot be written: {problem.strerror}") from None
        return entry.id

    def _append(self, line: bytes) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        if self.path.exists() and self.path.stat().st_size + len(line) > self._max_bytes:
            self._rotate()
        descriptor = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            os.write(descriptor, line)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def _rotate(self) -> None:
        files = [
            self.path,
            *(self.path.with_name(f"{self.path.name}.{n}") for n in range(1, self._backups + 1)),
        ]
        for older, newer in zip(reversed(files[1:]), reversed(files[:-1]), strict=True):
            if newer.exists():
                newer.replace(older)
        self.path.unlink(missing_ok=True)

    def newest_first(self, limit: int) -> list[AuditEntry]:
        """The latest lines, of rotated files too."""
        found: list[AuditEntry] = []
        for path in (self.path, self.path.with_name(f"{self.path.name}.1")):
            for entry in reversed(list(_entries(path))):
                if len(found) == limit:
                    return found
                found.append(entry)
        return found

    def intention(self, id: str) -> AuditEntry | None:
        """The line that announced a write."""
        return next((each for each in self.newest_first(100_000) if each.id == id and not each.outcome), None)


def _entries(path: Path) -> Iterator[AuditEntry]:
    """A line that was torn by a crash is passed over."""
    try:
        lines = path.read_bytes().splitlines()
    except FileNotFoundError:
        return
    for line in lines:
        try:
            yield msgspec.json.decode(line, type=AuditEntry)
        except msgspec.MsgspecError:
            continue
