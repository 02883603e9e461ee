"""Scrubbing: find what is not sound in the log any more, and put back what another broker has of it.

Every record is checked as a replica checks it. Fillers for what was damaged, and blank files in place of
missing ones, are damage as well: another broker may have what was there. Any thread may check and write.
"""

from collections.abc import Generator
from functools import partial

from pyromq.compiled import twin
from pyromq.disk_steps import Wait
from pyromq.errors import RemoteProtocolError, StoreError
from pyromq.filesystem import Files
from pyromq.protocol.record import BLANK_SIZE, pack_blank_into, peek_size
from pyromq.store.log.commit_log import CommitLog
from pyromq.store.log.damage import FILLER_TOPIC, Damage, is_loss
from pyromq.store.log.record_checks import next_sound_record, sound_in, sound_outline
from pyromq.store.log.segment import MissingSegment, Segment

_native = twin("protocol.records")

_PIECE_BYTES = 1024 * 1024
_FILLER = FILLER_TOPIC.encode()


class NotThere(StoreError):
    """The other broker does not have the bytes that are damaged here."""


class Scrubbing:
    def __init__(self, files: Files, log: CommitLog) -> None:
        self._files = files
        self._log = log

    def __repr__(self) -> str:
        return f"<Scrubbing {self._log!r}>"

    def check(self, offset: int, end: int) -> tuple[int, Damage | None]:
        """Check a piece of the log, from the record at `offset` on and up to `end` at most.

        Returns where the next piece begins, and the damage that ends there. Raises OSError.
        """
        segment = self._segment_of(offset)
        if segment is None or isinstance(segment, MissingSegment):
            return max(self._log.start_offset, min(self._end_of_file(offset), end)), None
        place = self._end_of_sound(segment, offset, min(end, segment.end))
        if place > offset or place >= end:
            return place, None
        try:
            damage = self._damage_at(segment, place, end)
        except ValueError:  # its file was unmapped meanwhile
            return place, None
        return (place, None) if damage is None else (damage.end, damage)

    def start_of_file(self, offset: int) -> int:
        """A place from which on the log can be checked: a record begins with every file."""
        return offset - offset % self._log.segment_bytes

    def put_back(self, offset: int, content: bytes) -> None:
        """Write bytes over damaged ones and sync them. Raises OSError."""
        for segment in self._log.segments.covering(offset, offset + len(content)):
            begin, end = max(offset, segment.start), min(offset + len(content), segment.end)
            self._files.overwrite(segment.path, begin - segment.start, content[begin - offset : end - offset])

    def replacing(self, damage: Damage) -> Generator[int | Wait, bytes | None, None]:
        """Replace damage by what another broker has, step by step.

        An offset asks for that broker's record there, None if none begins there; a function waits for this
        disk. Nothing is taken unless it is sound, fills the range exactly, and the other broker has the same
        record behind it: then the two logs have one history up to there. The first record is written last:
        until then the damage is found again. Raises NotThere, or OSError.
        """
        if not damage.is_tail:
            theirs = yield damage.end
            if theirs != bytes(self._log.record(damage.end) or b""):
                raise NotThere(f"it has another record at log offset {damage.end}")
        first, rest, offset = b"", bytearray(), damage.start
        while offset < damage.end:
            record = yield offset
            if record is None:
                record = self._blank(offset, (yield self._end_of_file(offset)))
            elif not self._is_message(record, offset):
                raise NotThere(f"it has no sound message at log offset {offset} either")
            if offset + len(record) > damage.end:
                raise NotThere(f"its records do not end at log offset {damage.end}")
            if offset == damage.start:
                first = record
            else:
                rest += record
            offset += len(record)
            if len(rest) >= _PIECE_BYTES:
                yield partial(self.put_back, offset - len(rest), bytes(rest))
                rest.clear()
        if rest:
            yield partial(self.put_back, offset - len(rest), bytes(rest))
        yield partial(self.put_back, damage.start, first)

    def _end_of_file(self, offset: int) -> int:
        return self.start_of_file(offset) + self._log.segment_bytes

    def _is_message(self, record: bytes, offset: int) -> bool:
        try:
            outline = sound_in(record, 0, offset, self._end_of_file(offset))
        except RemoteProtocolError:
            return False
        return outline is not None and outline.size == len(record) and not is_loss(outline, record)

    def _blank(self, offset: int, following: bytes | None) -> bytes:
        """The blank that fills a file, if the record that follows it did not fit in its place."""
        room_bytes = self._end_of_file(offset) - offset
        if following is None or len(following) + BLANK_SIZE <= room_bytes:
            raise NotThere(f"it has no record at log offset {offset} either")
        blank = bytearray(room_bytes)
        pack_blank_into(blank, 0, room_bytes)
        return bytes(blank)

    # In a thread

    def _segment_of(self, offset: int) -> Segment | None:
        covering = self._log.segments.covering(offset, offset + 1)
        return covering[0] if covering else None

    def _end_of_sound(self, segment: Segment, offset: int, end: int) -> int:
        """Where the first record begins that is not sound, or that is not wholly in this piece."""
        size_bytes = _PIECE_BYTES
        with self._files.open(segment.path) as reader:
            while True:
                data = reader.read(offset - segment.start, min(size_bytes, end - offset))
                passed = self._passed(data, segment, offset)
                size = peek_size(data) if not passed and len(data) >= BLANK_SIZE else 0
                if not size_bytes < size <= end - offset:
                    return offset + passed
                size_bytes = size  # a record larger than a piece

    def _passed(self, data: bytes, segment: Segment, offset: int) -> int:
        """How many bytes of these are sound records, or the blank at the end of the file."""
        here = 0
        is_usual = _native is not None and _FILLER not in data
        while len(data) - here >= BLANK_SIZE:
            if _native is not None and is_usual:
                here, _, _ = _native.whole_records(data, here, len(data), len(data), offset + here)
                if len(data) - here < BLANK_SIZE:
                    break
            try:
                outline = sound_in(data, here, offset + here, segment.end)
            except RemoteProtocolError:
                break
            if outline is None and offset + here > segment.start:  # no log has a file of nothing
                return segment.end - offset
            if outline is None or is_loss(outline, data):
                break
            here += outline.size
        return here

    def _damage_at(self, segment: Segment, place: int, end: int) -> Damage | None:
        try:
            found = sound_outline(self._log, place)
        except RemoteProtocolError as error:
            following = next_sound_record(self._files, self._log, place, end)
            damage = Damage(place, end if following is None else following, str(error))
        else:
            outline = None if found is None else found[1]
            if outline is not None and not is_loss(outline, segment.buffer):
                return None  # it was written meanwhile
            size_bytes = segment.end - place if outline is None else outline.size
            damage = Damage(place, place + size_bytes, "it was lost before")
        while damage.end < end and self._is_loss(damage.end):
            damage.end += peek_size(self._log.record(damage.end) or b"")
        if self._is_blank(damage.end) and damage.end % self._log.segment_bytes:
            damage.end = self._end_of_file(damage.end)  # the damage may have been longer
        damage.is_tail = damage.end >= end
        return damage

    def _is_blank(self, place: int) -> bool:
        try:
            found = self._log.outline(place)
        except RemoteProtocolError:
            return False
        return found is not None and found[1] is None

    def _is_loss(self, place: int) -> bool:
        try:
            found = self._log.outline(place)
        except RemoteProtocolError:
            return False
        return found is not None and found[1] is not None and is_loss(found[1], found[0].buffer)
