"""The checkpoint: how far log, queues and index are on disk, and so where recovery can begin.

    position  size  field
           0     8  store time of the last message flushed in the commit log
           8     8  store time of the last message flushed in the consume queues
          16     8  store time of the last message flushed in the index
          24     8  flushed log offset of the master (replication)
          32     8  confirmed log offset (replication)
          40     8  ours: log offset before which log, queues and index are all flushed
          48     8  ours: queues that had files then
          56     8  ours: units in these files
          64     8  ours: CRC-32 of all the other numbers, combined with a constant by exclusive or

java: the file has 4,096 bytes, of which Apache's broker reads and writes the first five numbers. Ours
count only if the last one matches, which it no longer does once another program has written the file.
"""

import struct
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Final
from zlib import crc32

from pyromq.filesystem import Files

FILE_BYTES: Final = 4096
_FIELDS: Final = struct.Struct(">8qQ")
_SEALED: Final = struct.Struct(">8q")
_SEAL: Final = 0x5079726F4D510001
_MARGIN_MS: Final = 3000
_LATEST_MS: Final = 1 << 43
"""The year 2248: a greater number is not a plausible time."""
UNITS_UNKNOWN: Final = -1


@dataclass(frozen=True, slots=True)
class Checkpoint:
    log_timestamp: int = 0
    queue_timestamp: int = 0
    index_timestamp: int = 0
    master_flushed_offset: int = 0
    confirm_offset: int = 0
    safe_offset: int = -1
    """Recovery may begin here; -1 if only the times are known."""
    queue_count: int = 0
    unit_count: int = UNITS_UNKNOWN
    """Units in the queues' files of messages before the safe offset."""

    @property
    def min_timestamp(self) -> int:
        # java: three seconds of margin, and the index has no say
        return max(min(self.log_timestamp, self.queue_timestamp) - _MARGIN_MS, 0)


def _seal_of(numbers: tuple[int, ...]) -> int:
    # java: two of the times are often equal, and change to the same later one.
    return _SEAL ^ crc32(_SEALED.pack(*numbers))


def write_checkpoint(files: Files, path: Path, checkpoint: Checkpoint) -> None:
    """Write and sync. All numbers lie in one disk sector, so that they change together."""
    numbers: tuple[int, ...] = astuple(checkpoint)
    content = _FIELDS.pack(*numbers, _seal_of(numbers))
    if files.size(path) != FILE_BYTES:
        files.write(path, content.ljust(FILE_BYTES, b"\0"))
        files.sync_directory(path.parent)
    else:
        files.overwrite(path, 0, content)


def is_time(timestamp_ms: int) -> bool:
    """Whether a number from a file can be a time at all."""
    return 0 <= timestamp_ms < _LATEST_MS


def read_checkpoint(files: Files, path: Path) -> Checkpoint:
    """Read the checkpoint; a missing, short or invalid file counts as empty: recovery checks everything."""
    if (files.size(path) or 0) < _FIELDS.size:
        return Checkpoint()
    *numbers, seal = _FIELDS.unpack(files.read(path, 0, _FIELDS.size))
    if seal == _seal_of(tuple(numbers)):
        return Checkpoint(*numbers)
    return Checkpoint(*numbers[:5]) if all(map(is_time, numbers[:3])) else Checkpoint()
