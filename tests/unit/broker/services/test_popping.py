"""Pops: which messages a group gets, what it must do about them, and what happens if it does not."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.support.broker_parts import FakeChannel, caller_on, refusal
from tests.support.popped_messages import GROUP, TOPIC, PopBench, bodies, pop_bench, popped_in

from pyromq.broker.flow.popping.popper import Popper
from pyromq.clock import ManualClock
from pyromq.protocol import names
from pyromq.protocol.catalogue import RawAnswer
from pyromq.protocol.codes import ResponseCode
from pyromq.protocol.requests.popping import WaitForMessage

RETRIES, NEW_RETRIES = names.pop_retry_topics(TOPIC, GROUP)
DEAD_LETTERS = names.dlq_topic(GROUP)


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[PopBench]:
    with pop_bench(tmp_path) as bench:
        yield bench


async def test_popped_messages_are_hidden_from_other_members(bench: PopBench) -> None:
    for number in range(3):
        bench.send(b"m%d" % number, number % 2)
    assert sorted(bodies(bench.pop())) == [b"m0", b"m1", b"m2"]
    assert bench.pop() == []


async def test_acknowledged_messages_never_come_back(bench: PopBench) -> None:
    bench.send(b"a")
    bench.send(b"b")
    for popped in bench.pop():
        bench.ack(popped)
    bench.pass_time(60_000)
    assert bench.pop() == []
    assert bench.messages(RETRIES) == []


async def test_what_is_not_acknowledged_comes_back_when_its_time_is_over(bench: PopBench) -> None:
    bench.send(b"kept")
    bench.send(b"done")
    kept, done = bench.pop()
    bench.ack(done)
    bench.pass_time(9_900, 100)
    assert bench.pop() == []
    bench.pass_time(200, 100)
    (again,) = bench.pop()
    assert (again.body, again.message.topic, again.message.reconsume_times) == (b"kept", TOPIC, 1)
    assert again.message.get("1ST_POP_TIME") == str(kept.receipt.pop_time_ms)
    bench.ack(again)
    bench.pass_time(60_000)
    assert bench.pop() == []


async def test_a_message_that_fails_too_often_is_a_dead_letter(bench: PopBench) -> None:
    config = bench.parts.groups.get(GROUP)
    assert config is not None
    config.retry_max_times = 2
    bench.send(b"bad")
    for times in range(3):
        (popped,) = bench.pop(invisible_time=1000)
        assert popped.message.reconsume_times == times
        bench.pass_time(2000)
    assert bench.pop() == []
    (dead,) = bench.messages(DEAD_LETTERS)
    assert (bytes(dead.body), dead.reconsume_times) == (b"bad", 3)
    assert dead.get("DLQ_ORIGIN_TOPIC") == TOPIC
    assert dead.get("DLQ_ORIGIN_MESSAGE_ID") == "bad"


async def test_a_longer_time_hides_a_message_for_longer(bench: PopBench) -> None:
    bench.send(b"slow")
    (popped,) = bench.pop()
    bench.pass_time(8_000)
    changed = bench.change(popped, 30_000)
    assert changed.receipt.pop_time_ms == bench.clock.now_ms()
    bench.pass_time(29_000)
    assert bench.pop() == []
    bench.pass_time(1_500)
    assert bodies(bench.pop()) == [b"slow"]


async def test_a_changed_receipt_does_not_deliver_a_second_time(bench: PopBench) -> None:
    bench.send(b"once")
    (popped,) = bench.pop()
    bench.change(popped, 20_000)
    bench.change(popped, 15_000)  # by the old receipt: the first answer was lost
    assert len(bench.changed) == 2
    bench.pass_time(60_000)
    assert bodies(bench.pop()) == [b"once"]
    bench.pass_time(5_000)
    assert bench.pop() == []


async def test_a_changed_receipt_still_acknowledges(bench: PopBench) -> None:
    bench.send(b"done")
    (popped,) = bench.pop()
    bench.change(popped, 20_000)
    bench.ack(popped)
    bench.pass_time(60_000)
    assert bench.pop() == []


@pytest.mark.parametrize("is_killed", [False, True])
async def test_a_changed_receipt_is_known_after_a_restart(tmp_path: Path, is_killed: bool) -> None:
    clock = ManualClock()
    with pop_bench(tmp_path, clock) as bench:
        bench.send(b"done")
        bench.send(b"again")
        done, again = bench.pop(invisible_time=30_000)
        bench.change(bench.change(done, 500), 20_000)  # the first of them does not wait for its time
        bench.change(again, 20_000)
        if is_killed:
            bench.store.abandon()
    with pop_bench(tmp_path, clock) as bench:
        assert len(bench.changed) == 3
        bench.pass_time(1000)
        bench.ack(done)
        bench.change(again, 1000)
        bench.pass_time(3000)
        assert bodies(bench.pop(invisible_time=60_000)) == [b"again"]
        bench.pass_time(50_000)
        assert bench.pop() == []


async def test_a_receipt_whose_time_is_over_changes_nothing(bench: PopBench) -> None:
    bench.send(b"late")
    (popped,) = bench.pop(invisible_time=1000)
    bench.pass_time(1500)
    refused = refusal(lambda: bench.change(popped, 5000))
    assert refused.code == ResponseCode.NO_MESSAGE
    assert bodies(bench.pop()) == [b"late"]
    bench.pass_time(8000)
    assert bench.pop() == []


async def test_a_change_within_the_same_millisecond_does_not_lose_the_message(bench: PopBench) -> None:
    bench.send(b"quick")
    (popped,) = bench.pop(max_msg_nums=1)
    changed = bench.change(popped, 10_000)
    assert changed.receipt.pop_time_ms == popped.receipt.pop_time_ms + 1
    bench.pass_time(15_000)
    assert bodies(bench.pop()) == [b"quick"]


async def test_a_pop_waits_for_a_message_and_takes_it(bench: PopBench) -> None:
    waiting = bench.ask(poll_time=10_000)
    assert isinstance(waiting, asyncio.Future)
    bench.send(b"new")
    assert bodies(popped_in(await waiting)) == [b"new"]
    assert bench.held.held_count == 0


@pytest.mark.parametrize("is_new_name", [False, True])
async def test_a_waiting_pop_wakes_for_a_retry(tmp_path: Path, is_new_name: bool) -> None:
    with pop_bench(tmp_path, broker={"retry_topic_v2": is_new_name}) as bench:
        bench.send(b"again")
        bench.pop(invisible_time=1000)
        waiting = bench.ask(poll_time=30_000)
        assert isinstance(waiting, asyncio.Future)
        bench.pass_time(1100, 100)
        (popped,) = popped_in(await waiting)
        assert popped.stored_in == (NEW_RETRIES if is_new_name else RETRIES)


async def test_one_message_wakes_one_pop_and_two_wake_two(bench: PopBench) -> None:
    waiting = [bench.ask(poll_time=10_000, max_msg_nums=1) for _ in range(3)]
    assert all(isinstance(each, asyncio.Future) for each in waiting)
    bench.send(b"a")
    assert bench.held.held_count == 2
    bench.send(b"b")
    assert bench.held.held_count == 1
    found = [bodies(popped_in(each.result())) for each in waiting[:2]]  # type: ignore[union-attr]
    assert found == [[b"a"], [b"b"]]


async def test_a_new_master_gives_nothing_away_that_another_one_may_lack(bench: PopBench) -> None:
    durability, store = bench.parts.durability, bench.parts.store
    bench.send(b"m")
    durability.hide_unconfirmed()
    assert bench.pop() == []
    durability.replicated(store.log.end)
    durability.replicated(None)  # so that the answer need not wait for a replica
    assert bodies(bench.pop()) == [b"m"]


async def test_a_pop_of_a_closed_connection_takes_nothing(bench: PopBench) -> None:
    channel = FakeChannel()
    bench.ask(channel, poll_time=10_000)
    channel.is_open = False
    second = bench.ask(poll_time=10_000)
    bench.send(b"m")
    assert isinstance(second, asyncio.Future)
    assert bodies(popped_in(await second)) == [b"m"]


async def test_a_notice_that_cannot_be_looked_for_gets_the_error_and_breaks_nothing(
    bench: PopBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    wait = WaitForMessage(
        consumer_group=GROUP, topic=TOPIC, queue_id=-1, poll_time=9000, born_time=bench.clock.now_ms()
    )
    waiting = bench.popping.notify(wait, caller_on(FakeChannel()))
    assert isinstance(waiting, asyncio.Future)

    def fail(*_: object) -> bool:
        raise OSError("the disk is gone")

    monkeypatch.setattr(Popper, "has_message", fail)
    bench.send(b"m")
    with pytest.raises(OSError, match="the disk is gone"):
        await waiting
    assert bench.notices.held_count == 0


async def test_pops_of_a_consumer_that_leaves_its_group_end(bench: PopBench) -> None:
    channel = FakeChannel()
    leaving, staying = bench.ask(channel, poll_time=9000), bench.ask(poll_time=9000)
    assert isinstance(leaving, asyncio.Future)
    assert isinstance(staying, asyncio.Future)
    bench.held.release_member(channel, "another group")
    bench.held.release_member(channel, GROUP)
    assert (await leaving).code == ResponseCode.POLLING_TIMEOUT
    bench.send(b"for the one who stays")
    assert bodies(popped_in(await staying)) == [b"for the one who stays"]


async def test_too_many_waiting_pops_are_told_so(tmp_path: Path) -> None:
    with pop_bench(tmp_path, broker={"held_pops": 1}) as bench:
        for _ in range(2):
            assert isinstance(bench.ask(poll_time=10_000), asyncio.Future)
        answer = bench.ask(poll_time=10_000)
        assert isinstance(answer, RawAnswer)
        assert answer.code == ResponseCode.POLLING_FULL
        bench.held.release_all()


async def test_a_pop_that_may_not_wait_says_that_there_is_nothing(bench: PopBench) -> None:
    answer = bench.ask()
    assert isinstance(answer, RawAnswer)
    assert answer.code == ResponseCode.POLLING_TIMEOUT


async def test_tags_are_filtered_and_what_does_not_match_is_passed(bench: PopBench) -> None:
    bench.send(b"red", TAGS="red")
    bench.send(b"blue", TAGS="blue")
    bench.send(b"red2", TAGS="red")
    popped = bench.pop(exp="blue", exp_type="TAG")
    assert bodies(popped) == [b"blue"]
    assert bench.pop() == bench.pop(exp="red", exp_type="TAG") == []
    bench.pass_time(11_000)
    assert bodies(bench.pop(exp="blue", exp_type="TAG")) == [b"blue"]


async def test_checks(bench: PopBench) -> None:
    for changes, code in (
        ({"max_msg_nums": 33}, ResponseCode.INVALID_PARAMETER),
        ({"topic": "Missing"}, ResponseCode.TOPIC_NOT_EXIST),
        ({"queue_id": 7}, ResponseCode.INVALID_PARAMETER),
        ({"born_time": bench.clock.now_ms() - 501}, ResponseCode.POLLING_TIMEOUT),
        ({"exp": "a >", "exp_type": "SQL92"}, ResponseCode.SUBSCRIPTION_PARSE_FAILED),
    ):
        assert refusal(lambda changes=changes: bench.ask(**changes)).code == code, changes  # type: ignore[misc]


async def test_a_new_group_may_begin_with_the_newest_message(tmp_path: Path) -> None:
    with pop_bench(tmp_path, broker={"pop_young_queues_from_begin": False}) as bench:
        for number in range(3):
            bench.send(b"m%d" % number)
        assert bodies(bench.pop(init_mode=1, queue_id=0)) == [b"m2"]


async def test_the_limit_of_unacknowledged_messages_holds_a_queue(tmp_path: Path) -> None:
    with pop_bench(tmp_path, broker={"pop_threshold_enabled": True, "pop_threshold": 1}) as bench:
        for number in range(4):
            bench.send(b"m%d" % number)
        first = bench.pop(max_msg_nums=2)
        assert bench.pop() == []
        for popped in first:
            bench.ack(popped)
        assert bodies(bench.pop()) == [b"m2", b"m3"]


async def test_acknowledgements_that_arrive_together_are_one_record(bench: PopBench) -> None:
    for number in range(4):
        bench.send(b"m%d" % number)
    kept, *done = bench.pop()
    bench.dispatch()
    before = bench.store.queues.max_offset(names.TIMER_TOPIC, 0)
    answers = [bench.ask_to_ack(popped) for popped in (*done, done[0])]
    await asyncio.gather(*(each for each in answers if isinstance(each, asyncio.Future)))
    bench.dispatch()
    assert bench.store.queues.max_offset(names.TIMER_TOPIC, 0) == before + 1
    bench.pass_time(11_000)
    assert bodies(bench.pop()) == [kept.body]
