"""Record checks: whether a record of the log is sound, and where the next sound record is.

A record is sound if its sizes agree, its log offset is its own, its topic, queue id and queue offset are
possible and its body matches the checksum. A replica counts for no other record. After a crash no part of it
may be missing, either. The search behind damage accepts only a sound record: log offset and checksum tell it
from bytes that merely look like one.
"""

from collections.abc import Iterator
from typing import Final

from pyromq.compiled import twin
from pyromq.errors import RemoteProtocolError
from pyromq.filesystem import Files
from pyromq.protocol.record import (
    BLANK_MAGIC,
    MIN_RECORD_SIZE,
    ReadBuffer,
    RecordOutline,
    peek_log_offset,
    peek_size,
    peek_size_and_magic,
    scan_record,
    verify_body_crc,
)
from pyromq.store.log.commit_log import CommitLog, verify_place
from pyromq.store.log.segment import MissingSegment, Segment
from pyromq.store.log.segment_source import ReadableSegment

_native = twin("protocol.records")

MIN_GAP_BYTES: Final = MIN_RECORD_SIZE + 1
"""The smallest record: its topic has at least one byte."""

_MAGIC_START: Final = b"\xda\xa3\x20"
_MAGIC_POSITION: Final = 4
_SECTOR_BYTES: Final = 512
_BLOCK_BYTES: Final = 1024 * 1024


def sound_outline(log: CommitLog, offset: int) -> tuple[ReadableSegment, RecordOutline | None] | None:
    """The record at an offset, without one for the blank at the end of a file; None where the files end.

    Raises RemoteProtocolError for anything that is not sound.
    """
    found = log.outline(offset)
    if found is None:
        return None
    segment, outline = found
    buffer = segment.buffer
    if outline is None:
        blank_bytes = peek_size(buffer, offset - segment.start)
        if blank_bytes != segment.end - offset:
            raise RemoteProtocolError(
                f"blank record at {offset} has {blank_bytes} bytes; its file has {segment.end - offset} left"
            )
        return found
    _verify_queue(outline)
    verify_body_crc(buffer, outline)
    return found


def _verify_queue(outline: RecordOutline) -> None:
    if outline.queue_id < 0 or outline.queue_offset < 0:
        raise RemoteProtocolError(
            f"record at {outline.log_offset} has an impossible queue id or queue offset:"
            f" {outline.queue_id}, {outline.queue_offset}"
        )


def sound_in(content: ReadBuffer, position: int, place: int, file_end: int) -> RecordOutline | None:
    """The same for bytes that were read from a file: those at `position` have the log offset `place`."""
    size_bytes, magic = peek_size_and_magic(content, position)
    if magic == BLANK_MAGIC and size_bytes == file_end - place:
        return None
    outline = scan_record(content, position)
    if outline is None:
        raise RemoteProtocolError(f"blank record at {place} has {size_bytes} bytes")
    verify_place(outline, place)
    _verify_queue(outline)
    verify_body_crc(content, outline)
    return outline


def first_damaged(view: memoryview, position: int = 0) -> int:
    """Where the first record begins whose body does not match its checksum, of those that follow each other
    from `position` on; -1 if there is none."""
    if _native is not None:
        found: int = _native.first_damaged(view, position)
        return found
    while position < len(view):
        try:
            outline = scan_record(view, position)
            if outline is None:
                return position
            verify_body_crc(view, outline)
        except RemoteProtocolError:
            return position
        position += outline.size
    return -1


def complete_outline(log: CommitLog, offset: int) -> tuple[ReadableSegment, RecordOutline | None] | None:
    """The same after a crash: no part of the record may be missing."""
    found = sound_outline(log, offset)
    if found is not None and found[1] is not None:
        _verify_complete(found[0], found[1])
    return found


def _verify_complete(segment: ReadableSegment, outline: RecordOutline) -> None:
    """Only the body has a checksum: look for parts of the rest that were never written.

    Parts that were not written are zeros. No topic has a zero byte, our records never end in one unless they
    have no properties, and a lost part is at least one disk sector.
    """
    buffer = segment.buffer
    start, end = outline.properties_start, outline.properties_end
    if end > start and buffer[end - 1] == 0:
        raise RemoteProtocolError(f"record at {outline.log_offset}: its end was not written")
    for sector in range(start + -start % _SECTOR_BYTES, end, _SECTOR_BYTES):
        piece = buffer[sector : min(sector + _SECTOR_BYTES, end)]
        if piece.count(0) == len(piece):
            raise RemoteProtocolError(f"record at {outline.log_offset}: a part was not written")


def next_sound_record(files: Files, log: CommitLog, offset: int, end: int) -> int | None:
    """The log offset of the first sound record behind the damage at `offset`, before `end` if there is one.

    It reads every byte in between, except parts of files that were never written.
    """
    begin = _end_of_damaged(log, offset)
    for segment in log.segments.covering(begin, end):
        if isinstance(segment, MissingSegment):
            continue
        for position in _record_starts(files, segment, max(begin - segment.start, 0)):
            place = segment.start + position
            if place >= end:
                return None
            if _is_sound_record(log, segment, position):
                return place
    return None


def _end_of_damaged(log: CommitLog, offset: int) -> int:
    """Where a search begins: inside a record whose four sizes agree, no other one can begin."""
    try:
        found = log.outline(offset)
    except RemoteProtocolError:
        found = None
    outline = found[1] if found is not None else None
    return offset + (outline.size if outline is not None else MIN_GAP_BYTES)


def _is_sound_record(log: CommitLog, segment: ReadableSegment, position: int) -> bool:
    if position + MIN_RECORD_SIZE > segment.size_bytes:
        return False
    place = segment.start + position
    if peek_log_offset(segment.buffer, position) != place:  # most that look like one end here
        return False
    try:
        found = complete_outline(log, place)
    except RemoteProtocolError:
        return False
    return found is not None and found[1] is not None


def _record_starts(files: Files, segment: Segment, begin: int) -> Iterator[int]:
    """Positions from `begin` on where a record would have its magic code."""
    overlap = len(_MAGIC_START) - 1
    with files.open(segment.path) as reader:
        for start, end in reader.data_after(begin):
            for block in range(start, end, _BLOCK_BYTES):
                content = reader.read(block, min(_BLOCK_BYTES + overlap, end - block))
                found = content.find(_MAGIC_START)
                while found >= 0:
                    position = block + found - _MAGIC_POSITION
                    if position >= begin:
                        yield position
                    found = content.find(_MAGIC_START, found + 1)


def count_record_starts(content: bytes) -> int:
    """How many records seem to begin in these bytes."""
    return content.count(_MAGIC_START + b"\xa7") + content.count(_MAGIC_START + b"\xab")
