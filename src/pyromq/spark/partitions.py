"""Spark's partitions of a read, each the work of one task: a span of offsets, or several short ones."""

from collections.abc import Callable, Iterable, Mapping, Sequence

from pyspark.sql.datasource import InputPartition

from pyromq.spark.options import ReadOptions
from pyromq.spark.queues import LARGEST, Queue, Span, cut, split_spans
from pyromq.spark.tier_parts import TierPart, tier_tasks

TASK_MESSAGES = 10_000
"""Short spans are joined up to this number of messages: a task costs more than it takes to read them."""

FEW_TASKS = 32
"""This number of tasks is not a burden, and work on rows is shared by as many cores."""

OPENING_MESSAGES = 100
"""The number of messages that can be read in the time in which the first one of a queue is found."""


class SpansPartition(InputPartition):
    def __init__(self, spans: Sequence[Span | TierPart]) -> None:
        super().__init__(", ".join(map(str, spans)))
        self.spans = spans


def partitions_of(
    spans: Iterable[Span],
    options: ReadOptions,
    record_bytes: Callable[[Queue, int], int],
    parts: Sequence[TierPart] = (),
) -> list[InputPartition]:
    """`record_bytes`: the mean size of some messages of a queue, from an offset on. `parts`: what comes
    from the tier."""
    spans = [span for span in spans if span.size]
    most_by_topic: dict[str, int] = {}
    if options.max_bytes_per_partition is not None:
        for topic, longest in {span.queue.topic: span for span in sorted(spans, key=_size)}.items():
            size_bytes = record_bytes(longest.queue, longest.start)
            most_by_topic[topic] = max(options.max_bytes_per_partition // max(size_bytes, 1), 1)
        spans = [piece for span in spans for piece in cut(span, most_by_topic[span.queue.topic])]
    pieces = split_spans(spans, options.min_partitions, options.max_records_per_partition)
    groups: list[list[Span | TierPart]] = []
    if options.min_partitions is not None:
        groups += [[piece] for piece in pieces]
    else:
        target = min(options.max_records_per_partition or TASK_MESSAGES, TASK_MESSAGES)
        groups += joined(pieces, target, most_by_topic)
    most = options.max_records_per_partition or LARGEST
    limits = FEW_TASKS, options.max_bytes_per_partition, most, options.min_partitions
    groups += tier_tasks(parts, *limits)
    if options.max_partitions is not None and len(groups) > options.max_partitions:
        groups = shared(groups, options.max_partitions)
    return [SpansPartition(group) for group in groups]


def _size(span: Span | TierPart) -> int:
    return span.size


def joined(
    pieces: Sequence[Span], target: int, most_by_topic: Mapping[str, int]
) -> list[list[Span | TierPart]]:
    """Neighbours together, as long as they have no more messages than the target and tasks are not few.

    `most_by_topic` has the topics of which a task may have fewer: their messages count for more.
    """
    if len(pieces) <= FEW_TASKS:
        return [[piece] for piece in pieces]
    costs = [
        piece.size * target // min(most_by_topic.get(piece.queue.topic, target), target) + OPENING_MESSAGES
        for piece in pieces
    ]
    capacity = min(target, sum(costs) // FEW_TASKS)
    groups: list[list[Span | TierPart]] = []
    room = 0
    for piece, cost in zip(pieces, costs, strict=True):
        if cost > room:
            groups.append([])
            room = capacity
        groups[-1].append(piece)
        room -= cost
    return groups


def shared(groups: Sequence[list[Span | TierPart]], most: int) -> list[list[Span | TierPart]]:
    """The same spans in `most` groups of about equal size: the largest first, each to the smallest group."""
    sizes = dict.fromkeys(range(most), 0)
    shares: list[list[Span | TierPart]] = [[] for _ in sizes]
    for group in sorted(groups, key=lambda group: -sum(map(_size, group))):
        smallest = min(sizes, key=lambda index: sizes[index])
        shares[smallest] += group
        sizes[smallest] += sum(map(_size, group))
    return shares
