"""Single messages of a tier: by time, by key, or by their place in the log.

Everything here blocks, and is called in a thread. Whoever asks says when it is enough. What could not be
looked at is named, so that it is not taken for "not found".
"""

from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from typing import NamedTuple

from pyromq.errors import PyroError, TransportError
from pyromq.protocol.record import peek_log_offset, peek_queue_offset, peek_store_timestamp
from pyromq.store.log_reading import has_key
from pyromq.store.results import Boundary
from pyromq.tier.blocks import FooterSource
from pyromq.tier.index import TierIndex, TierSpan
from pyromq.tier.manifest import SegmentEntry
from pyromq.tier.objects import ObjectMissing, Objects
from pyromq.tier.open_segment import OpenSegment
from pyromq.tier.segment_format import BadObject, Piece, Run

IsOver = Callable[[], bool]


class WantedKey(NamedTuple):
    topic: str
    key: str
    limit: int
    begin_ms: int
    end_ms: int
    is_unique: bool
    """Whether one message is enough, and is likely to be near the beginning of the time."""
    before_log: int
    """The log from there on is on the disk."""
    gone_before: Mapping[int, int]
    """For each queue the log offset before which its messages are deleted."""


class FoundByKey(NamedTuple):
    records: list[bytes]
    """The newest ones, in the order of the log."""
    problem: str
    """Why there may be more; empty if everything was looked at."""


class _Part(NamedTuple):
    """A piece, and up to where in time and log its records can be."""

    piece: Piece
    last_ms: int
    last_log: int
    gone_before: int


class TierLookups:
    def __init__(self, objects: Objects, footers: FooterSource) -> None:
        self._objects = objects
        self._footers = footers

    def __repr__(self) -> str:
        return f"<TierLookups {self._objects.place}>"

    def _segment(self, entry: SegmentEntry) -> OpenSegment:
        footer = self._footers.footer(entry)
        assert footer is not None
        return OpenSegment(self._objects, entry, footer)

    # By time

    def offset_at(self, span: TierSpan, timestamp_ms: int, boundary: Boundary, gone_before: int) -> int:
        """LOWER: the first message of a span that was stored at or after a time and is not deleted. UPPER:
        the last one stored at or before it. Raises TransportError, ObjectMissing or BadObject."""
        segment = self._segment(span.segment)
        run = segment.footer.runs[span.number]
        if boundary is Boundary.LOWER:
            return segment.first_offset(run, timestamp_ms, gone_before)
        pieces = run.pieces
        number = max(bisect_right(pieces, timestamp_ms, key=lambda each: each.first_ms) - 1, 0)
        earlier = [
            peek_queue_offset(record)
            for record in segment.records(pieces[number])
            if peek_store_timestamp(record) <= timestamp_ms
        ]
        return earlier[-1] if earlier else pieces[number].first_offset

    # By place

    def record_at(
        self, index: TierIndex, entry: SegmentEntry, log_offset: int, topic: str, is_over: IsOver
    ) -> bytes | None:
        """The message that begins at a log offset, if it is in a queue. Queues of `topic` are looked at
        first. Raises TransportError, ObjectMissing or BadObject."""
        segment = self._segment(entry)
        spans = [
            (queue[0] != topic, span.number)
            for queue, span in index.parts.get(entry.name, ())
            if span.first_log <= log_offset <= span.last_log
        ]
        for _, number in sorted(spans):
            if is_over():
                raise TransportError("it took too long to look at the queues of that time")
            pieces = segment.footer.runs[number].pieces
            piece = pieces[bisect_right(pieces, log_offset, key=lambda each: each.first_log) - 1]
            for record in segment.records(piece):
                if peek_log_offset(record) == log_offset:
                    return bytes(record)
        return None

    # By key

    def with_key(self, index: TierIndex, wanted: WantedKey, is_over: IsOver) -> FoundByKey:
        """The newest messages with a key. If one is enough, the segments are looked at from the oldest on."""
        manifest = index.manifest
        entries = [
            each
            for each in (manifest.segments if manifest is not None else ())
            if each.log_start < wanted.before_log and _overlap(each.first_ms, each.last_ms, wanted)
        ]
        if not wanted.is_unique:
            entries.reverse()
        found: dict[int, bytes] = {}
        for entry in entries:
            if entry.name not in index.parts:
                return FoundByKey(_newest(found, wanted), f"{entry.name} cannot be read at the moment")
            numbers = [
                (queue[1], span.number)
                for queue, span in index.parts[entry.name]
                if queue[0] == wanted.topic and _overlap(span.first_ms, span.last_ms, wanted)
            ]
            if not numbers:
                continue
            try:
                problem = self._look(entry, numbers, wanted, found, is_over)
            except (TransportError, ObjectMissing, BadObject) as failed:
                problem = _text(entry, failed)
            if problem or len(found) >= (1 if wanted.is_unique else wanted.limit):
                return FoundByKey(_newest(found, wanted), problem)
        return FoundByKey(_newest(found, wanted), "")

    def _look(
        self,
        entry: SegmentEntry,
        numbers: list[tuple[int, int]],
        wanted: WantedKey,
        found: dict[int, bytes],
        is_over: IsOver,
    ) -> str:
        """Add what a segment has; why it was left early, if so."""
        if is_over():
            return _looked_until(entry.last_ms, wanted)
        segment = self._segment(entry)
        parts = [
            part
            for queue_id, number in numbers
            for part in _parts(segment.footer.runs[number], wanted.gone_before.get(queue_id, 0))
            if _overlap(part.piece.first_ms, part.last_ms, wanted) and part.last_log >= part.gone_before
        ]
        if wanted.is_unique:
            parts.sort(key=lambda each: each.piece.first_log)
        else:
            parts.sort(key=lambda each: each.last_log, reverse=True)
        raw_key = wanted.key.encode()
        for part in parts:
            if wanted.is_unique and found:
                return ""
            if len(found) >= wanted.limit and sorted(found)[-wanted.limit] > part.last_log:
                return ""
            if is_over():
                return _looked_until(part.piece.first_ms if wanted.is_unique else part.last_ms, wanted)
            if raw_key not in bytes(segment.content(part.piece)):
                continue
            for record in segment.records(part.piece):
                place = peek_log_offset(record)
                if place >= part.gone_before and has_key(
                    record, wanted.topic, wanted.key, wanted.begin_ms, wanted.end_ms
                ):
                    found[place] = bytes(record)
        return ""


def _parts(run: Run, gone_before: int) -> Iterator[_Part]:
    for piece, following in zip(run.pieces, (*run.pieces[1:], None), strict=True):
        if following is None:
            yield _Part(piece, run.last_ms, run.last_log, gone_before)
        else:
            yield _Part(piece, following.first_ms, following.first_log, gone_before)


def _overlap(first_ms: int, last_ms: int, wanted: WantedKey) -> bool:
    return first_ms <= wanted.end_ms and last_ms >= wanted.begin_ms


def _newest(found: dict[int, bytes], wanted: WantedKey) -> list[bytes]:
    return [found[place] for place in sorted(found)[-wanted.limit :]]


def _looked_until(time_ms: int, wanted: WantedKey) -> str:
    where = "after" if wanted.is_unique else "before"
    when = datetime.fromtimestamp(time_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")
    return f"messages of the tier that were stored {where} {when} UTC were not looked at: choose that time"


def _text(entry: SegmentEntry, problem: PyroError) -> str:
    reason = "it is missing" if isinstance(problem, ObjectMissing) else str(problem)
    return f"{entry.name} cannot be read: {reason}"
