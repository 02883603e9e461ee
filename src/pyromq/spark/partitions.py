"""Spark's partitions of a read, each the work of one task: a span of offsets, or several short ones."""

from collections.abc import Iterable, Sequence

from pyspark.sql.datasource import InputPartition

from pyromq.spark.options import ReadOptions
from pyromq.spark.queues import Span, split_spans

TASK_MESSAGES = 10_000
"""Short spans are joined up to this number of messages: a task costs more than it takes to read them."""

FEW_TASKS = 32
"""This number of tasks is no burden, and work on rows is shared by as many cores."""

OPENING_MESSAGES = 100
"""The number of messages that can be read in the time in which the first one of a queue is found."""


class SpansPartition(InputPartition):
    def __init__(self, spans: Sequence[Span]) -> None:
        super().__init__(", ".join(map(str, spans)))
        self.spans = spans


def partitions_of(spans: Iterable[Span], options: ReadOptions) -> list[InputPartition]:
    pieces = split_spans(spans, options.min_partitions, options.max_records_per_partition)
    if options.min_partitions is not None:
        groups = [[piece] for piece in pieces]
    else:
        groups = joined(pieces, min(options.max_records_per_partition or TASK_MESSAGES, TASK_MESSAGES))
    if options.max_partitions is not None and len(groups) > options.max_partitions:
        groups = shared(groups, options.max_partitions)
    return [SpansPartition(group) for group in groups]


def joined(pieces: Sequence[Span], target: int) -> list[list[Span]]:
    """Neighbours together, as long as they have no more messages than the target and tasks are not few."""
    if len(pieces) <= FEW_TASKS:
        return [[piece] for piece in pieces]
    costs = [piece.size + OPENING_MESSAGES for piece in pieces]
    capacity = min(target, sum(costs) // FEW_TASKS)
    groups: list[list[Span]] = []
    room = 0
    for piece, cost in zip(pieces, costs, strict=True):
        if cost > room:
            groups.append([])
            room = capacity
        groups[-1].append(piece)
        room -= cost
    return groups


def shared(groups: Sequence[list[Span]], most: int) -> list[list[Span]]:
    """The same spans in `most` groups of about equal size: the largest first, each to the smallest group."""
    sizes = dict.fromkeys(range(most), 0)
    shares: list[list[Span]] = [[] for _ in sizes]
    for group in sorted(groups, key=lambda group: -sum(span.size for span in group)):
        smallest = min(sizes, key=lambda index: sizes[index])
        shares[smallest] += group
        sizes[smallest] += sum(span.size for span in group)
    return shares
