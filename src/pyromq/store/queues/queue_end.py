"""Where a queue is written next: plain values, which compiled code reads directly."""

from mmap import mmap
from typing import TYPE_CHECKING

from pyromq.compiled import twin

_native = twin("store.fast_appending")

if TYPE_CHECKING or _native is None:

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
    QueueEnd = _native.QueueEnd
