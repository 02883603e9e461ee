"""How the work of a read is cut into tasks: every message once, in few tasks, none of them much too large."""

from collections.abc import Callable

import pytest

from pyromq.spark.options import read_options
from pyromq.spark.partitions import FEW_TASKS, TASK_MESSAGES, SpansPartition, partitions_of
from pyromq.spark.queues import Queue, Span


def spans(*sizes: int) -> list[Span]:
    return [Span(Queue("Orders", "a", number), 5, 5 + size) for number, size in enumerate(sizes)]


def tasks(
    given: list[Span], record_bytes: Callable[[Queue, int], int] = lambda *_: 0, **options: str
) -> list[list[Span]]:
    base = {"namesrv": "a:1", "subscribe": "Orders"}
    found = []
    for partition in partitions_of(given, read_options(base | options, streaming=False), record_bytes):
        assert isinstance(partition, SpansPartition)
        found.append([span for span in partition.spans if isinstance(span, Span)])
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


def test_tasks_have_no_more_bytes_than_asked_for() -> None:
    sizes = {"Small": 100, "Large": 50_000}
    given = [Span(Queue(topic, "a", number), 5, 905) for topic in sizes for number in range(40)]
    sampled: list[str] = []

    def record_bytes(queue: Queue, offset: int) -> int:
        assert offset == 5
        sampled.append(queue.topic)
        return sizes[queue.topic]

    found = tasks(given, record_bytes, maxBytesPerPartition="10m")
    assert sorted(sampled) == sorted(sizes), "a sample for each topic"
    of_task = [sum(span.size * sizes[span.queue.topic] for span in group) for group in found]
    assert max(of_task) <= 10 * 1024 * 1024
    assert len(found) <= 5 * 40 + 5, "40 queues of 45 MB in five tasks each, and 40 of 90 KB in few"


def test_a_message_that_is_larger_than_a_task_may_be_is_a_task_of_its_own() -> None:
    found = tasks(spans(3, 0), lambda *_: 5_000_000, maxBytesPerPartition="1m")
    assert [messages(group) for group in found] == [1, 1, 1]
