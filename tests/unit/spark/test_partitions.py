"""How the work of a read is cut into tasks: every message once, in few tasks, none of them much too large."""

import pytest

from pyromq.spark.options import read_options
from pyromq.spark.partitions import FEW_TASKS, TASK_MESSAGES, SpansPartition, partitions_of
from pyromq.spark.queues import Queue, Span


def spans(*sizes: int) -> list[Span]:
    return [Span(Queue("Orders", "a", number), 5, 5 + size) for number, size in enumerate(sizes)]


def tasks(given: list[Span], **options: str) -> list[list[Span]]:
    base = {"namesrv": "a:1", "subscribe": "Orders"}
    found = []
    for partition in partitions_of(given, read_options(base | options, streaming=False)):
        assert isinstance(partition, SpansPartition)
        found.append(list(partition.spans))
    covered = sorted((s.queue, offset) for group in found for s in group for offset in range(s.start, s.end))
    assert covered == sorted((s.queue, offset) for s in given for offset in range(s.start, s.end))
    return found


def messages(group: list[Span]) -> int:
    return sum(span.size for span in group)


def test_many_queues_with_few_messages_are_few_tasks() -> None:
    found = tasks(spans(*[22] * 1000))
    assert FEW_TASKS <= len(found) <= 2 * FEW_TASKS
    assert max(map(messages, found)) <= 2 * 22_000 // FEW_TASKS


def test_a_long_queue_is_a_task_of_its_own_and_short_ones_are_joined() -> None:
    found = tasks(spans(*[20] * 50, 300_000, *[20] * 50))
    assert [group for group in found if messages(group) >= 300_000] == [spans(*[0] * 50, 300_000)[50:]]
    assert len(found) <= 5
    assert max(messages(group) for group in found if messages(group) < 300_000) <= TASK_MESSAGES


def test_few_queues_are_not_joined() -> None:
    assert len(tasks(spans(*[1] * FEW_TASKS))) == FEW_TASKS
    assert tasks(spans(0, 0)) == []


@pytest.mark.parametrize("sizes", [[22] * 1000, [3] * 8, [50_000, 1, 1, 1]])
def test_there_are_no_more_tasks_than_asked_for(sizes: list[int]) -> None:
    found = tasks(spans(*sizes), maxPartitions="3")
    assert len(found) == 3
    assert max(map(messages, found)) <= max(max(sizes), sum(sizes) // 3 + 1000)


def test_the_other_limits_hold() -> None:
    assert len(tasks(spans(*[22] * 100), minPartitions="60")) == 100
    assert len(tasks(spans(*[22] * 100), minPartitions="150")) >= 150
    assert max(map(messages, tasks(spans(*[22] * 100), maxRecordsPerPartition="50"))) <= 50
