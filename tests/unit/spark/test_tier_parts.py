"""The seam: what the tier does not have of a span is left to brokers, and nothing is read twice."""

from collections.abc import Iterable

from hypothesis import given
from hypothesis import strategies as st

from pyromq.spark.partitions import FEW_TASKS
from pyromq.spark.queues import Queue, Span
from pyromq.spark.tier_parts import TierPart, split, tier_tasks
from pyromq.tier.index import TierSpan
from pyromq.tier.manifest import SegmentEntry
from pyromq.tier.names import segment_name

QUEUE = Queue("Orders", "broker-a", 0)
FILE_BYTES = 100_000


def entry(number: int) -> SegmentEntry:
    start = number * FILE_BYTES
    name = segment_name(start, 0, "0" * 64)
    return SegmentEntry(name, start, start + FILE_BYTES, 500, 100, 0, 0, "0" * 64, "0" * 64)


def spans_of(runs: list[tuple[int, int]]) -> list[TierSpan]:
    """A run in each segment: how many offsets are skipped before it, and how many messages it has."""
    found, at = [], 0
    for number, (gap, count) in enumerate(runs):
        start = number * FILE_BYTES
        found.append(
            TierSpan(entry(number), 0, at + gap, at + gap + count, start, start + count, 0, 0, 10 * count)
        )
        at += gap + count
    return found


def offsets(parts: Iterable[TierPart]) -> list[tuple[Queue, int]]:
    return sorted((each.queue, offset) for each in parts for offset in range(each.start, each.end))


RUNS = st.lists(st.tuples(st.sampled_from([0, 0, 0, 1, 7]), st.integers(1, 40)), max_size=8)


@given(runs=RUNS, start=st.integers(0, 60), size=st.integers(0, 200), first=st.integers(0, 80))
def test_each_offset_is_read_once_from_the_tier_if_it_is_there_and_else_from_brokers(
    runs: list[tuple[int, int]], start: int, size: int, first: int
) -> None:
    spans = spans_of(runs)
    parts, rest = split(Span(QUEUE, start, start + size), "C", spans, first)
    found: list[TierPart | Span] = [*parts, *rest]
    read = sorted(offset for each in found for offset in range(each.start, each.end))
    assert read == list(range(start, start + size))
    for part in parts:
        (run,) = (each for each in spans if each.segment == part.entry)
        assert max(run.first_offset, first) <= part.start < part.end <= run.end_offset
        assert (part.first_log, part.last_log) == (run.first_log, run.last_log)
    there = {offset for each in spans for offset in range(each.first_offset, each.end_offset)}
    assert not any(offset in there for each in rest for offset in range(max(each.start, first), each.end))


@given(
    sizes=st.lists(st.tuples(st.integers(0, 3), st.integers(1, 500), st.integers(1, 3000)), max_size=20),
    most_bytes=st.none() | st.integers(1, 100_000),
    most_messages=st.sampled_from([1 << 62, 1000, 30]),
    least=st.none() | st.integers(1, 40),
)
def test_tasks_share_the_messages_by_bytes_and_each_is_read_once(
    sizes: list[tuple[int, int, int]], most_bytes: int | None, most_messages: int, least: int | None
) -> None:
    """`sizes`: segments, messages, and bytes of each."""
    parts = [
        TierPart(Queue("Orders", "broker-a", number), 7, 7 + count, "C", entry(segment), 0, 1, count * size)
        for number, (segment, count, size) in enumerate(sizes)
    ]
    tasks = [
        [each for each in task if isinstance(each, TierPart)]
        for task in tier_tasks(parts, FEW_TASKS, most_bytes, most_messages, least)
    ]
    read = sorted(
        (each.queue, offset) for task in tasks for each in task for offset in range(each.start, each.end)
    )
    assert read == sorted((each.queue, offset) for each in parts for offset in range(each.start, each.end))
    largest = max((size for _, _, size in sizes), default=0)
    for task in tasks:
        assert sum(each.size for each in task) <= most_messages
        if most_bytes is not None and len(task) > 1:
            assert sum(each.size_bytes for each in task) <= most_bytes
        if most_bytes is not None:
            assert sum(each.size_bytes for each in task) <= most_bytes + largest
    if least is not None:
        assert len(tasks) >= min(least, sum(count for _, count, _ in sizes))
    places = [each.entry.log_start for task in tasks for each in task]
    assert places == sorted(places)
