"""The file of one controller: every change of a group is appended and on disk before anybody hears of it.

An entry holds a whole group, so the last entry of a group counts and replaying cannot go wrong half-way. At
most the last entry can be torn, because each one is on disk before the next is written: part of it was never
written. An entry that is all there and wrong was a decision, and the journal refuses to open.
docs/formats/controller.md has the layout.
"""

import struct
import zlib
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path

from pyromq.config.durable_file import DurableFile
from pyromq.controller.groups import GroupRecord, decode_group, encode_group
from pyromq.errors import StoreError
from pyromq.filesystem import FileLock, Files

MAGIC = b"PYROCTL1"
_ENTRY = struct.Struct(">II")
MAX_ENTRY_BYTES = 1 << 24
_SECTOR_BYTES = 512
"""A disk writes a sector as a whole or not at all; before, there are zeros behind the end of the file."""
COMPACT_ABOVE_BYTES = 1 << 20


def encode_entry(group: GroupRecord) -> bytes:
    payload = encode_group(group)
    return _ENTRY.pack(len(payload), _checksum(payload)) + payload


def read_entry(data: bytes, start: int) -> tuple[bytes, int] | None:
    """The payload at an offset and the offset after it; None if there is no whole, sound entry."""
    if start + _ENTRY.size > len(data):
        return None
    size, checksum = _ENTRY.unpack_from(data, start)
    end = start + _ENTRY.size + size
    if not 0 < size <= MAX_ENTRY_BYTES or end > len(data):
        return None
    payload = data[start + _ENTRY.size : end]
    return (payload, end) if _checksum(payload) == checksum else None


def _checksum(payload: bytes) -> int:
    return zlib.crc32(len(payload).to_bytes(4, "big") + payload)


def _is_torn(data: bytes, start: int) -> bool:
    """Whether a part of the last entry was never written. A wrong size makes a whole entry look short."""
    cuts = [start, *range(start - start % _SECTOR_BYTES + _SECTOR_BYTES, len(data), _SECTOR_BYTES), len(data)]
    if any(not any(data[begin:end]) for begin, end in pairwise(cuts)):
        return True
    if len(data) - start < _ENTRY.size:
        return True
    size, checksum = _ENTRY.unpack_from(data, start)
    rest = data[start + _ENTRY.size :]
    return len(rest) < size and _checksum(rest) != int(checksum)


def replay(data: bytes, path: Path) -> tuple[dict[str, GroupRecord], int]:
    """The groups in a journal, and the offset at which a torn last entry begins."""
    if not data.startswith(MAGIC):
        if MAGIC.startswith(data):  # The file was being made.
            return {}, 0
        raise StoreError(f"{path} is not the journal of a controller: it begins with {data[:8]!r}")
    groups: dict[str, GroupRecord] = {}
    end = len(MAGIC)
    while (entry := read_entry(data, end)) is not None:
        payload, end = entry
        group = decode_group(payload)
        groups[group.name] = group
    is_damaged = end < len(data) and not _is_torn(data, end)
    if is_damaged or any(read_entry(data, later) is not None for later in range(end + 1, len(data))):
        raise StoreError(
            f"{path} is damaged at byte {end}, and the decisions after that are lost. Restore its last"
            " version, or move it away to start with an empty store, which brokers enter with their"
            " ids and logs (docs/howto/lost-controller-store.md)"
        )
    return groups, end


class Journal:
    """Blocking; used by one thread at a time. A failed sync is for ever: `append` raises from then on."""

    def __init__(self, directory: Path, files: Files | None = None) -> None:
        self.path = directory / "groups.journal"
        self._files = files or Files()
        self._lock_path = directory / "lock"
        self._lock: FileLock | None = None
        self._end = 0
        self._failure = ""
        self.torn_bytes = 0
        """How much of a last entry was cut off when the journal was opened."""

    def __repr__(self) -> str:
        return f"<Journal {self.path} bytes={self._end}>"

    @property
    def size_bytes(self) -> int:
        return self._end

    def open(self) -> dict[str, GroupRecord]:
        """Read the groups and cut off a torn entry; raises StoreError."""
        try:
            self._files.make_directories(self.path.parent)
            self._lock = self._files.lock(self._lock_path)
            data = DurableFile(self.path, self._files).read() or b""
            groups, end = replay(data, self.path)
            self.torn_bytes = len(data) - end
            if end == 0:
                self._replace(MAGIC)
            else:
                self._end = end
                if self.torn_bytes:
                    self._files.resize(self.path, end)
                    self._files.sync(self.path)
        except OSError as problem:
            raise StoreError(f"could not open {self.path}: {problem.strerror}") from problem
        return groups

    def append(self, group: GroupRecord) -> None:
        """Return when the group is on disk; after a StoreError it may or may not be there."""
        if self._failure:
            raise StoreError(self._failure)
        assert self._lock is not None, "the journal is not open"
        entry = encode_entry(group)
        try:
            self._files.overwrite(self.path, self._end, entry)
        except OSError as problem:
            # Whether the entry is on disk cannot be known, so nothing may be decided after it.
            self._failure = f"could not write {self.path}: {problem.strerror}"
            raise StoreError(self._failure) from problem
        self._end += len(entry)

    def compact(self, groups: Iterable[GroupRecord]) -> None:
        """Write only the present groups; the journal is whole at every moment."""
        if self._failure:
            raise StoreError(self._failure)
        try:
            self._replace(MAGIC + b"".join(map(encode_entry, groups)))
        except OSError as problem:
            self._failure = f"could not write {self.path} anew: {problem.strerror}"
            raise StoreError(self._failure) from problem

    def close(self) -> None:
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def _replace(self, content: bytes) -> None:
        DurableFile(self.path, self._files).save(content)
        self._end = len(content)
