"""Timed messages and recalls over real sockets, in both header forms.

Time is counted by a clock that the test moves; the broker is made to look at it often.
"""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.support.broker_cluster import BROKER_NAME, PRODUCERS, TOPIC, Bench, message

from pyromq.broker.services import timers
from pyromq.clock import ManualClock
from pyromq.protocol.codes import ResponseCode
from pyromq.protocol.frame import HeaderForm
from pyromq.protocol.message_id import RecallHandle, decode_recall_handle, encode_recall_handle
from pyromq.protocol.record import StoredMessage
from pyromq.protocol.requests.inspection import GetBrokerRuntimeInfo
from pyromq.protocol.requests.sending import RecallMessage
from pyromq.protocol.requests.settings import UpdateBrokerConfig
from pyromq.protocol.requests.upkeep import GetTimerCheckpoint, GetTimerMetrics
from pyromq.store.timers.timer_checkpoint import decode_timer_checkpoint

HOLD_MS = 15_000


@pytest.fixture(autouse=True)
def _frequent_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timers, "_MAX_WAIT_S", 0.01)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture(params=HeaderForm, ids=lambda form: form.name)
async def bench(tmp_path: Path, clock: ManualClock, request: pytest.FixtureRequest) -> AsyncIterator[Bench]:
    small = {"timer_log_file_bytes": 4096}
    async with Bench(tmp_path, request.param, clock, store=small, recalls=True) as running:
        await running.client.create_topic()
        yield running


def at(clock: ManualClock, in_ms: int, key: str = "k") -> dict[str, str]:
    return {"TIMER_DELIVER_MS": str(clock.now_ms() + in_ms), "UNIQ_KEY": key}


async def arrival(bench: Bench, offset: int = 0) -> StoredMessage:
    """The message at an offset, waited for."""
    (found,) = (await bench.client.pull(offset, hold_ms=HOLD_MS, max_msg_nums=1)).messages
    return found


async def figures(bench: Bench) -> dict[str, str]:
    table = (await bench.client.call(GetBrokerRuntimeInfo())).body.table
    return {name: value for name, value in table.items() if name.startswith("timer")}


async def until(bench: Bench, name: str, value: str) -> None:
    while (await figures(bench))[name] != value:
        pass


def recall(handle: str, topic: str = TOPIC) -> RecallMessage:
    return RecallMessage(producer_group=PRODUCERS, topic=topic, recall_handle=handle)


async def test_a_timed_message_comes_in_its_time(bench: Bench, clock: ManualClock) -> None:
    start_ms = clock.now_ms()
    answer = await bench.client.send(b"later", properties=at(clock, 2500))
    assert (answer.queue_id, answer.queue_offset) == (0, 0)
    clock.advance(2.499)
    await until(bench, "timerOffsetBehind", "0")
    await bench.client.send(b"plain")
    clock.advance(0.001)
    assert (await arrival(bench)).body == b"plain"
    later = await arrival(bench, 1)
    assert (later.body, later.store_timestamp) == (b"later", start_ms + 2500)
    assert later.get("TIMER_OUT_MS") == str(start_ms + 2000)


async def test_a_handle_recalls_a_message(bench: Bench, clock: ManualClock) -> None:
    start_ms = clock.now_ms()
    sent = [
        await bench.client.send(body, properties=at(clock, 5500, body.decode()))
        for body in (b"a", b"b", b"c")
    ]
    handle = sent[1].recall_handle
    assert handle is not None
    assert decode_recall_handle(handle) == RecallHandle(TOPIC, BROKER_NAME, start_ms + 5001, "b")
    answer = await bench.client.call(recall(handle))
    assert (answer.msg_id, answer.msg_region) == ("b", "DefaultRegion")
    clock.advance(5.5)
    assert [(await arrival(bench, offset)).body for offset in (0, 1)] == [b"a", b"c"]
    clock.advance(1)
    await until(bench, "timerCongestNum", "0")


async def test_a_message_recalls_none_of_another_topic(bench: Bench, clock: ManualClock) -> None:
    await bench.client.create_topic("Others")
    await bench.client.send(b"kept", properties=at(clock, 5500))
    forged = {**at(clock, 5500, "other"), "TIMER_DEL_UNIQKEY": f"{TOPIC}+k"}
    await bench.client.send(b"forged", topic="Others", properties=forged)
    clock.advance(5.5)
    assert (await arrival(bench)).body == b"kept"


async def test_only_a_timed_message_has_a_handle(bench: Bench, clock: ManualClock) -> None:
    assert (await bench.client.send(b"plain")).recall_handle is None
    assert (await bench.client.send(b"past", properties=at(clock, -5))).recall_handle is None
    assert (await bench.client.send(b"delayed", properties={"DELAY": "3"})).recall_handle is None


async def test_a_recall_that_cannot_be_is_refused(bench: Bench, clock: ManualClock) -> None:
    def handle(topic: str = TOPIC, broker: str = BROKER_NAME, in_ms: int = 5000) -> str:
        return encode_recall_handle(RecallHandle(topic, broker, clock.now_ms() + in_ms, "k"))

    illegal = ResponseCode.ILLEGAL_OPERATION
    for request, code in (
        (recall("no handle"), illegal),
        (recall(handle(topic="Others")), illegal),
        (recall(handle(broker="broker-b")), illegal),
        (recall(handle(in_ms=0)), illegal),
        (recall(handle(in_ms=3 * 86_400_000)), illegal),
        (recall(handle(topic="Nothing"), "Nothing"), ResponseCode.TOPIC_NOT_EXIST),
    ):
        assert (await bench.client.refusal(request)).code == code, request
    await bench.client.call(UpdateBrokerConfig(body="recallMessageEnable=false"))
    assert (await bench.client.refusal(recall(handle()))).code == ResponseCode.NO_PERMISSION


async def test_a_time_too_far_away_is_refused(bench: Bench, clock: ManualClock) -> None:
    await bench.client.call(UpdateBrokerConfig(body="timerMaxDelaySec=60"))
    refused = await bench.client.refusal(message(properties=at(clock, 60_001)))
    assert refused.code == ResponseCode.MESSAGE_ILLEGAL
    assert (await bench.client.send(properties=at(clock, 60_000))).recall_handle is not None


async def test_what_operators_see(bench: Bench, clock: ManualClock) -> None:
    for number in range(3):
        await bench.client.send(b"m", properties=at(clock, 60_000, f"k{number}"))
    await until(bench, "timerCongestNum", "3")
    shown = await figures(bench)
    assert (shown["timerReadBehind"], shown["timerOffsetBehind"]) == ("0", "0")
    metrics = (await bench.client.call(GetTimerMetrics())).body
    assert metrics.timing_count[TOPIC].count == 3
    clock.advance(1.5)
    await until(bench, "timerEnqueueTps", "2.0")
    answer = await bench.client.call(GetTimerCheckpoint())
    assert len(answer.body) == 56
    assert decode_timer_checkpoint(answer.body).read_ms > 0


async def test_timers_go_on_after_a_restart(bench: Bench, clock: ManualClock) -> None:
    for number in range(4):
        await bench.client.send(b"m%d" % number, properties=at(clock, 1000 * number + 500, f"k{number}"))
    clock.advance(1.6)
    assert [(await arrival(bench, offset)).body for offset in (0, 1)] == [b"m0", b"m1"]
    await bench.restart()
    clock.advance(5)
    bodies = [(await arrival(bench, offset)).body for offset in range(4)]
    assert bodies == [b"m0", b"m1", b"m2", b"m3"]
    await until(bench, "timerCongestNum", "0")
    assert len((await bench.client.pull(0)).messages) == 4
