"""Pops in order: a queue is held by its last pop until that is acknowledged, or visible again."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.support.popped_messages import PopBench, Popped, bodies, pop_bench, popped_in

from pyromq.protocol.catalogue import RawAnswer
from pyromq.protocol.pop_receipt import decode_order_counts


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
