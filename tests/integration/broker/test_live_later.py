"""Messages that come later, over real sockets and in both header forms: delayed, given back, given up.

Delays are counted by a clock that the test moves; the broker is made to look at it often.
"""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.broker_cluster import GROUP, TOPIC, Bench, consumer

from pyromq.broker.services import delays
from pyromq.clock import ManualClock
from pyromq.protocol.codes import ResponseCode
from pyromq.protocol.frame import HeaderForm
from pyromq.protocol.message_id import decode_offset_message_id
from pyromq.protocol.record import StoredMessage
from pyromq.protocol.requests.groups import CreateOrUpdateGroup, SubscriptionGroupConfig
from pyromq.protocol.requests.inspection import GetBrokerRuntimeInfo
from pyromq.protocol.requests.offsets import GetAllDelayOffsets, GetMaxOffset
from pyromq.protocol.requests.sending import SendMessageBack
from pyromq.protocol.requests.settings import UpdateBrokerConfig

RETRY, DEAD = f"%RETRY%{GROUP}", f"%DLQ%{GROUP}"
HOLD_MS = 15_000


@pytest.fixture(autouse=True)
def _frequent_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delays, "_MAX_SLEEP_S", 0.01)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture(params=HeaderForm, ids=lambda form: form.name)
async def bench(tmp_path: Path, clock: ManualClock, request: pytest.FixtureRequest) -> AsyncIterator[Bench]:
    async with Bench(tmp_path, request.param, clock) as running:
        await running.client.create_topic()
        yield running


async def pulled(bench: Bench, offset: int = 0, topic: str = TOPIC, queue_id: int = 0) -> StoredMessage:
    """The message at an offset, waited for."""
    reached = min(offset, await end_of(bench, topic, queue_id))
    while True:
        pulled = await bench.client.pull(reached, topic, queue_id, hold_ms=HOLD_MS, max_msg_nums=1)
        (message,) = pulled.messages
        if reached == offset:
            return message
        reached += 1


async def end_of(bench: Bench, topic: str = TOPIC, queue_id: int = 0) -> int:
    return (await bench.client.call(GetMaxOffset(topic=topic, queue_id=queue_id))).offset


# Delay levels


async def test_a_delayed_message_arrives_when_its_time_has_come(bench: Bench, clock: ManualClock) -> None:
    sent = await bench.client.send(b"later", queue_id=2, properties={"DELAY": "2", "colour": "red"})
    assert (sent.queue_id, sent.code) == (2, ResponseCode.SUCCESS)
    await bench.client.send(b"sooner", queue_id=2, properties={"DELAY": "1"})
    await bench.client.send(b"now", queue_id=2)
    clock.advance(1.1)
    assert (await pulled(bench, 1, queue_id=2)).body == b"sooner"
    assert await end_of(bench, queue_id=2) == 2
    clock.advance(4)
    delayed = await pulled(bench, 2, queue_id=2)
    assert (delayed.body, delayed.get("colour")) == (b"later", "red")
    assert (delayed.get("REAL_TOPIC"), delayed.get("REAL_QID")) == (TOPIC, "2")
    assert delayed.get("UNIQ_KEY") == sent.transaction_id


@pytest.mark.parametrize(("level", "immediate"), [("0", True), ("-1", True), ("x", True), ("99", False)])
async def test_odd_levels(bench: Bench, clock: ManualClock, level: str, immediate: bool) -> None:
    await bench.client.send(b"x", properties={"DELAY": level})
    assert await end_of(bench) == int(immediate)
    if not immediate:
        clock.advance(7200 + 1)
        assert (await pulled(bench)).body == b"x"


async def test_a_delayed_message_is_found_by_its_tag(bench: Bench, clock: ManualClock) -> None:
    await bench.client.send(b"x", properties={"DELAY": "1", "TAGS": "wanted"})
    clock.advance(2)
    pulled = await bench.client.pull(subscription="wanted", hold_ms=HOLD_MS)
    assert pulled.bodies == [b"x"]


async def test_delays_survive_a_restart(bench: Bench, clock: ManualClock) -> None:
    for level in ("1", "3"):
        await bench.client.send(level.encode(), properties={"DELAY": level})
    clock.advance(1.5)
    assert (await pulled(bench)).body == b"1"
    await bench.restart()
    assert await end_of(bench) == 1, "nothing is delivered twice"
    clock.advance(10)
    assert (await pulled(bench, 1)).body == b"3"
    await bench.restart()
    assert await end_of(bench) == 2


async def test_what_became_due_while_the_broker_was_down_is_delivered_at_once(
    bench: Bench, clock: ManualClock
) -> None:
    await bench.client.send(b"x", properties={"DELAY": "4"})
    await bench.restart()
    clock.advance(40)
    await bench.restart()
    assert (await pulled(bench)).body == b"x"


@pytest.mark.parametrize("form", HeaderForm)
async def test_the_levels_are_a_setting(tmp_path: Path, form: HeaderForm) -> None:
    clock = ManualClock()
    async with Bench(tmp_path, form, clock, store={"message_delay_levels": "1h 2s"}) as bench:
        await bench.client.create_topic()
        await bench.client.send(b"two seconds", properties={"DELAY": "9"})
        clock.advance(3)
        assert (await pulled(bench)).body == b"two seconds"


async def test_how_far_deliveries_are_can_be_asked(bench: Bench, clock: ManualClock) -> None:
    await bench.client.send(b"x", properties={"DELAY": "1"})
    await bench.client.send(b"y", properties={"DELAY": "1"})
    clock.advance(2)
    await pulled(bench, 1)
    offsets = (await bench.client.call(GetAllDelayOffsets())).body.offset_table
    assert offsets == {1: 2}
    figures = (await bench.client.call(GetBrokerRuntimeInfo())).body.table
    assert figures["scheduleMessageOffset_1"] == "2,2"


@pytest.mark.parametrize("form", HeaderForm)
async def test_a_delayed_message_arrives_by_the_systems_clock_too(tmp_path: Path, form: HeaderForm) -> None:
    async with Bench(tmp_path, form) as bench:
        await bench.client.create_topic()
        await bench.client.send(b"x", properties={"DELAY": "1"})
        delayed = await pulled(bench)
        assert delayed.store_timestamp >= delayed.born_timestamp + 1000


# Giving messages back


async def give_back(bench: Bench, message: StoredMessage, level: int = 0, **fields: Any) -> None:
    await bench.client.call(
        SendMessageBack(
            offset=message.log_offset,
            group=GROUP,
            delay_level=level,
            origin_msg_id=message.get("UNIQ_KEY"),
            origin_topic=message.topic,
            **fields,
        )
    )


async def test_a_message_given_back_comes_again_until_it_is_a_dead_letter(
    bench: Bench, clock: ManualClock
) -> None:
    config = SubscriptionGroupConfig(group_name=GROUP, retry_max_times=2)
    await bench.client.call(CreateOrUpdateGroup(body=config))
    await bench.client.heartbeat(consumer())
    sent = await bench.client.send(b"hard", properties={"KEYS": "k", "TAGS": "t"})
    (message,) = (await bench.client.pull()).messages
    for attempt, delay_s in enumerate((10, 30)):  # levels 3 and 4
        await give_back(bench, message)
        clock.advance(delay_s - 1)
        assert await end_of(bench, RETRY) == attempt
        clock.advance(2)
        message = await pulled(bench, attempt, RETRY)
        assert (message.body, message.reconsume_times) == (b"hard", attempt + 1)
        assert message.get("RETRY_TOPIC") == TOPIC
        assert message.get("ORIGIN_MESSAGE_ID") == sent.msg_id
        assert (message.get("KEYS"), message.get("TAGS")) == ("k", "t")
    await give_back(bench, message)
    dead = await pulled(bench, 0, DEAD)
    assert (dead.body, dead.reconsume_times) == (b"hard", 3)
    assert dead.get("ORIGIN_MESSAGE_ID") == sent.msg_id
    assert dead.get("DLQ_ORIGIN_TOPIC") == TOPIC
    assert await end_of(bench, RETRY) == 2


async def test_a_consumer_may_say_when_and_how_often(bench: Bench, clock: ManualClock) -> None:
    await bench.client.heartbeat(consumer())
    await bench.client.send(b"x")
    (message,) = (await bench.client.pull()).messages
    await give_back(bench, message, level=1)
    clock.advance(1.5)
    assert (await pulled(bench, 0, RETRY)).body == b"x"
    await give_back(bench, message, level=-1)
    assert (await pulled(bench, 0, DEAD)).body == b"x"
    await give_back(bench, message, max_reconsume_times=0)
    assert (await pulled(bench, 1, DEAD)).body == b"x"


async def test_a_message_given_back_survives_a_restart(bench: Bench, clock: ManualClock) -> None:
    await bench.client.heartbeat(consumer())
    await bench.client.send(b"x")
    (message,) = (await bench.client.pull()).messages
    await give_back(bench, message)
    await bench.restart()
    clock.advance(11)
    assert (await pulled(bench, 0, RETRY)).reconsume_times == 1


async def test_a_group_without_retry_queues_has_no_retries(bench: Bench) -> None:
    config = SubscriptionGroupConfig(group_name=GROUP, retry_queue_nums=0)
    await bench.client.call(CreateOrUpdateGroup(body=config))
    await bench.client.send(b"x")
    (message,) = (await bench.client.pull()).messages
    before = bench.broker.statistics().store.log_end_offset
    await give_back(bench, message)
    assert bench.broker.statistics().store.log_end_offset == before


async def test_what_cannot_be_given_back_is_refused(bench: Bench) -> None:
    await bench.client.send(b"x")

    async def code(**fields: Any) -> int:
        values: dict[str, Any] = {"offset": 0, "group": GROUP, "delay_level": 0} | fields
        return (await bench.client.refusal(SendMessageBack(**values))).code

    assert await code(group="bad group") == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
    assert await code(offset=1) == ResponseCode.SYSTEM_ERROR
    assert await code(offset=1 << 40) == ResponseCode.SYSTEM_ERROR
    await bench.client.call(UpdateBrokerConfig(body="brokerPermission=4\n"))
    assert await code() == ResponseCode.NO_PERMISSION


async def test_the_place_of_a_message_is_in_its_id(bench: Bench) -> None:
    sent = await bench.client.send(b"x")
    (message,) = (await bench.client.pull()).messages
    assert decode_offset_message_id(sent.msg_id).log_offset == message.log_offset


async def test_many_delayed_messages_arrive_in_their_order(bench: Bench, clock: ManualClock) -> None:
    await asyncio.gather(
        *(bench.client.send(b"%d" % number, properties={"DELAY": "1"}) for number in range(600))
    )
    clock.advance(2)
    await pulled(bench, 599)
    bodies: list[bytes] = []
    while len(bodies) < 600:
        bodies += (await bench.client.pull(len(bodies))).bodies
    assert bodies == [b"%d" % number for number in range(600)]
