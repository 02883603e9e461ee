"""Messages that tasks read from the tier: how they are cut off from those of brokers, and shared by tasks."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final, NamedTuple

from pyromq.spark.queues import Queue, Span, cut

if TYPE_CHECKING:
    from pyromq.tier.index import TierSpan
    from pyromq.tier.manifest import SegmentEntry

TASK_BYTES: Final = 128 * 1024 * 1024
"""As much as Spark reads of files in a task."""
SMALL_TASK_BYTES: Final = 4 * 1024 * 1024
"""Smaller tasks do not pay, unless more of them were asked for."""


class TierPart(NamedTuple):
    """Messages of one queue that one segment has."""

    queue: Queue
    start: int
    end: int
    cluster: str
    entry: "SegmentEntry"
    first_log: int
    """Of the run in which they are, as is the last one: a queue may have several in a segment."""
    last_log: int
    size_bytes: int
    """Without compression; of a part of a run, about."""

    def __str__(self) -> str:
        return f"{self.queue}[{self.start},{self.end}) of {self.entry.name}"

    @property
    def size(self) -> int:
        return self.end - self.start

    def cut(self, most_bytes: int, most_messages: int) -> "list[TierPart]":
        by_size = max(self.size * most_bytes // max(self.size_bytes, 1), 1)
        pieces = cut(Span(self.queue, self.start, self.end), min(by_size, most_messages))
        return [
            self._replace(
                start=each.start, end=each.end, size_bytes=_share(self.size_bytes, each.size, self.size)
            )
            for each in pieces
        ]


def _share(size_bytes: int, messages: int, of: int) -> int:
    """Rounded up, so that shares are not less than the whole."""
    return -(-size_bytes * messages // of)


def split(
    span: Span, cluster: str, spans: "Iterable[TierSpan]", first: int
) -> tuple[list[TierPart], list[Span]]:
    """The parts of a span that the tier has, and the rest. `spans`: those of its queue in order; `first`: the
    first message that readers may see."""
    parts: list[TierPart] = []
    rest: list[Span] = []
    at = span.start
    for each in spans:
        low, high = max(at, each.first_offset, first), min(each.end_offset, span.end)
        if low >= high:
            continue
        if at < low:
            rest.append(Span(span.queue, at, low))
        size_bytes = _share(each.size_bytes, high - low, each.end_offset - each.first_offset)
        parts.append(
            TierPart(span.queue, low, high, cluster, each.segment, each.first_log, each.last_log, size_bytes)
        )
        at = high
    if at < span.end:
        rest.append(Span(span.queue, at, span.end))
    return parts, rest


def tier_tasks(
    parts: Iterable[TierPart],
    few_tasks: int,
    most_bytes: int | None,
    most_messages: int,
    least_tasks: int | None,
) -> list[list[Span | TierPart]]:
    """Parts for tasks of about equal sizes; those of one segment stay together."""
    parts = sorted(parts, key=_place)
    total = sum(each.size_bytes for each in parts)
    task_bytes = most_bytes or min(TASK_BYTES, max(SMALL_TASK_BYTES, total // few_tasks))
    if least_tasks is not None:
        task_bytes = max(min(task_bytes, total // least_tasks), 1)
    tasks: list[list[Span | TierPart]] = []
    room = messages = 0
    for part in parts:
        for piece in part.cut(task_bytes, most_messages):
            if piece.size_bytes > room or piece.size > messages:
                tasks.append([])
                room, messages = task_bytes, most_messages
            tasks[-1].append(piece)
            room -= piece.size_bytes
            messages -= piece.size
    return tasks


def _place(part: TierPart) -> tuple[str, int, Queue, int]:
    return part.queue.broker, part.entry.log_start, part.queue, part.start
