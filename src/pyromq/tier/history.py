"""The messages of a tier as readers see them: below what the disk has, queue by queue, at their old offsets.

Everything here answers at once, on the event loop. A read ends where its block ends, and at the latest where
the disk begins. If a block is not in memory, or its content is unknown, the answer is IN_TIER: ask again.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Collection, Sequence
from typing import Final

import msgspec

from pyromq.protocol import properties as props
from pyromq.protocol.java_hash import tag_code
from pyromq.protocol.properties import get_property
from pyromq.protocol.record import peek_log_offset, peek_queue_offset, peek_store_timestamp, scan_record
from pyromq.store.older_messages import OlderUnknown, WantedRead
from pyromq.store.reading import RecordFilter
from pyromq.store.results import Boundary, ReadResult, ReadStatus
from pyromq.store.settings import StoreSettings
from pyromq.tier.blocks import Blocks
from pyromq.tier.index import Queue, TierIndex, TierSpan, is_internal, span_at
from pyromq.tier.lookups import WantedKey
from pyromq.tier.manifest import SegmentEntry
from pyromq.tier.segment_format import BadObject, Footer

_MAX_AHEAD: Final = 16
"""Blocks that a reader who keeps reading finds fetched: 4 MiB."""
_MAX_READERS: Final = 10_000
"""Queues for which it is known where a reader will continue."""

WakeQueue = Callable[[str, int], None]
"""Somebody waits for messages of this queue, and they may be there now."""


class OlderHistory:
    def __init__(
        self,
        blocks: Blocks,
        wake: WakeQueue,
        settings: Callable[[], StoreSettings],
        gone_before: Callable[[str, int], int],
        oldest_ms: Callable[[str], int] = lambda topic: 0,
    ) -> None:
        """`gone_before`: the log offset before which the messages of a queue are deleted. `oldest_ms`: the
        store time before which those of a topic have expired."""
        self._blocks = blocks
        self._wake = wake
        self._settings = settings
        self._gone_before_here = gone_before
        self._oldest_ms = oldest_ms
        self._ahead: dict[Queue, tuple[int, int]] = {}
        """Where a reader of the queue will continue, and how many blocks were fetched ahead of it."""
        self.index = TierIndex()
        self.is_known = False
        """Whether it was found out what the tier has."""
        self.messages_out = 0

    def __repr__(self) -> str:
        return f"<OlderHistory {self.index!r}>"

    def use(self, index: TierIndex) -> None:
        """From now on this is what the tier has."""
        for name in self.index.parts.keys() - index.parts.keys():
            self._blocks.forget(name)
        self.index = index
        self.is_known = True

    def gone_before(self, topic: str, queue_id: int) -> int:
        here = self._gone_before_here(topic, queue_id)
        hidden = self.index.hidden
        if not hidden:
            return here
        return max(here, hidden.get(topic, 0), hidden.get(f"{queue_id}@{topic}", 0))

    def _visible(self, topic: str, queue_id: int, gone_before: int) -> Sequence[TierSpan]:
        return self.index.visible((topic, queue_id), gone_before, self._oldest_ms(topic))

    # What the store asks

    def min_offset(self, topic: str, queue_id: int, local: int) -> int:
        """0 as long as there may be messages that cannot be seen now: a reader that begins there waits for
        them instead of skipping them."""
        if is_internal(topic):
            return local
        if not self.is_known:
            return 0
        gone_before = self.gone_before(topic, queue_id)
        spans = self._visible(topic, queue_id, gone_before)
        if self.index.unknown and self.index.has_gap(0, spans[0].first_log if spans else None, gone_before):
            return 0
        return min(spans[0].first_offset, local) if spans else local

    def store_time(self, topic: str, queue_id: int, offset: int) -> int:
        if is_internal(topic):
            return -1
        self._require_known()
        gone_before = self.gone_before(topic, queue_id)
        spans = self._visible(topic, queue_id, gone_before)
        if self.index.unknown and self.index.has_gap(0, spans[0].first_log if spans else None, gone_before):
            raise OlderUnknown(f"{self.index.unknown[0].name} cannot be read at the moment")
        number = span_at(spans, offset)
        if number < 0:
            return -1
        span = spans[number]
        if offset == span.first_offset:
            return span.first_ms
        return span.last_ms if offset == span.end_offset - 1 else -1

    def _require_known(self) -> None:
        if not self.is_known:
            raise OlderUnknown("it is not known yet what the tier has")

    def at_time(
        self, topic: str, queue_id: int, timestamp_ms: int, boundary: Boundary, log_start: int
    ) -> TierSpan | int | None:
        """Where a reader finds its message: its offset, or the span that has it. None if the disk has it, or
        if it does not exist. `log_start`: where the disk begins. Raises OlderUnknown."""
        if is_internal(topic):
            return None
        self._require_known()
        gone_before = self.gone_before(topic, queue_id)
        spans = self._visible(topic, queue_id, gone_before)
        unknown = [
            each for each in self.index.unknown if gone_before < each.log_end and each.log_start < log_start
        ]
        if boundary is Boundary.UPPER:
            number = bisect_right(spans, timestamp_ms, key=lambda each: each.first_ms) - 1
            place = spans[number].last_log if number >= 0 else -1
            hiding = [each for each in unknown if each.first_ms <= timestamp_ms and each.log_start > place]
        else:
            timestamp_ms = max(timestamp_ms, self._oldest_ms(topic))
            number = bisect_left(spans, timestamp_ms, key=lambda each: each.last_ms)
            place = spans[number].first_log if number < len(spans) else log_start
            hiding = [each for each in unknown if each.last_ms >= timestamp_ms and each.log_start < place]
        if hiding:
            raise OlderUnknown(f"{hiding[0].name} cannot be read at the moment")
        if not spans or number == len(spans):
            return None
        span = spans[max(number, 0)]
        if boundary is Boundary.UPPER:
            if number < 0:
                return span.first_offset
            return span.end_offset - 1 if span.last_ms <= timestamp_ms else span
        is_first = span.first_ms >= timestamp_ms and span.first_log >= gone_before
        return span.first_offset if is_first else span

    def wanted_key(
        self, topic: str, key: str, limit: int, times_ms: tuple[int, int], before_log: int, *, is_unique: bool
    ) -> WantedKey:
        """The question for messages with a key, without those that are hidden. Raises OlderUnknown."""
        self._require_known()
        gone = {queue_id: self.gone_before(topic, queue_id) for queue_id in self.index.queue_ids(topic)}
        begin_ms = max(times_ms[0], self._oldest_ms(topic))
        return WantedKey(topic, key, limit, begin_ms, times_ms[1], is_unique, before_log, gone)

    def segment_at(self, log_offset: int) -> SegmentEntry | None:
        """The segment that has a log offset. Raises OlderUnknown."""
        self._require_known()
        manifest = self.index.manifest
        entry = manifest.covering(log_offset) if manifest is not None else None
        if entry is not None and entry.name not in self.index.parts:
            raise OlderUnknown(f"{entry.name} cannot be read at the moment")
        return entry

    def has(self, record: bytes) -> bool:
        """Whether readers may see a message that was found: it is not deleted, and not too old."""
        outline = scan_record(record)
        return (
            outline is not None
            and outline.log_offset >= self.gone_before(outline.topic, outline.queue_id)
            and outline.store_timestamp >= self._oldest_ms(outline.topic)
        )

    def read(self, wanted: WantedRead, local: ReadResult) -> ReadResult:
        topic, queue_id, offset = wanted.topic, wanted.queue_id, wanted.offset
        if is_internal(topic):
            return local
        first = self.min_offset(topic, queue_id, local.min_offset)
        local = msgspec.structs.replace(local, min_offset=first)
        if not self.is_known:
            return _wait(local, offset)
        gone_before = self.gone_before(topic, queue_id)
        spans = self._visible(topic, queue_id, gone_before)
        number = span_at(spans, offset)
        if number >= 0 and offset < spans[number].end_offset:
            return self._read_span(spans, number, wanted, local)
        # No segment has this offset: unless one that cannot be read has it, the queue continues elsewhere.
        following = spans[number + 1] if number + 1 < len(spans) else None
        after = spans[number].last_log if number >= 0 else 0
        if self.index.has_gap(after, following.first_log if following is not None else None, gone_before):
            return _wait(local, offset)
        begin = following.first_offset if following is not None else local.next_offset
        if number < 0:
            return msgspec.structs.replace(local, next_offset=min(begin, local.next_offset))
        return _nothing(local, min(begin, max(local.next_offset, offset + 1)))

    def _read_span(
        self, spans: Sequence[TierSpan], index: int, wanted: WantedRead, local: ReadResult
    ) -> ReadResult:
        """Read the block that has an offset of a span."""
        span = spans[index]
        entry = span.segment
        queue = wanted.topic, wanted.queue_id

        def wake() -> None:
            self._wake(*queue)

        footer = self._blocks.footer(entry.name)
        if footer is None:
            self._blocks.want_footer(entry, wake)
            return _wait(local, wanted.offset)
        run = footer.runs[span.number]
        number = bisect_right(run.pieces, wanted.offset, key=lambda each: each.first_offset) - 1
        piece = run.pieces[number]
        block = self._blocks.block(entry.name, piece.block)
        if block is None:
            self._blocks.want_block(entry.name, footer.blocks[piece.block], piece, wake)
            return _wait(local, wanted.offset)
        end = run.pieces[number + 1].first_offset if number + 1 < len(run.pieces) else run.end_offset
        try:
            records = block.records(piece)
            begins = records and peek_queue_offset(block.content, records[0][0])
            if len(records) != end - piece.first_offset or begins != piece.first_offset:
                raise BadObject(f"block {piece.block} has not the messages that it should have")
        except BadObject as problem:
            self._blocks.reject((entry.name, piece.block), problem, wake)
            return _wait(local, wanted.offset)
        result = self._take(wanted, local, block.content, records[wanted.offset - piece.first_offset :])
        self._fetch_ahead(queue, spans, (index, number), footer, wanted.offset, result.next_offset)
        return result

    def _take(
        self, wanted: WantedRead, local: ReadResult, content: memoryview, records: list[tuple[int, int]]
    ) -> ReadResult:
        """The records that a reader gets from its offset on."""
        offset, only, matches = wanted.offset, wanted.only, _test(wanted.tag_codes, wanted.only)
        settings = self._settings()
        max_messages = max(1, min(wanted.max_messages, settings.max_batch_on_disk))
        max_bytes = min(wanted.max_bytes, settings.max_batch_bytes_on_disk)
        gone_before = self.gone_before(wanted.topic, wanted.queue_id)
        oldest_ms = self._oldest_ms(wanted.topic)
        # Where this disk continues, it does so by itself.
        records = records[: max(local.next_offset - offset, 1)]
        views: list[memoryview] = []
        size_bytes = examined = 0
        for start, size in records:
            if views and (len(views) >= max_messages or size_bytes + size > max_bytes):
                break
            if examined and only is not None and only.is_over is not None and only.is_over():
                break
            examined += 1
            view = content[start : start + size]
            is_there = peek_log_offset(view) >= gone_before and peek_store_timestamp(view) >= oldest_ms
            if is_there and (matches is None or matches(view)):
                views.append(view)
                size_bytes += size
        following = offset + examined
        if not views:
            return _nothing(local, following)
        self.messages_out += len(views)
        return ReadResult(
            ReadStatus.FOUND,
            following,
            local.min_offset,
            local.max_offset,
            views,
            len(views),
            size_bytes,
            suggest_replica=False,
        )

    def _fetch_ahead(
        self,
        queue: Queue,
        spans: Sequence[TierSpan],
        at: tuple[int, int],
        footer: Footer,
        offset: int,
        following: int,
    ) -> None:
        """A reader who continues where he ended gets twice as much ahead each time."""
        expected, depth = self._ahead.pop(queue, (-1, 0))
        depth = min(max(2 * depth, 1), _MAX_AHEAD) if expected == offset else 1
        self._ahead[queue] = following, depth
        if len(self._ahead) > _MAX_READERS:
            del self._ahead[next(iter(self._ahead))]
        index, number = at
        span = spans[index]
        pieces = footer.runs[span.number].pieces[number + 1 : number + 1 + depth]
        for piece in pieces:
            self._blocks.want_block(span.segment.name, footer.blocks[piece.block], piece)
        if len(pieces) < depth and index + 1 < len(spans):
            following_span = spans[index + 1]
            entry = following_span.segment
            next_footer = self._blocks.footer(entry.name)
            if next_footer is None:
                self._blocks.want_footer(entry)
                return
            for piece in next_footer.runs[following_span.number].pieces[: depth - len(pieces)]:
                self._blocks.want_block(entry.name, next_footer.blocks[piece.block], piece)


def _wait(local: ReadResult, offset: int) -> ReadResult:
    return msgspec.structs.replace(local, status=ReadStatus.IN_TIER, next_offset=offset)


def _nothing(local: ReadResult, next_offset: int) -> ReadResult:
    return ReadResult(ReadStatus.NO_MATCHED_MESSAGE, next_offset, local.min_offset, local.max_offset)


def _test(
    tag_codes: Collection[int] | None, only: RecordFilter | None
) -> Callable[[memoryview], bool] | None:
    if tag_codes is None:
        return only.matches if only is not None else None

    def has_tag(record: memoryview) -> bool:
        outline = scan_record(record)
        if outline is None:
            return False
        tags = get_property(bytes(record[outline.properties_start : outline.properties_end]), props.TAGS)
        return tag_code(tags) in tag_codes and (only is None or only.matches(record))

    return has_tag
