"""Pops over real sockets. Time is counted by a clock that the test moves; the broker looks at it often."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.support.broker_cluster import GROUP, TOPIC, Bench, consumer
from tests.support.popped_messages import Popped, batch_ack, bodies, popped_in

from pyromq.broker.services import reviving, timers
from pyromq.clock import ManualClock
from pyromq.protocol import names
from pyromq.protocol.catalogue import RawAnswer
from pyromq.protocol.codes import ResponseCode
from pyromq.protocol.frame import HeaderForm
from pyromq.protocol.pop_receipt import encode_pop_receipt
from pyromq.protocol.requests.membership import MessageModel
from pyromq.protocol.requests.popping import (
    AckMessage,
    AckMessages,
    GetMessageRequestModes,
    GetPollingInfo,
    MessageRequestMode,
    PeekMessage,
    PopMessage,
    PopMessageAnswer,
    QueryAssignment,
    QueryAssignmentRequestBody,
    SetMessageRequestMode,
    SetMessageRequestModeRequestBody,
    WaitForMessage,
)


@pytest.fixture(autouse=True)
def _frequent_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timers, "_MAX_WAIT_S", 0.01)
    monkeypatch.setattr(reviving, "_MAX_WAIT_S", 0.01)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
async def bench(tmp_path: Path, clock: ManualClock) -> AsyncIterator[Bench]:
    async with Bench(tmp_path, HeaderForm.JSON, clock, store={"timer_log_file_bytes": 4096}) as running:
        await running.client.create_topic(queues=2)
        yield running


def pop(clock: ManualClock, poll_ms: int = 0, **changes: object) -> PopMessage:
    fields = {
        "consumer_group": GROUP,
        "topic": TOPIC,
        "queue_id": -1,
        "max_msg_nums": 32,
        "invisible_time": 10_000,
        "poll_time": poll_ms,
        "born_time": clock.now_ms(),
        "init_mode": 0,
    }
    return PopMessage(**fields | changes)  # type: ignore[arg-type]


def found(answer: PopMessageAnswer) -> list[Popped]:
    ext = {
        "popTime": str(answer.pop_time),
        "invisibleTime": str(answer.invisible_time),
        "reviveQid": str(answer.revive_qid),
        "startOffsetInfo": answer.start_offset_info or "",
    }
    return popped_in(RawAnswer(answer.body, ext))


async def test_a_waiting_pop_gets_a_message_and_what_is_not_acknowledged_again(
    bench: Bench, clock: ManualClock
) -> None:
    waiting = asyncio.create_task(bench.client.call(pop(clock, 15_000)))
    count = GetPollingInfo(consumer_group=GROUP, topic=TOPIC, queue_id=-1)
    while not (await bench.client.call(count)).polling_num:
        pass
    await bench.client.send(b"first")
    (first,) = found(await waiting)
    assert first.body == b"first"
    await bench.client.send(b"second")
    (second,) = found(await bench.client.call(pop(clock)))
    await bench.client.call(
        AckMessage(
            consumer_group=GROUP,
            topic=TOPIC,
            queue_id=second.receipt.queue_id,
            extra_info=encode_pop_receipt(second.receipt),
            offset=second.message.queue_offset,
        )
    )
    again = asyncio.create_task(bench.client.call(pop(clock, 30_000)))
    while not (await bench.client.call(count)).polling_num:
        pass
    for _ in range(11):
        clock.advance(1)
        await asyncio.sleep(0.01)
    (retried,) = found(await again)
    assert (retried.body, retried.message.reconsume_times) == (b"first", 1)
    nothing = await bench.client.call(pop(clock))
    assert nothing.code == ResponseCode.POLLING_TIMEOUT


async def test_many_are_acknowledged_at_once(bench: Bench, clock: ManualClock) -> None:
    for number in range(3):
        await bench.client.send(b"m%d" % number)
    popped = found(await bench.client.call(pop(clock, invisible_time=2000)))
    first, _, third = (each.message.queue_offset for each in popped)
    body = batch_ack(popped[0].receipt, first, third, group=GROUP)
    await bench.client.call(AckMessages(body=body))
    waiting = asyncio.create_task(bench.client.call(pop(clock, 30_000)))
    for _ in range(4):
        clock.advance(1)
        await asyncio.sleep(0.01)
    assert bodies(found(await waiting)) == [b"m1"]


async def test_peeking_and_notices_leave_the_messages(bench: Bench, clock: ManualClock) -> None:
    wait = WaitForMessage(
        consumer_group=GROUP, topic=TOPIC, queue_id=-1, poll_time=15_000, born_time=clock.now_ms()
    )
    waiting = asyncio.create_task(bench.client.call(wait))
    await asyncio.sleep(0)
    await bench.client.send(b"m")
    assert (await waiting).has_msg
    peek = PeekMessage(consumer_group=GROUP, topic=TOPIC, queue_id=-1, max_msg_nums=8)
    for _ in range(2):
        assert (await bench.client.call(peek)).body
    assert bodies(found(await bench.client.call(pop(clock)))) == [b"m"]
    assert (await bench.client.call(peek)).code == ResponseCode.PULL_NOT_FOUND


async def test_members_are_told_what_to_pop(bench: Bench) -> None:
    await bench.client.heartbeat(consumer())
    question = QueryAssignment(
        body=QueryAssignmentRequestBody(
            client_id="c1",
            consumer_group=GROUP,
            message_model=MessageModel.CLUSTERING,
            strategy_name="AVG",
            topic=TOPIC,
        )
    )
    pulled = (await bench.client.call(question)).body.message_queue_assignments
    assert sorted(each.message_queue.queue_id for each in pulled if each.message_queue) == [0, 1]
    assert {each.mode for each in pulled} == {MessageRequestMode.PULL}
    mode = SetMessageRequestModeRequestBody(consumer_group=GROUP, topic=TOPIC, mode=MessageRequestMode.POP)
    await bench.client.call(SetMessageRequestMode(body=mode))
    (popped,) = (await bench.client.call(question)).body.message_queue_assignments
    assert popped.mode is MessageRequestMode.POP
    assert popped.message_queue is not None
    assert popped.message_queue.queue_id == -1
    modes = (await bench.client.call(GetMessageRequestModes())).body.message_request_mode_map
    assert modes[TOPIC][GROUP].mode is MessageRequestMode.POP
    retry = SetMessageRequestModeRequestBody(consumer_group=GROUP, topic=names.retry_topic(GROUP))
    refused = await bench.client.refusal(SetMessageRequestMode(body=retry))
    assert refused.code == ResponseCode.NO_PERMISSION
