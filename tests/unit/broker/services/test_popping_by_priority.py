"""Priorities: a message with a priority is in the queue of that number, and higher ones are popped first."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.support.popped_messages import GROUP, TOPIC, PopBench, bodies, pop_bench


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[PopBench]:
    # The dice would let other topics begin with queue 1.
    with pop_bench(tmp_path, dice=81) as bench:
        config = bench.parts.topics.get(TOPIC)
        assert config is not None
        config.read_queue_nums = config.write_queue_nums = 4
        config.attributes = {"message.type": "PRIORITY"}
        for queue_id in (0, 2, 1, 3, 2):
            bench.send(b"p%d-%d" % (queue_id, bench.store.queues.max_offset(TOPIC, queue_id)), queue_id)
        yield bench


def one_by_one(bench: PopBench, count: int = 5) -> list[bytes]:
    return [body for _ in range(count) for body in bodies(bench.pop(max_msg_nums=1))]


async def test_messages_of_the_highest_priority_are_popped_first(bench: PopBench) -> None:
    assert one_by_one(bench) == [b"p3-0", b"p2-0", b"p2-1", b"p1-0", b"p0-0"]


async def test_the_lowest_number_may_be_the_highest_priority(bench: PopBench) -> None:
    bench.parts.change(priorityOrderAsc="false")
    assert one_by_one(bench) == [b"p0-0", b"p1-0", b"p2-0", b"p2-1", b"p3-0"]


async def test_a_group_may_let_some_pops_look_elsewhere(bench: PopBench) -> None:
    group = bench.parts.groups.get(GROUP)
    assert group is not None
    group.attributes = {"priority.factor": "81"}
    assert one_by_one(bench, 1) == [b"p1-0"]
    group.attributes = {"priority.factor": "82"}
    assert one_by_one(bench, 1) == [b"p3-0"]


async def test_retries_wait_until_everything_new_is_popped(tmp_path: Path) -> None:
    with pop_bench(tmp_path, dice=10) as bench:  # other topics look for retries first
        config = bench.parts.topics.get(TOPIC)
        assert config is not None
        config.attributes = {"message.type": "PRIORITY"}
        bench.send(b"old")
        bench.pop(invisible_time=1000)
        bench.pass_time(3000)
        bench.send(b"new", 1)
        assert one_by_one(bench, 2) == [b"new", b"old"]


async def test_a_pop_in_order_does_not_look_at_priorities(bench: PopBench) -> None:
    assert bodies(bench.pop(max_msg_nums=1, order=True)) == [b"p1-0"]
