"""The messages of a part of the tier, as tasks read them: exactly those, in order, or an error that says
which are not there.
"""

import os
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache, partial
from typing import Final

from pyromq.spark.cluster import SparkCluster
from pyromq.spark.fetch import CHUNK_BYTES, CHUNK_MESSAGES, Chunk, report, report_loss
from pyromq.spark.options import ReadOptions
from pyromq.spark.queues import Span
from pyromq.spark.tier_parts import TierPart
from pyromq.tier.footers import read_footer
from pyromq.tier.manifest import SegmentEntry
from pyromq.tier.manifests import Manifests
from pyromq.tier.objects import ObjectMissing, Objects
from pyromq.tier.open_segment import OpenSegment, RunPart
from pyromq.tier.opening import open_objects
from pyromq.tier.segment_format import BadObject, Footer, Run

_PLACES: Final = 64

_Read = Callable[[OpenSegment, Run, int, int], Iterable[RunPart]]


@lru_cache(maxsize=_PLACES)
def _objects_of(process: int, place: str, cluster: str, broker: str) -> Objects:
    """A store has connections and threads that do not survive a fork, so each process opens its own."""
    return open_objects(place, cluster, broker, key="tier")


class _Patient:
    """Reads again while the store is away, as often as the options allow."""

    def __init__(self, objects: Objects, cluster: SparkCluster) -> None:
        self._objects = objects
        self._cluster = cluster

    def read(self, name: str, start: int = 0, size_bytes: int | None = None) -> bytes:
        return self._cluster.persist("the tier", partial(self._objects.read, name, start, size_bytes))


class TierReader:
    def __init__(self, cluster: SparkCluster, options: ReadOptions) -> None:
        self._cluster = cluster
        self._options = options
        self._open: OpenSegment | None = None
        """The segment that was read last."""

    def __repr__(self) -> str:
        return f"<TierReader {self._options.tier}>"

    def chunks(self, part: TierPart) -> Iterator[Chunk]:
        bodies: list[memoryview] = []
        start = end = size_bytes = 0
        for piece in self._pieces(part, lambda segment, *run: segment.parts(*run)):
            is_full = size_bytes >= CHUNK_BYTES or end - start >= CHUNK_MESSAGES
            if bodies and (is_full or piece.start != end):
                yield Chunk(bodies, start, end)
                bodies, size_bytes = [], 0
            if not bodies:
                start = piece.start
            bodies.append(piece.records)
            size_bytes += len(piece.records)
            end = piece.end
        if bodies:
            yield Chunk(bodies, start, end)

    def spans(self, part: TierPart) -> Iterator[Span]:
        """Where the messages of a part are. No message is read."""
        for piece in self._pieces(part, lambda _, run, low, high: [RunPart(low, high, memoryview(b""))]):
            yield Span(part.queue, piece.start, piece.end)

    def _pieces(self, part: TierPart, read: _Read) -> Iterator[RunPart]:
        """All that `read` gives of the runs that have messages of the part."""
        at = part.start
        while True:
            try:
                segment = self._segment(part.entry, part)
                for run, low, high in _runs(segment.footer, part._replace(start=at)):
                    self._removed(part, at, low)
                    at = low
                    for each in read(segment, run, low, high):
                        at = each.end
                        if each.problem:
                            self._damaged(part, each.start, each.end, each.problem)
                        else:
                            yield each
                self._removed(part, at, part.end)
                return
            except BadObject as problem:
                self._damaged(part, at, part.end, str(problem))
                return
            except ObjectMissing:
                entry = self._entry_now(part)
                if entry is None or entry == part.entry:
                    why = f"{self._name(part)} is missing"
                    report_loss(part.queue, at, part.end, why, fails=self._options.fail_on_data_loss)
                    return
                part = part._replace(entry=entry)  # messages were removed from it meanwhile

    def _segment(self, entry: SegmentEntry, part: TierPart) -> OpenSegment:
        if self._open is None or self._open.entry != entry:
            objects = _Patient(self._objects(part), self._cluster)
            try:
                footer = read_footer(objects, entry)
            except BadObject:
                footer = read_footer(objects, entry)
            self._open = OpenSegment(objects, entry, footer)
        return self._open

    def _entry_now(self, part: TierPart) -> SegmentEntry | None:
        """The segment that has this part of the log now."""
        manifests = Manifests(self._objects(part), part.cluster, part.queue.broker, "")
        manifest = self._cluster.persist("the tier", manifests.read_newest)
        return manifest.covering(part.first_log) if manifest is not None else None

    def _objects(self, part: TierPart) -> Objects:
        assert self._options.tier is not None
        return _objects_of(os.getpid(), self._options.tier, part.cluster, part.queue.broker)

    def _name(self, part: TierPart) -> str:
        return f"{self._objects(part).place}/{part.entry.name}"

    def _removed(self, part: TierPart, start: int, end: int) -> None:
        if start < end:
            why = f"they were removed from {self._name(part)}"
            report_loss(part.queue, start, end, why, fails=self._options.fail_on_data_loss)

    def _damaged(self, part: TierPart, start: int, end: int, problem: str) -> None:
        what = f"offsets {start} to {end - 1} of {part.queue} cannot be read: {self._name(part)}: {problem}"
        report(what, fails=self._options.fail_on_data_loss)


def _runs(footer: Footer, part: TierPart) -> Iterator[tuple[Run, int, int]]:
    """The runs that have messages of a part, and which. A segment that was rewritten has the same ones at the
    same places of the log, perhaps with gaps."""
    for run in footer.runs:
        is_of_queue = (run.topic, run.queue_id) == (part.queue.topic, part.queue.queue_id)
        if is_of_queue and part.first_log <= run.first_log and run.last_log <= part.last_log:
            low, high = max(part.start, run.first_offset), min(part.end, run.end_offset)
            if low < high:
                yield run, low, high
