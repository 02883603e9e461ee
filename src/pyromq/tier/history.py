"""The messages of a tier as readers see them: below what the disk has, queue by queue, at their old offsets.

Everything here answers at once, on the event loop. A read ends where its block ends, and at the latest where
the disk begins. If a block is not in memory, or the tier is not known yet, the answer is IN_TIER: ask again.
"""

from bisect import bisect_right
from collections.abc import Callable, Collection
from typing import Final, NamedTuple

import msgspec

from pyromq.protocol import names
from pyromq.protocol import properties as props
from pyromq.protocol.java_hash import tag_code
from pyromq.protocol.properties import get_property
from pyromq.protocol.record import peek_log_offset, peek_queue_offset, scan_record
from pyromq.store.older_messages import WantedRead
from pyromq.store.reading import RecordFilter
from pyromq.store.results import ReadResult, ReadStatus
from pyromq.store.settings import StoreSettings
from pyromq.tier.blocks import Blocks, Key
from pyromq.tier.manifest import Manifest, SegmentEntry
from pyromq.tier.segment_format import BadObject, Footer, PackedBlock, Run

_MAX_AHEAD: Final = 16
"""Blocks that a reader who goes on and on finds fetched: 4 MiB."""

Queue = tuple[str, int]
Wake = Callable[[str, int], None]
"""Somebody waits for messages of this queue, and they may be there now."""


class _Place(NamedTuple):
    """A run, and where its blocks are."""

    name: str
    blocks: tuple[PackedBlock, ...]
    run: Run


class OlderHistory:
    def __init__(
        self,
        blocks: Blocks,
        wake: Wake,
        settings: Callable[[], StoreSettings],
        gone_before: Callable[[str, int], int],
    ) -> None:
        """`gone_before`: the log offset before which the messages of a queue are deleted."""
        self._blocks = blocks
        self._wake = wake
        self._settings = settings
        self._gone_before_here = gone_before
        self._hidden: dict[str, int] = {}
        self._runs: dict[Queue, list[_Place]] = {}
        self._ahead: dict[Queue, tuple[int, int]] = {}
        """Where a reader of the queue will go on, and how many blocks were fetched ahead of it."""
        self.end = 0
        """Footers of all segments up to this log offset are known."""
        self.is_known = False
        """Whether the footers of a manifest were read."""
        self.messages_out = 0

    def __repr__(self) -> str:
        return f"<OlderHistory ..{self.end} queues={len(self._runs)}>"

    def missing(self, manifest: Manifest) -> list[SegmentEntry]:
        """The segments whose footers are not known yet."""
        return [each for each in manifest.segments if each.log_start >= self.end]

    def add(self, entry: SegmentEntry, footer: Footer) -> None:
        """The next segment. Raises BadObject if the footer is that of another one."""
        same = (footer.log_start, footer.log_end, footer.log_sha256.hex())
        if same != (entry.log_start, entry.log_end, entry.log_sha256):
            raise BadObject(f"{entry.name} has the footer of the log from {footer.log_start}")
        for run in sorted(footer.runs, key=lambda each: each.first_log):
            places = self._runs.setdefault((run.topic, run.queue_id), [])
            if places and run.first_offset < places[-1].run.end_offset:
                places.clear()  # the topic was deleted in between, and begins anew
            places.append(_Place(entry.name, footer.blocks, run))
        self.end = entry.log_end

    def complete(self, manifest: Manifest | None) -> None:
        """All segments of this manifest are known, or there is no tier yet."""
        if manifest is not None:
            self._hidden = {each.topic: each.log_offset for each in manifest.deletions}
        self.is_known = True

    def _gone_before(self, topic: str, queue_id: int) -> int:
        here = self._gone_before_here(topic, queue_id)
        if not self._hidden:
            return here
        return max(here, self._hidden.get(topic, 0), self._hidden.get(f"{queue_id}@{topic}", 0))

    # What the store asks

    def min_offset(self, topic: str, queue_id: int, local: int) -> int:
        if _is_internal(topic):
            return local
        places = self._visible(topic, queue_id)
        return min(places[0].run.first_offset, local) if places else local

    def _visible(self, topic: str, queue_id: int) -> list[_Place]:
        places = self._runs.get((topic, queue_id), [])
        gone_before = self._gone_before(topic, queue_id) if places else 0
        return [each for each in places if each.run.last_log >= gone_before] if gone_before else places

    def read(self, wanted: WantedRead, local: ReadResult) -> ReadResult:
        topic, queue_id, offset = wanted.topic, wanted.queue_id, wanted.offset
        if _is_internal(topic):
            return local
        if not self.is_known:
            return msgspec.structs.replace(local, status=ReadStatus.IN_TIER, next_offset=offset)
        places = self._visible(topic, queue_id)
        index = bisect_right(places, offset, key=lambda each: each.run.first_offset) - 1
        if not places or offset < places[0].run.first_offset:
            first = min(places[0].run.first_offset, local.min_offset) if places else local.min_offset
            return msgspec.structs.replace(local, next_offset=first, min_offset=first)
        local = msgspec.structs.replace(local, min_offset=places[0].run.first_offset)
        if offset >= places[index].run.end_offset:
            # Nobody has the messages in between any more.
            following = places[index + 1].run.first_offset if index + 1 < len(places) else local.max_offset
            return _nothing(local, min(following, max(local.next_offset, offset + 1)))
        return self._read_run(places, index, wanted, local)

    def _read_run(
        self, places: list[_Place], index: int, wanted: WantedRead, local: ReadResult
    ) -> ReadResult:
        """Read the block that has an offset of a run."""
        offset, only, matches = wanted.offset, wanted.only, _test(wanted.tag_codes, wanted.only)
        place = places[index]
        run = place.run
        queue = run.topic, run.queue_id
        number = bisect_right(run.pieces, offset, key=lambda each: each.first_offset) - 1
        piece = run.pieces[number]
        key = place.name, piece.block
        block = self._blocks.get(key)
        if block is None:
            self._blocks.want(key, place.blocks[piece.block], lambda: self._wake(*queue))
            return msgspec.structs.replace(local, status=ReadStatus.IN_TIER, next_offset=offset)
        end = run.pieces[number + 1].first_offset if number + 1 < len(run.pieces) else run.end_offset
        try:
            records = block.records(piece)[offset - piece.first_offset :]
            if len(records) != end - offset or peek_queue_offset(block.content, records[0][0]) != offset:
                raise BadObject(f"{place.name}: block {piece.block} has not the messages that it should have")
        except BadObject as problem:
            self._blocks.last_problem = str(problem)
            return msgspec.structs.replace(local, status=ReadStatus.IN_TIER, next_offset=offset)
        settings = self._settings()
        max_messages = max(1, min(wanted.max_messages, settings.max_batch_on_disk))
        max_bytes = min(wanted.max_bytes, settings.max_batch_bytes_on_disk)
        gone_before = self._gone_before(*queue)
        # Where this disk goes on, it does so by itself.
        records = records[: max(local.next_offset - offset, 1)]
        views: list[memoryview] = []
        size_bytes = examined = 0
        for start, size in records:
            if views and (len(views) >= max_messages or size_bytes + size > max_bytes):
                break
            if examined and only is not None and only.is_over is not None and only.is_over():
                break
            examined += 1
            view = block.content[start : start + size]
            if peek_log_offset(view) >= gone_before and (matches is None or matches(view)):
                views.append(view)
                size_bytes += size
        following = offset + examined
        self._fetch_ahead(queue, places, (index, number), offset, following)
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
        self, queue: Queue, places: list[_Place], at: tuple[int, int], offset: int, following: int
    ) -> None:
        """A reader who goes on where he ended gets twice as much ahead each time."""
        expected, depth = self._ahead.get(queue, (-1, 0))
        depth = min(max(2 * depth, 1), _MAX_AHEAD) if expected == offset else 1
        self._ahead[queue] = following, depth
        wanted: list[tuple[Key, PackedBlock]] = []
        index, number = at
        while len(wanted) < depth and index < len(places):
            place = places[index]
            pieces = place.run.pieces[number + 1 : number + 1 + depth - len(wanted)]
            wanted += [((place.name, piece.block), place.blocks[piece.block]) for piece in pieces]
            index, number = index + 1, -1
        for key, block in wanted:
            self._blocks.want(key, block)


def _nothing(local: ReadResult, next_offset: int) -> ReadResult:
    return ReadResult(ReadStatus.NO_MATCHED_MESSAGE, next_offset, local.min_offset, local.max_offset)


def _is_internal(topic: str) -> bool:
    """Brokers read these topics themselves, and none of what they once had."""
    return topic in names.SYSTEM_TOPICS or names.is_kept_by_brokers(topic)


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
