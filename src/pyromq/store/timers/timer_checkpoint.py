"""The timers' checkpoint: how far timed messages are on disk, and so where recovery begins.

    position  size  field
           0     8  slot being delivered, as its time in ms; earlier slots are done
           8     8  timer log: everything before this position is on disk, in its slots, too
          16     8  queue offset in the timers' topic: earlier messages are in the timer log
          24     8  the same of the master
          32    24  data version: state version, time, counter
          56     8  ours: log offset from which on messages of the first slot may have been delivered
          64     8  ours: CRC-32 of all the other numbers, combined with a constant by exclusive or

java: the file has 4,096 bytes, of which Apache's broker reads and writes the first seven numbers; these are
also the answer to GET_TIMER_CHECK_POINT. Ours count only if the last one matches.
"""

import struct
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Final
from zlib import crc32

from pyromq.filesystem import Files

FILE_BYTES: Final = 4096
_FIELDS: Final = struct.Struct(">8qQ")
_SHARED: Final = struct.Struct(">7q")
_SEALED: Final = struct.Struct(">8q")
_SEAL: Final = 0x5079726F4D510002
UNKNOWN: Final = -1


@dataclass(frozen=True, slots=True)
class TimerCheckpoint:
    read_ms: int = 0
    log_position: int = 0
    queue_offset: int = 0
    master_queue_offset: int = 0
    state_version: int = 0
    version_ms: int = 0
    version_counter: int = 0
    delivered_from: int = UNKNOWN
    """A log offset, or UNKNOWN if Apache's broker wrote the file."""

    def encode(self) -> bytes:
        """The part that Apache's broker knows."""
        return _SHARED.pack(*astuple(self)[:7])


def decode_timer_checkpoint(content: bytes) -> TimerCheckpoint:
    """Raises ValueError if there are too few bytes."""
    if len(content) < _SHARED.size:
        raise ValueError(f"a timer checkpoint has {_SHARED.size} bytes, not {len(content)}")
    return TimerCheckpoint(*_SHARED.unpack_from(content))


def read_timer_checkpoint(files: Files, path: Path) -> TimerCheckpoint:
    """An empty one if there is no file."""
    if (files.size(path) or 0) < _FIELDS.size:
        return TimerCheckpoint()
    *numbers, seal = _FIELDS.unpack(files.read(path, 0, _FIELDS.size))
    is_ours = seal == _seal_of(tuple(numbers))
    return TimerCheckpoint(*numbers if is_ours else numbers[:7])


def write_timer_checkpoint(files: Files, path: Path, checkpoint: TimerCheckpoint) -> None:
    """Write and sync. All numbers lie in one disk sector, so that they change together."""
    numbers: tuple[int, ...] = astuple(checkpoint)
    content = _FIELDS.pack(*numbers, _seal_of(numbers))
    if files.size(path) != FILE_BYTES:
        files.write(path, content.ljust(FILE_BYTES, b"\0"))
        files.sync_all_directories()
    else:
        files.overwrite(path, 0, content)


def _seal_of(numbers: tuple[int, ...]) -> int:
    # java: both queue offsets are often equal, and change to the same later one.
    return _SEAL ^ crc32(_SEALED.pack(*numbers))
