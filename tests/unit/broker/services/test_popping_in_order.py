"""Pops in order: a queue is held by its last pop until that is acknowledged, or visible again."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.support.broker_parts import caller_on
from tests.support.popped_messages import GROUP, TOPIC, PopBench, Popped, bodies, pop_bench, popped_in

from pyromq.broker.services.groups import Groups
from pyromq.broker.services.topics import Topics
from pyromq.protocol.catalogue import RawAnswer
from pyromq.protocol.pop_receipt import decode_order_counts
from pyromq.protocol.requests.groups import DeleteGroup
from pyromq.protocol.requests.topics import DeleteTopicFromBroker


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[PopBench]:
    with pop_bench(tmp_path) as bench:
        for number in range(4):
            bench.send(b"m%d" % number)
        yield bench


def pop(bench: PopBench, limit: int = 2, **changes: object) -> list[Popped]:
    return bench.pop(order=True, queue_id=0, max_msg_nums=limit, **changes)


async def test_a_queue_is_held_until_all_its_messages_are_acknowledged(bench: PopBench) -> None:
    first, second = pop(bench)
    assert pop(bench) == []
    bench.ack(second)
    assert pop(bench) == []
    bench.ack(first)
    assert bodies(pop(bench)) == [b"m2", b"m3"]


async def test_what_is_not_acknowledged_is_popped_again_in_place(bench: PopBench) -> None:
    first, _ = pop(bench)
    bench.ack(first)
    bench.pass_time(10_000)
    answer = bench.ask(order=True, queue_id=0, max_msg_nums=2)
    assert isinstance(answer, RawAnswer)
    assert bodies(popped_in(answer)) == [b"m1", b"m2"]
    counts = decode_order_counts(answer.ext["orderCountInfo"])
    assert counts == {("0", 0, 1): 1, ("0", 0, None): 0}


async def test_the_same_attempt_pops_the_same_messages_again(bench: PopBench) -> None:
    assert bodies(pop(bench, attempt_id="one")) == [b"m0", b"m1"]
    assert pop(bench, attempt_id="two") == []
    assert bodies(pop(bench, attempt_id="one")) == [b"m0", b"m1"]


async def test_a_waiting_pop_wakes_when_the_queue_is_acknowledged(bench: PopBench) -> None:
    held = pop(bench, 4)
    bench.send(b"next")
    waiting = bench.ask(order=True, queue_id=0, poll_time=30_000)
    assert isinstance(waiting, asyncio.Future)
    for popped in held:
        assert not waiting.done()
        bench.ack(popped)
    assert bodies(popped_in(await waiting)) == [b"next"]


async def test_a_waiting_pop_wakes_when_the_queue_is_visible_again(bench: PopBench) -> None:
    pop(bench, invisible_time=30)
    waiting = bench.ask(order=True, queue_id=0, poll_time=30_000)
    assert isinstance(waiting, asyncio.Future)
    bench.clock.advance(0.05)  # the loop's own clock wakes the pop
    assert bodies(popped_in(await waiting)) == [b"m0", b"m1", b"m2", b"m3"]


async def test_a_message_that_is_hidden_for_longer_holds_its_queue_for_longer(bench: PopBench) -> None:
    first, second = pop(bench)
    bench.ack(first)
    bench.pass_time(5_000)
    changed = bench.change(second, 20_000)
    assert changed.receipt.pop_time_ms == second.receipt.pop_time_ms
    bench.pass_time(19_000)
    assert pop(bench) == []
    bench.pass_time(1_000)
    assert bodies(pop(bench)) == [b"m1", b"m2"]


async def test_an_acknowledgement_of_an_earlier_pop_does_not_count(bench: PopBench) -> None:
    first, second = pop(bench)
    bench.pass_time(10_000)
    assert bodies(pop(bench)) == [b"m0", b"m1"]
    bench.ack(first)
    bench.ack(second)
    assert pop(bench) == []


async def test_held_queues_are_known_after_a_restart(tmp_path: Path) -> None:
    with pop_bench(tmp_path) as bench:
        bench.send(b"m")
        (popped,) = pop(bench)
        bench.popping.save_now()
        bench.tables.offsets.persist()
        clock = bench.clock
    with pop_bench(tmp_path, clock) as bench:
        assert pop(bench) == []
        bench.ack(popped)
        bench.send(b"next")
        assert bodies(pop(bench)) == [b"next"]


async def test_queues_that_are_gone_are_forgotten(bench: PopBench) -> None:
    pop(bench)
    orders = bench.tables.pop_orders
    orders.clean(bench.clock.now_ms(), lambda *_: 2)
    assert len(orders) == 1
    orders.clean(bench.clock.now_ms(), lambda *_: 0)
    assert len(orders) == 0


async def test_a_lost_table_skips_no_message_that_is_not_acknowledged(tmp_path: Path) -> None:
    with pop_bench(tmp_path) as bench:
        for number in range(4):
            bench.send(b"m%d" % number)
        first, second, third = pop(bench, 3)
        bench.tables.offsets.persist()
        clock = bench.clock
        bench.store.abandon()
    with pop_bench(tmp_path, clock) as bench:
        bench.ack(third)
        assert bodies(pop(bench, 4)) == [b"m0", b"m1", b"m2", b"m3"]
        bench.tables.pop_orders.clear(TOPIC, GROUP, 0)
        bench.ack(first)
        bench.ack(second)
        assert bodies(pop(bench, 4)) == [b"m2", b"m3"]


async def _forget(_: str) -> None:
    """Held requests are somebody else's."""


async def test_receipts_of_a_deleted_topic_skip_nothing_of_its_successor(bench: PopBench) -> None:
    parts, old = bench.parts, pop(bench, 3)
    topics = Topics(parts.live, parts.store, parts.tables, _forget, parts.context.slices)
    await topics.delete(DeleteTopicFromBroker(topic=TOPIC), caller_on())
    assert not len(parts.tables.pop_orders)
    parts.add_topic(TOPIC, 2)
    for number in range(5):
        bench.send(b"new%d" % number)
    for each in old:
        bench.ack(each)
    assert bodies(pop(bench, 5)) == [b"new%d" % number for number in range(5)]


async def test_receipts_of_a_deleted_group_skip_nothing_of_its_successor(bench: PopBench) -> None:
    parts, old = bench.parts, pop(bench, 3)
    groups = Groups(parts.tables, lambda _: None, parts.context.slices)
    await groups.delete(DeleteGroup(group_name=GROUP, clean_offset=True), caller_on())
    for each in old:
        bench.ack(each)
    assert bodies(pop(bench, 4)) == [b"m0", b"m1", b"m2", b"m3"]
