"""Which messages a tier has, queue by queue: made from footers in a thread, and replaced as a whole.

A footer that cannot be read leaves a known gap: readers must not skip the messages that may be in it.
"""

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from itertools import pairwise, zip_longest
from typing import Final, NamedTuple

from pyromq.protocol import names
from pyromq.protocol.record import MIN_RECORD_SIZE
from pyromq.tier.manifest import Manifest, SegmentEntry, gone_before
from pyromq.tier.segment_format import BadObject, Footer

Queue = tuple[str, int]


class TierSpan(NamedTuple):
    """A run of a segment: messages of one queue whose offsets follow each other."""

    segment: SegmentEntry
    number: int
    """Which run of the footer it is."""
    first_offset: int
    end_offset: int
    first_log: int
    last_log: int
    first_ms: int
    last_ms: int
    size_bytes: int


Spans = tuple[tuple[Queue, TierSpan], ...]
"""Those of one segment, in the order of the log."""


def spans_of(entry: SegmentEntry, footer: Footer) -> Spans:
    """Raises BadObject if the footer is that of another segment."""
    if (footer.log_start, footer.log_end) != (entry.log_start, entry.log_end):
        raise BadObject(f"{entry.name} has the footer of the log from {footer.log_start}")
    found = [
        (
            (run.topic, run.queue_id),
            TierSpan(
                entry,
                number,
                run.first_offset,
                run.end_offset,
                run.first_log,
                run.last_log,
                run.first_ms,
                run.last_ms,
                sum(each.size_bytes for each in run.pieces),
            ),
        )
        for number, run in enumerate(footer.runs)
    ]
    return tuple(sorted(found, key=lambda each: each[1].first_log))


class TierIndex:
    def __init__(self, manifest: Manifest | None = None, parts: Mapping[str, Spans] | None = None) -> None:
        """`parts`: the spans of the segments whose footers could be read, by their names."""
        self.manifest: Final = manifest
        self.parts: Final = parts if parts is not None else {}
        entries = manifest.segments if manifest is not None else ()
        self.unknown: Final = tuple(each for each in entries if each.name not in self.parts)
        """The other ones."""
        self.hidden: Final = {each.topic: each.log_offset for each in manifest.deletions} if manifest else {}
        self._queues: dict[Queue, list[TierSpan]] = {}
        for entry in entries:
            for queue, span in self.parts.get(entry.name, ()):
                self._queues.setdefault(queue, []).append(span)
        self.out_of_line: Final[dict[Queue, list[TierSpan]]] = {}
        """Those that cannot be read, because offsets of their queue go back without a deletion."""
        for queue, spans in self._queues.items():
            if any(after.first_offset < before.end_offset for before, after in pairwise(spans)):
                self._queues[queue], odd = _in_line(spans, gone_before(self.hidden, *queue))
                if odd:
                    self.out_of_line[queue] = odd
        self._queue_ids: dict[str, list[int]] = {}
        for topic, queue_id in self._queues:
            self._queue_ids.setdefault(topic, []).append(queue_id)

    def __repr__(self) -> str:
        return f"<TierIndex {len(self._queues)} queues, {len(self.unknown)} segments unknown>"

    @property
    def queues(self) -> list[Queue]:
        return list(self._queues)

    def queue_ids(self, topic: str) -> Sequence[int]:
        """The queues of a topic that have messages here."""
        return self._queue_ids.get(topic, ())

    def visible(self, queue: Queue, gone_before: int, oldest_ms: int = 0) -> Sequence[TierSpan]:
        """The spans of a queue whose messages are not all deleted or too old, oldest first."""
        spans = self._queues.get(queue, ())
        if not gone_before and not oldest_ms:
            return spans
        return [each for each in spans if each.last_log >= gone_before and each.last_ms >= oldest_ms]

    def end_of(self, queue: Queue, before_log: int = 1 << 63) -> int:
        """Where a queue continues behind what is in the tier before a log offset; 0 if nothing is, or if its
        topic was deleted since. A segment that cannot be read counts as if it were full of its messages: so
        no offset is given twice."""
        end, known_to = self._known_end(queue, before_log)
        room = sum(
            max(0, min(each.log_end, before_log) - max(each.log_start, known_to)) for each in self.unknown
        )
        return end + room // MIN_RECORD_SIZE

    def is_end_known(self, queue: Queue, before_log: int) -> bool:
        """Whether no segment that cannot be read may have messages behind those that are known."""
        return not self.has_gap(self._known_end(queue, before_log)[1], before_log, 0)

    def _known_end(self, queue: Queue, before_log: int) -> tuple[int, int]:
        """Where the last messages end that can be read, as queue offset and log offset."""
        deleted = self.hidden.get(queue[0], 0)
        for span in reversed(self._queues.get(queue, ())):
            if deleted <= span.last_log < before_log:
                return span.end_offset, span.last_log + 1
        return 0, deleted

    def has_gap(self, after_log: int, before_log: int | None, gone_before: int) -> bool:
        """Whether there may be messages between two log offsets, in a segment that cannot be read."""
        return any(
            each.log_end > max(after_log, gone_before) and (before_log is None or each.log_start < before_log)
            for each in self.unknown
        )


def _in_line(spans: Sequence[TierSpan], deleted_before: int) -> tuple[list[TierSpan], list[TierSpan]]:
    """The spans of a queue that follow each other, and those that are omitted. A single one that is out of
    line hides no others; if offsets go back for good, the queue began anew."""
    kept: list[TierSpan] = []
    odd: list[TierSpan] = []
    for span, after in zip_longest(spans, spans[1:]):
        if kept and span.first_offset < kept[-1].end_offset:
            if kept[-1].last_log < deleted_before:
                kept.clear()  # the topic was deleted in between, and begins anew
            elif len(kept) > 1 and kept[-2].end_offset <= span.first_offset:
                odd.append(kept.pop())
            elif (
                after.first_offset >= kept[-1].end_offset
                if after is not None
                else span.end_offset - span.first_offset == 1
            ):
                odd.append(span)
                continue
            else:
                odd += kept
                kept.clear()
        kept.append(span)
    return kept, odd


def span_at(spans: Sequence[TierSpan], offset: int) -> int:
    """The number of the last span that does not begin behind an offset; -1 if all do."""
    return bisect_right(spans, offset, key=lambda each: each.first_offset) - 1


def is_internal(topic: str) -> bool:
    """Brokers read these topics themselves, and none of what they once had."""
    return topic in names.SYSTEM_TOPICS or names.is_kept_by_brokers(topic)
