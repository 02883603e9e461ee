"""Lite topics of a broker: sent to, subscribed to, popped in order, acknowledged, expired."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from tests.support.broker_cluster import BROKER_NAME, BrokerClient, running_broker

from pyromq.broker.broker import Broker
from pyromq.errors import Refused
from pyromq.protocol.batch import BatchEntry, encode_batch
from pyromq.protocol.codes import ResponseCode
from pyromq.protocol.names import lite_queue
from pyromq.protocol.pop_receipt import ORDER_REVIVE_QUEUE, PopReceipt, encode_pop_receipt
from pyromq.protocol.properties import INNER_MULTI_QUEUE_OFFSET, LITE_TOPIC, encode_properties
from pyromq.protocol.record import decode_records
from pyromq.protocol.requests.groups import (
    CreateOrUpdateGroup,
    GetGroupConfig,
    SubscriptionGroupConfig,
)
from pyromq.protocol.requests.lite import (
    ChangeLiteSubscriptions,
    GetBrokerLiteInfo,
    GetLiteClientInfo,
    GetLiteGroupInfo,
    GetLiteTopicInfo,
    GetParentTopicInfo,
    ListLiteTopics,
    LiteSubscriptionAction,
    LiteSubscriptionCtlRequestBody,
    LiteSubscriptionDTO,
    NotifyUnsubscribeLite,
    OffsetOption,
    OffsetOptionType,
    PopLiteMessage,
    TriggerLiteDispatch,
)
from pyromq.protocol.requests.offsets import GetMaxOffset, QueryConsumerOffset
from pyromq.protocol.requests.popping import AckMessage, ChangeInvisibleTime
from pyromq.protocol.requests.sending import SendMessageBatch
from pyromq.protocol.requests.topics import DeleteTopicFromBroker, GetTopicConfig
from pyromq.remoting.routing import Caller, handles

PARENT, GROUP = "Sessions", "agents"
ON = {"light_queues": True, "multi_dispatch": True}
ADD, REMOVE, ALL, LEAVE = LiteSubscriptionAction


class LiteUser(BrokerClient):
    """A client of a lite group, as a front is for its clients."""

    @handles(NotifyUnsubscribeLite)
    def _lost(self, request: NotifyUnsubscribeLite, caller: Caller) -> None:
        self.pushed.put_nowait(request)

    async def __aenter__(self) -> "LiteUser":
        return self

    async def put(self, lite_topic: str, body: bytes, **properties: str) -> Any:
        return await self.send(body, PARENT, properties={LITE_TOPIC: lite_topic, **properties})

    async def sync(
        self,
        action: LiteSubscriptionAction,
        *names: str,
        group: str = GROUP,
        topic: str = PARENT,
        option: OffsetOption | None = None,
    ) -> None:
        change = LiteSubscriptionDTO(
            action=action,
            client_id=self.client_id,
            group=group,
            lite_topic_set=set(names),
            offset_option=option,
            topic=topic,
        )
        await self.call(
            ChangeLiteSubscriptions(body=LiteSubscriptionCtlRequestBody(subscription_set=[change]))
        )

    async def pop(
        self,
        *,
        wait_s: float = 0,
        invisible_ms: int = 60_000,
        most: int = 32,
        group: str = GROUP,
        **fields: Any,
    ) -> list["Taken"]:
        asked = PopLiteMessage(
            **{
                "client_id": self.client_id,
                "consumer_group": group,
                "topic": PARENT,
                "max_msg_num": most,
                "invisible_time": invisible_ms,
                "poll_time": round(wait_s * 1000),
                "born_time": time.time_ns() // 1_000_000,
                **fields,
            }
        )
        answer = await self.call(asked)
        if answer.code != ResponseCode.SUCCESS:
            assert answer.code == ResponseCode.POLLING_TIMEOUT
            return []
        assert answer.revive_qid == ORDER_REVIVE_QUEUE
        counts = (answer.order_count_info or "").split(";")
        records = decode_records(answer.body, check_crc=True)
        return [
            Taken(record, int(count), answer.pop_time, answer.invisible_time)
            for record, count in zip(records, counts, strict=True)
        ]

    async def ack(self, *taken: "Taken", group: str = GROUP) -> None:
        for each in taken:
            await self.call(AckMessage(consumer_group=group, **each.place))

    async def hide(self, taken: "Taken", ms: int, *, suspend: bool = False) -> Any:
        asked = ChangeInvisibleTime(consumer_group=GROUP, invisible_time=ms, suspend=suspend, **taken.place)
        return await self.call(asked)


class Taken:
    def __init__(self, record: Any, count: int, pop_ms: int, invisible_ms: int) -> None:
        self.body: bytes = record.body
        self.count = count
        self.lite_topic: str = record.get(LITE_TOPIC)
        offset = int(record.get(INNER_MULTI_QUEUE_OFFSET))
        receipt = PopReceipt(0, pop_ms, invisible_ms, ORDER_REVIVE_QUEUE, "0", BROKER_NAME, 0, offset)
        self.place: dict[str, Any] = {
            "topic": PARENT,
            "queue_id": 0,
            "extra_info": encode_pop_receipt(receipt),
            "offset": offset,
            "lite_topic": self.lite_topic,
        }


def _bodies(taken: list[Taken]) -> list[bytes]:
    return [each.body for each in taken]


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[Broker]:
    async with running_broker(tmp_path, store=ON) as running:
        yield running


@pytest.fixture
async def user(broker: Broker) -> AsyncIterator[LiteUser]:
    async with LiteUser(broker.address) as joined:
        await _prepare(joined)
        yield joined


@pytest.fixture
async def other(broker: Broker) -> AsyncIterator[LiteUser]:
    async with LiteUser(broker.address, client_id="c2") as joined:
        yield joined


async def _prepare(user: LiteUser, **attributes: str) -> None:
    await user.create_topic(PARENT, attributes="+message.type=LITE")
    await _group(user, **attributes)


async def _group(user: LiteUser, name: str = GROUP, **attributes: str) -> None:
    named = {"+lite.bind.topic": PARENT} | {f"+lite.{key}": value for key, value in attributes.items()}
    await user.call(CreateOrUpdateGroup(body=SubscriptionGroupConfig(group_name=name, attributes=named)))


async def _until(user: LiteUser, request: Callable[[], Any], is_so: Callable[[Any], bool]) -> None:
    """Returns when the broker answers as wished."""
    async with asyncio.timeout(60):
        while True:
            if is_so((await user.call(request())).body):
                return
            await asyncio.sleep(0.05)


# Topics, groups and messages


async def test_a_topic_is_of_the_type_lite_only_where_there_are_light_queues(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker, LiteUser(broker.address) as user:
        with pytest.raises(Refused, match="enableLmq and enableMultiDispatch"):
            await user.create_topic(PARENT, attributes="+message.type=LITE")


async def test_attributes_of_lite_topics_and_groups_are_checked(user: LiteUser) -> None:
    await user.create_topic(PARENT, attributes="+lite.topic.expiration=43200")
    config = (await user.call(GetTopicConfig(topic=PARENT))).body
    assert config.attributes == {"message.type": "LITE", "lite.topic.expiration": "43200"}
    for bad in ("43201", "-2", "soon", ""):
        with pytest.raises(Refused, match=r"lite\.topic\.expiration"):
            await user.create_topic(PARENT, attributes=f"+lite.topic.expiration={bad}")
    await _group(user, **{"sub.model": "Exclusive", "sub.client.quota": "-1", "sub.wildcard": "x"})
    group = (await user.call(GetGroupConfig(group=GROUP))).body
    assert group.attributes["lite.sub.model"] == "Exclusive"
    for key, bad in {
        "bind.topic": "a b",
        "sub.model": "exclusive",
        "sub.client.quota": "-2",
        "sub.client.max.event.cnt": "9",
        "sub.reset.offset.exclusive": "yes",
    }.items():
        with pytest.raises(Refused, match=key):
            await _group(user, **{key: bad})


async def test_a_message_enters_its_lite_topic_and_the_queue_of_its_topic(user: LiteUser) -> None:
    answer = await user.put("s-1", b"0")
    await user.put("s-2", b"1")
    await user.put("s-1", b"2")
    assert (answer.queue_id, answer.queue_offset) == (0, 0)
    assert (await user.call(GetMaxOffset(topic=lite_queue(PARENT, "s-1"), queue_id=0))).offset == 2
    assert (await user.pull(0, PARENT)).bodies == [b"0", b"1", b"2"]


@pytest.mark.parametrize(
    ("properties", "why"),
    [
        ({LITE_TOPIC: "a$b"}, "letters, digits"),
        ({LITE_TOPIC: "x" * 256}, "longer than 255"),
        ({LITE_TOPIC: "a", "DELAY": "1"}, "cannot be in a transaction"),
        ({LITE_TOPIC: "a", "TIMER_DELAY_SEC": "9"}, "cannot be in a transaction"),
        ({LITE_TOPIC: "a", "_SYS_MSG_PRIORITY_": "1"}, "cannot be in a transaction"),
        ({LITE_TOPIC: "a", "TRAN_MSG": "true"}, "cannot be in a transaction"),
        ({LITE_TOPIC: "a", "__SHARDINGKEY": "k"}, "cannot be in a transaction"),
    ],
)
async def test_a_message_that_no_lite_topic_takes_is_refused(
    user: LiteUser, properties: dict[str, str], why: str
) -> None:
    with pytest.raises(Refused, match=why) as caught:
        await user.send(b"no", PARENT, properties=properties)
    assert caught.value.code == ResponseCode.MESSAGE_ILLEGAL


async def test_a_batch_with_lite_topics_is_refused(user: LiteUser) -> None:
    entry = BatchEntry(b"one", encode_properties({LITE_TOPIC: "a"}).encode())
    with pytest.raises(Refused, match="cannot be in a batch"):
        await user.call(
            SendMessageBatch(
                producer_group="p",
                topic=PARENT,
                default_topic="TBW102",
                default_topic_queue_nums=4,
                queue_id=0,
                sys_flag=0,
                born_timestamp=0,
                flag=0,
                batch=True,
                body=encode_batch([entry]),
            )
        )


# Subscriptions


async def test_a_client_pops_the_lite_topics_that_it_has_subscribed_to(user: LiteUser) -> None:
    await user.put("mine", b"1")
    await user.put("foreign", b"2")
    await user.sync(ADD, "mine", "empty")
    taken = await user.pop()
    assert (_bodies(taken), taken[0].lite_topic, taken[0].count) == ([b"1"], "mine", 0)
    await user.ack(*taken)
    assert await user.pop() == []
    asked = QueryConsumerOffset(consumer_group=GROUP, topic=lite_queue(PARENT, "mine"), queue_id=0)
    assert (await user.call(asked)).offset == 1


async def test_a_pop_waits_for_the_first_message_of_a_lite_topic(user: LiteUser) -> None:
    await user.sync(ADD, "later")
    waiting = asyncio.create_task(user.pop(wait_s=50))
    await user.put("later", b"now")
    assert _bodies(await waiting) == [b"now"]


async def test_a_waiting_pop_gets_what_its_client_subscribes_to(user: LiteUser) -> None:
    await user.put("a", b"1")
    waiting = asyncio.create_task(user.pop(wait_s=50))
    await user.sync(ADD, "a")
    assert _bodies(await waiting) == [b"1"]


async def test_a_complete_set_replaces_the_one_before(user: LiteUser) -> None:
    await user.sync(ADD, "a", "b")
    await user.sync(ALL, "b", "c")
    info = (await user.call(GetLiteClientInfo(parent_topic=PARENT, group=GROUP, client_id="c1"))).body
    assert info.lite_topic_set == {lite_queue(PARENT, "b"), lite_queue(PARENT, "c")}
    await user.sync(REMOVE, "b")
    for name in "abc":
        await user.put(name, name.encode())
    assert _bodies(await user.pop()) == [b"c"]
    await user.sync(LEAVE)
    info = (await user.call(GetLiteClientInfo(parent_topic=PARENT, group=GROUP, client_id="c1"))).body
    assert info.lite_topic_count == -1


async def test_names_are_checked_in_every_action(user: LiteUser) -> None:
    for action in LiteSubscriptionAction:
        with pytest.raises(Refused, match="letters, digits") as caught:
            await user.sync(action, "a$b")
        assert caught.value.code == ResponseCode.INVALID_PARAMETER


async def test_only_a_group_that_is_bound_to_the_topic_reads_it(user: LiteUser) -> None:
    await _group(user, "elsewhere", **{"bind.topic": "Another"})
    await user.create_topic("Plain")
    with pytest.raises(Refused, match="is bound to Another"):
        await user.sync(ADD, "a", group="elsewhere")
    with pytest.raises(Refused, match="not of type LITE"):
        await user.sync(ADD, "a", topic="Plain")
    with pytest.raises(Refused, match="is bound to Another") as caught:
        await user.pop(group="elsewhere")
    assert caught.value.code == ResponseCode.INVALID_PARAMETER
    with pytest.raises(Refused, match="expected 1 to 32"):
        await user.pop(most=33)


async def test_quotas_count_all_that_a_client_and_a_broker_have(tmp_path: Path) -> None:
    async with (
        running_broker(tmp_path, store=ON, max_lite_subscriptions=5) as broker,
        LiteUser(broker.address) as user,
        LiteUser(broker.address, client_id="c2") as other,
    ):
        await _prepare(user, **{"sub.client.quota": "3"})
        for name in "abc":
            await user.sync(ADD, name)
        await user.sync(ADD, "a")
        for action, names in ((ADD, "d"), (ALL, "abcd")):
            with pytest.raises(Refused, match=r"lite\.sub\.client\.quota") as caught:
                await user.sync(action, *names)
            assert caught.value.code == ResponseCode.LITE_SUBSCRIPTION_QUOTA_EXCEEDED
        await other.sync(ALL, "a", "b")
        with pytest.raises(Refused, match="maxLiteSubscriptionCount"):
            await other.sync(ADD, "c")
        for number in range(3):
            other.client_id = f"more-{number}"
            assert await other.pop() == []  # who only asks is not kept
            await other.sync(ALL)
        other.client_id = "one-too-many"
        with pytest.raises(Refused, match="5 clients read lite topics already"):
            await other.sync(ALL)


async def test_members_of_a_shared_group_share_a_lite_topic(user: LiteUser, other: LiteUser) -> None:
    await user.sync(ADD, "a")
    await other.sync(ADD, "a")
    await user.put("a", b"1")
    first = await user.pop()
    assert _bodies(first) == [b"1"]
    await user.put("a", b"2")
    waiting = asyncio.create_task(other.pop(wait_s=50))
    assert await user.pop() == []  # in order: the first is not acknowledged
    await user.ack(*first)
    assert _bodies(await waiting) == [b"2"]


async def test_in_an_exclusive_group_the_last_subscriber_owns_a_lite_topic(
    user: LiteUser, other: LiteUser
) -> None:
    await _group(user, **{"sub.model": "Exclusive", "sub.reset.offset.exclusive": "true"})
    await user.sync(ADD, "a", "b")
    await user.put("a", b"1")
    await user.ack(*await user.pop())
    await other.sync(ADD, "a")
    lost = await user.next_push()
    assert isinstance(lost, NotifyUnsubscribeLite)
    assert (lost.lite_topic, lost.consumer_group, lost.client_id) == ("a", GROUP, "c1")
    await user.sync(ALL, "a", "b")  # it did not listen
    assert isinstance(await user.next_push(), NotifyUnsubscribeLite)
    assert await user.pop() == []
    assert _bodies(await other.pop()) == [b"1"]  # from the first message on
    await other.sync(LEAVE)
    await user.sync(ALL, "a", "b")
    await user.put("b", b"2")
    assert _bodies(await user.pop()) == [b"2"]


async def test_a_group_may_read_all_lite_topics(user: LiteUser, other: LiteUser) -> None:
    await _group(user, "all", **{"sub.wildcard": "true"})
    for name in ("a", "b"):
        await user.put(name, name.encode())
    await user.sync(ALL, group="all")
    with pytest.raises(Refused, match="reads all lite topics") as caught:
        await user.sync(ADD, "a", group="all")
    assert caught.value.code == ResponseCode.ILLEGAL_OPERATION
    taken = await user.pop(group="all")
    assert sorted(_bodies(taken)) == [b"a", b"b"]
    await other.sync(ALL, group="all")
    waiting = asyncio.create_task(other.pop(group="all", wait_s=50))
    await user.put("new", b"new")
    assert _bodies(await waiting) == [b"new"]
    await user.ack(*taken, group="all")
    assert await user.pop(group="all") == []


async def test_a_pop_that_waits_before_its_client_reads_everything_is_answered(user: LiteUser) -> None:
    await _group(user, "all", **{"sub.wildcard": "true"})
    await user.put("a", b"1")
    waiting = asyncio.create_task(user.pop(group="all", wait_s=50))
    await user.put("b", b"2")
    await user.sync(ALL, group="all")
    assert sorted(_bodies(await waiting)) == [b"1", b"2"]
    waiting = asyncio.create_task(user.pop(group="all", wait_s=50))
    await user.put("c", b"3")
    assert _bodies(await waiting) == [b"3"]


@pytest.mark.parametrize(
    ("kind", "value", "bodies"),
    [
        (OffsetOptionType.POLICY, 0, [b"2", b"3"]),
        (OffsetOptionType.POLICY, 1, [b"0", b"1", b"2", b"3"]),
        (OffsetOptionType.POLICY, 2, []),
        (OffsetOptionType.OFFSET, 3, [b"3"]),
        (OffsetOptionType.TAIL_N, 1, [b"1", b"2", b"3"]),
        (OffsetOptionType.TIMESTAMP, 0, [b"0", b"1", b"2", b"3"]),
    ],
)
async def test_a_subscriber_says_where_it_begins(
    user: LiteUser, kind: OffsetOptionType, value: int, bodies: list[bytes]
) -> None:
    for number in range(4):
        await user.put("a", b"%d" % number)
    await user.sync(ADD, "a")
    await user.ack(*await user.pop(most=2))
    await user.sync(REMOVE, "a")
    await user.sync(ADD, "a", option=OffsetOption(type=kind, value=value))
    assert _bodies(await user.pop()) == bodies


async def test_who_unsubscribes_may_begin_anew(user: LiteUser) -> None:
    await _group(user, **{"sub.reset.offset.unsubscribe": "true"})
    await user.sync(ADD, "a")
    await user.put("a", b"1")
    await user.ack(*await user.pop())
    await user.sync(REMOVE, "a")
    await user.sync(ADD, "a")
    assert _bodies(await user.pop()) == [b"1"]


# Order, and what comes again


async def test_one_batch_of_a_lite_topic_is_out_at_a_time_and_others_go_on(user: LiteUser) -> None:
    for body in (b"a1", b"a2", b"a3"):
        await user.put("a", body)
    await user.put("b", b"b1")
    await user.sync(ADD, "a", "b")
    first = await user.pop(most=2)
    assert _bodies(first) == [b"a1", b"a2"]
    assert _bodies(await user.pop()) == [b"b1"]
    await user.ack(first[1])
    assert await user.pop() == []
    await user.ack(first[0])
    assert _bodies(await user.pop()) == [b"a3"]


async def test_what_is_not_acknowledged_comes_again_when_it_is_due(user: LiteUser) -> None:
    """java: it comes when the last of the batch would have been due, 60 s instead of 2 s"""
    for body in (b"bad", b"good", b"next"):
        await user.put("a", body)
    await user.sync(ADD, "a")
    bad, good = await user.pop(most=2, invisible_ms=600_000)
    answer = await user.hide(bad, 200)
    assert answer.pop_time + answer.invisible_time <= time.time_ns() // 1_000_000 + 200
    await user.ack(good)
    again = await user.pop(wait_s=50)
    assert [(each.body, each.count) for each in again] == [(b"bad", 1), (b"next", 0)]
    with pytest.raises(Refused, match="does not hold"):
        await user.ack(bad)  # by the receipt of the first delivery
    await user.ack(*again)
    assert await user.pop() == []


async def test_a_suspended_batch_comes_again_without_counting(user: LiteUser) -> None:
    await user.put("a", b"1")
    await user.put("a", b"2")
    await user.sync(ADD, "a")
    first = await user.pop(invisible_ms=600_000)
    await user.hide(first[0], 100, suspend=True)
    again = await user.pop(wait_s=50, invisible_ms=100)
    assert [(each.body, each.count) for each in again] == [(b"1", 0), (b"2", 0)]
    third = await user.pop(wait_s=50)
    assert [each.count for each in third] == [1, 1]


async def test_the_same_attempt_gets_the_same_messages(user: LiteUser) -> None:
    await user.put("a", b"1")
    await user.sync(ADD, "a")
    assert _bodies(await user.pop(attempt_id="x")) == [b"1"]
    again = await user.pop(attempt_id="x")
    assert [(each.body, each.count) for each in again] == [(b"1", 0)]
    assert await user.pop(attempt_id="y") == []


async def test_a_backlog_of_many_lite_topics_drains_pop_after_pop(user: LiteUser) -> None:
    """java: 500 took 73 s and more, because a client has at most 100 events"""
    names = [f"s{number}" for number in range(500)]
    for name in names:
        await user.put(name, name.encode())
    await user.sync(ALL, *names)
    found: list[bytes] = []
    while taken := await user.pop():
        found += _bodies(taken)
        await user.ack(*taken)
    assert sorted(found) == sorted(name.encode() for name in names)


async def test_subscriptions_and_what_is_out_end_with_the_broker_and_nothing_is_lost(tmp_path: Path) -> None:
    async with running_broker(tmp_path, store=ON) as broker, LiteUser(broker.address) as user:
        await _prepare(user)
        await user.sync(ADD, "a")
        for body in (b"1", b"2", b"3"):
            await user.put("a", body)
        done = await user.pop(most=1)
        await user.ack(*done)
        assert _bodies(await user.pop(most=1)) == [b"2"]
    async with running_broker(tmp_path, store=ON) as broker, LiteUser(broker.address) as user:
        assert await user.pop() == []
        await user.sync(ALL, "a")
        assert [(each.body, each.count) for each in await user.pop()] == [(b"2", 0), (b"3", 0)]


async def test_messages_that_nobody_holds_are_not_acknowledged(user: LiteUser) -> None:
    await user.put("a", b"1")
    await user.sync(ADD, "a")
    (taken,) = await user.pop()
    await user.ack(taken)
    await user.ack(taken)  # again: it is done
    place = taken.place
    for changed, code in (
        ({"offset": 7}, ResponseCode.NO_MESSAGE),
        ({"queue_id": 1}, ResponseCode.INVALID_PARAMETER),
        ({"lite_topic": "none"}, ResponseCode.NO_MESSAGE),
        ({"extra_info": place["extra_info"].replace(" 999 ", " 1 ")}, ResponseCode.INVALID_PARAMETER),
    ):
        refused = await user.refusal(AckMessage(consumer_group=GROUP, **place | changed))
        assert refused.code == code, changed


# Life time, and what operators see


async def test_a_lite_topic_without_messages_for_long_expires(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"min_lite_ttl_ms": 1, "lite_ttl_check_ms": 50}
    async with (
        running_broker(tmp_path, store=ON, **settings) as broker,
        LiteUser(broker.address) as user,
    ):
        await _prepare(user)
        await user.put("kept", b"1")
        await user.put("old", b"1")
        await user.sync(ADD, "old", "kept")
        await user.ack(*await user.pop())
        await user.create_topic(PARENT, attributes="+lite.topic.expiration=0")
        await _until(user, lambda: ListLiteTopics(topic=PARENT), lambda body: not body.lite_topics)
        await user.create_topic(PARENT, attributes="+lite.topic.expiration=-1")
        waiting = asyncio.create_task(user.pop(wait_s=50))
        await user.put("old", b"anew")
        assert _bodies(await waiting) == [b"anew"]
        assert (await user.call(GetMaxOffset(topic=lite_queue(PARENT, "old"), queue_id=0))).offset == 1


async def test_the_lite_topics_of_a_deleted_topic_go_with_it(user: LiteUser) -> None:
    await user.put("a", b"1")
    await user.sync(ADD, "a")
    await user.ack(*await user.pop())
    await user.call(DeleteTopicFromBroker(topic=PARENT))
    await _prepare(user)
    assert (await user.call(ListLiteTopics(topic=PARENT))).body.lite_topics == []
    await user.put("a", b"2")
    await user.sync(ADD, "a")
    assert _bodies(await user.pop()) == [b"2"]


async def test_a_lite_topic_that_was_deleted_begins_anew(user: LiteUser) -> None:
    for body in (b"1", b"2"):
        await user.put("a", body)
    await user.sync(ADD, "a")
    _, second = await user.pop()
    await user.ack(second)
    await user.call(DeleteTopicFromBroker(topic=lite_queue(PARENT, "a")))
    for body in (b"3", b"4"):
        await user.put("a", body)
    assert _bodies(await user.pop()) == [b"3", b"4"]


async def test_operators_see_lite_topics_subscriptions_and_lags(user: LiteUser, other: LiteUser) -> None:
    for name, count in (("a", 1), ("b", 3), ("c", 2)):
        for _ in range(count):
            await user.put(name, b"x")
    await user.sync(ADD, "a", "b")
    await other.sync(ADD, "b")
    await user.pop()
    broker = (await user.call(GetBrokerLiteInfo())).body
    assert (broker.current_lmq_num, broker.lite_subscription_count, broker.order_info_count) == (3, 3, 2)
    assert (broker.topic_meta, broker.group_meta) == ({PARENT: -1}, {PARENT: {GROUP}})
    parent = (await user.call(GetParentTopicInfo(topic=PARENT))).body
    assert (parent.lite_topic_count, parent.groups, parent.ttl) == (3, {GROUP}, -1)
    first = (await user.call(ListLiteTopics(topic=PARENT, max_count=2))).body
    assert (first.lite_topics, first.next) == (["a", "b"], "c")
    rest = (await user.call(ListLiteTopics(topic=PARENT, begin=first.next))).body
    assert (rest.lite_topics, rest.next) == (["c"], None)
    topic = (await user.call(GetLiteTopicInfo(parent_topic=PARENT, lite_topic="b"))).body
    assert {each.client_id for each in topic.subscriber} == {"c1", "c2"}
    assert topic.topic_offset is not None
    assert (topic.topic_offset.min_offset, topic.topic_offset.max_offset) == (0, 3)
    group = (await user.call(GetLiteGroupInfo(group=GROUP, top_k=2))).body
    assert (group.total_lag_count, group.parent_topic) == (6, PARENT)
    assert [(each.lite_topic, each.lag_count) for each in group.lag_count_top_k] == [("b", 3), ("c", 2)]
    assert len(group.lag_timestamp_top_k) == 2
    one = (await user.call(GetLiteGroupInfo(group=GROUP, lite_topic="b"))).body
    assert one.lite_topic_offset_wrapper is not None
    assert (one.total_lag_count, one.lite_topic_offset_wrapper.broker_offset) == (3, 3)
    await user.call(TriggerLiteDispatch(group=GROUP))
    assert (await user.refusal(GetParentTopicInfo(topic="none"))).code == ResponseCode.TOPIC_NOT_EXIST


async def test_a_silent_client_is_forgotten(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"lite_subscription_timeout_ms": 1, "lite_subscription_check_ms": 50}
    async with (
        running_broker(tmp_path, store=ON, **settings) as broker,
        LiteUser(broker.address) as user,
    ):
        await _prepare(user)
        await user.sync(ADD, "a")
        await _until(user, GetBrokerLiteInfo, lambda body: not body.lite_subscription_count)
