"""Unit checks: compare units with their records. Every reader of a unit asks here whether it is sound.

A unit is sound if the record at its log offset has the same size and log offset, and the topic, queue and
number of the unit. Queue files have no checksums, so only the record shows whether a unit is damaged.
"""

from struct import Struct
from typing import Final

from pyromq.protocol.record import MAGIC_V1, MAGIC_V2, MIN_RECORD_SIZE
from pyromq.store.log.commit_log import CommitLog
from pyromq.store.log.segment_source import ReadableSegment
from pyromq.store.queues.consume_queue import ConsumeQueue

NEAR_STRIDE: Final = 25
FAR_STRIDE: Final = 204
"""One in this many units that are skipped because of their tags is compared with its record: one per disk
sector, or one per page if the record may need to be read from disk."""

_HEAD: Final = Struct(">ii4xi4xqqi")
_USUAL_HEAD: Final = Struct(">ii4xi4xqqi44xi")
"""With the length of the body, of a record that has no address of version 6."""
_INT16: Final = Struct(">h")
_INT32: Final = Struct(">i")
_BODY_LENGTH_AT: Final = (84, 96, 96, 108)
"""By the two bits of the system flag that say which host has an address of version 6."""
MIN_CODE, MAX_CODE = -(1 << 31), (1 << 31) - 1


def is_sound(log: CommitLog, queue: ConsumeQueue, offset: int, place: int, size: int) -> bool:
    """Whether the unit of a message points to it."""
    segment = log.source.find(place)
    if segment is None or size < MIN_RECORD_SIZE or place + size > log.end_offset:
        return False
    start = place - segment.start
    end = start + size
    if end > segment.size_bytes:
        return False
    buffer = segment.buffer
    own_size, magic, queue_id, queue_offset, own_place, sys_flag = _HEAD.unpack_from(buffer, start)
    if (
        own_size != size
        or own_place != place
        or queue_offset != offset
        or queue_id != queue.queue_id
        or magic not in (MAGIC_V1, MAGIC_V2)
        or sys_flag & 0x4  # of a transaction, and in no queue
    ):
        return False
    length_at = start + _BODY_LENGTH_AT[(sys_flag & 0x30) >> 4]
    topic = queue.topic_bytes
    topic_at = length_at + 4 + int(_INT32.unpack_from(buffer, length_at)[0])
    if not length_at + 4 <= topic_at <= end - len(topic) - 3:
        return False
    if magic == MAGIC_V1:
        topic_length = buffer[topic_at]
        topic_at += 1
    else:
        topic_length = _INT16.unpack_from(buffer, topic_at)[0]
        topic_at += 2
    return topic_length == len(topic) and buffer[topic_at : topic_at + topic_length] == topic


def are_sound(
    log: CommitLog, queue: ConsumeQueue, offset: int, segment: ReadableSegment, places: list[tuple[int, int]]
) -> bool:
    """Whether all units from `offset` on point to their messages, and these lie in one file.

    The same as `is_sound` of each, with the usual records looked at in as few steps as Python allows.
    """
    base, limit = segment.start, min(segment.end, log.end_offset)
    buffer = segment.buffer
    topic, queue_id, unpack = queue.topic_bytes, queue.queue_id, _USUAL_HEAD.unpack_from
    prefixed = bytes((len(topic) & 0xFF,)) + topic
    topic_bytes = len(prefixed)
    for place, size in places:
        if place < base or size < MIN_RECORD_SIZE or place + size > limit:
            return False
        start = place - base
        own_size, magic, own_queue, number, own_place, sys_flag, body_bytes = unpack(buffer, start)
        if magic == MAGIC_V1 and not sys_flag & 0x34:
            topic_at = start + 88 + body_bytes
            if (
                own_size != size
                or own_place != place
                or number != offset
                or own_queue != queue_id
                or not 0 <= body_bytes <= size - 90 - topic_bytes
                or buffer[topic_at : topic_at + topic_bytes] != prefixed
            ):
                return False
        elif not is_sound(log, queue, offset, place, size):
            return False
        offset += 1
    return True


def why_unsound(log: CommitLog, queue: ConsumeQueue, offset: int, place: int, size: int) -> str:
    """The fault in a unit, in words; empty if it is sound."""
    if is_sound(log, queue, offset, place, size):
        return ""
    unit = f"unit {offset} points to log offset {place}, size {size}"
    record = log.record(place)
    if place < log.start_offset or place >= log.end_offset:
        return f"{unit}: outside the log, {log.start_offset} to {log.end_offset}"
    if record is None:
        return f"{unit}: no record begins there"
    own_size, _, queue_id, queue_offset, _, _ = _HEAD.unpack_from(record, 0)
    if (queue_id, queue_offset) != (queue.queue_id, offset):
        return f"{unit}: the record there is message {queue_offset} of queue {queue_id}"
    if own_size != size:
        return f"{unit}: the record there has {own_size} bytes"
    return f"{unit}: the record there belongs to another topic"


def is_tag_code(code: int) -> bool:
    """java: the hash of a tag has 32 bits."""
    return MIN_CODE <= code <= MAX_CODE
