"""Where the log is written next: plain values, which compiled code reads directly."""

from mmap import mmap
from typing import TYPE_CHECKING

from pyromq.compiled import twin

_native = twin("store.fast_appending")

if TYPE_CHECKING or _native is None:

    class LogEnd:
        __slots__ = (
            "appended_messages",
            "buffer",
            "buffer_start",
            "end_offset",
            "last_store_timestamp",
            "room_end",
            "wall_from_ms",
            "wall_until_ms",
        )

        appended_messages: int
        buffer: mmap | bytearray
        buffer_start: int
        end_offset: int
        last_store_timestamp: int
        room_end: int
        wall_from_ms: int
        wall_until_ms: int

else:
    LogEnd = _native.LogEnd
