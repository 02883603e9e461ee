"""Where the log and each queue are written next: plain values, which compiled code reads without asking."""

from mmap import mmap
from typing import TYPE_CHECKING

from pyromq.compiled import twin

_native = twin("appending")

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

    class QueueEnd:
        __slots__ = (
            "end_offset",
            "fixed_bytes",
            "index_prefix",
            "is_dirty",
            "is_schedule",
            "next_offset",
            "queue_id",
            "topic_bytes",
            "write_buffer",
            "write_limit",
            "write_position",
        )

        end_offset: int
        fixed_bytes: int
        index_prefix: bytes
        is_dirty: bool
        is_schedule: bool
        next_offset: int
        queue_id: int
        topic_bytes: bytes
        write_buffer: mmap | bytearray
        write_limit: int
        write_position: int

else:
    LogEnd = _native.LogEnd
    QueueEnd = _native.QueueEnd
