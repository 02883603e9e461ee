"""Messages are pulled over real sockets, in both header forms: what is found, and how long a pull waits."""

import asyncio
import errno
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import ErrorLogs
from tests.support.broker_cluster import (
    GROUP,
    SUBSCRIPTION,
    SUSPEND,
    TOPIC,
    Bench,
    Pulled,
    consumer,
    message,
    pull,
)
from tests.support.loop import turn_until
from tests.support.wire_client import WireClient

from pyromq.clock import ManualClock
from pyromq.errors import ConnectionLost, Refused
from pyromq.protocol.batch import BatchEntry, encode_batch
from pyromq.protocol.catalogue import encode_request
from pyromq.protocol.codes import ResponseCode
from pyromq.protocol.frame import HeaderForm
from pyromq.protocol.record import decode_records
from pyromq.protocol.requests.groups import CreateOrUpdateGroup, SubscriptionGroupConfig, UpdateGroupForbidden
from pyromq.protocol.requests.membership import MessageModel
from pyromq.protocol.requests.offsets import QueryConsumerOffset
from pyromq.protocol.requests.pulling import LitePullMessage
from pyromq.protocol.requests.settings import UpdateBrokerConfig
from pyromq.protocol.requests.topics import DeleteTopicFromBroker
from pyromq.store.message_store import MessageStore

LONG_MS = 60_000


@pytest.fixture(params=HeaderForm, ids=lambda form: form.name)
async def bench(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[Bench]:
    # The clock stands still: no time slice of a filter ends early, however busy the machine is.
    async with Bench(tmp_path, request.param, ManualClock()) as running:
        await running.client.create_topic()
        yield running


async def fill(bench: Bench, count: int, **fields: Any) -> None:
    await asyncio.gather(*(bench.client.send(b"%d" % number, **fields) for number in range(count)))


def numbers(first: int, last: int) -> list[bytes]:
    return [b"%d" % number for number in range(first, last)]


# What is found


async def test_a_pull_brings_messages_from_its_offset_on(bench: Bench) -> None:
    await fill(bench, 10)
    pulled = await bench.client.pull(4)
    assert pulled.bodies == numbers(4, 10)
    answer = pulled.answer
    assert (answer.code, answer.remark) == (ResponseCode.SUCCESS, "FOUND")
    assert (answer.next_begin_offset, answer.min_offset, answer.max_offset) == (10, 0, 10)
    assert answer.suggest_which_broker_id == 0


@pytest.mark.parametrize(
    ("offset", "code", "next_offset", "status"),
    [
        (5, ResponseCode.PULL_NOT_FOUND, 5, "OFFSET_OVERFLOW_ONE"),
        (6, ResponseCode.PULL_OFFSET_MOVED, 5, "OFFSET_OVERFLOW_BADLY"),
        (1 << 40, ResponseCode.PULL_OFFSET_MOVED, 5, "OFFSET_OVERFLOW_BADLY"),
        (-1, ResponseCode.PULL_OFFSET_MOVED, 0, "OFFSET_TOO_SMALL"),
    ],
)
async def test_an_offset_outside_the_queue_is_told_where_to_go_on(
    bench: Bench, offset: int, code: int, next_offset: int, status: str
) -> None:
    await fill(bench, 5)
    answer = (await bench.client.pull(offset)).answer
    assert (answer.code, answer.next_begin_offset, answer.remark) == (code, next_offset, status)
    assert (answer.min_offset, answer.max_offset) == (0, 5)


@pytest.mark.parametrize(
    ("offset", "code"), [(0, ResponseCode.PULL_NOT_FOUND), (3, ResponseCode.PULL_OFFSET_MOVED)]
)
async def test_a_queue_without_messages(bench: Bench, offset: int, code: int) -> None:
    answer = (await bench.client.pull(offset, queue_id=3)).answer
    assert (answer.code, answer.next_begin_offset) == (code, 0)


async def test_a_pull_brings_no_more_than_was_asked_for(bench: Bench) -> None:
    await fill(bench, 50)
    assert (await bench.client.pull(0, max_msg_nums=3)).bodies == numbers(0, 3)
    # Nor more than the broker gives at a time.
    assert (await bench.client.pull(0, max_msg_nums=1000)).bodies == numbers(0, 32)
    few = await bench.client.pull(0, max_msg_bytes=600)
    assert 0 < len(few.bodies) < 5
    assert few.answer.next_begin_offset == len(few.bodies)


async def test_the_bytes_of_an_answer_are_limited(bench: Bench) -> None:
    for _ in range(4):
        await bench.client.send(b"x" * 100_000)
    assert len((await bench.client.pull()).bodies) == 2
    await bench.client.send(b"y" * 900_000, queue_id=1)
    assert len((await bench.client.pull(queue_id=1)).bodies) == 1, "one message comes however large it is"


# Filters


async def send_tagged(bench: Bench) -> None:
    for tag, price in (("a", "1"), ("b", "5"), (None, "9"), ("a", "10"), ("AaBB", "3"), ("BBBB", "4")):
        properties = {"price": price} | ({"TAGS": tag} if tag else {})
        await bench.client.send(f"{tag}{price}".encode(), properties=properties)


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("*", [b"a1", b"b5", b"None9", b"a10", b"AaBB3", b"BBBB4"]),
        ("a", [b"a1", b"a10"]),
        ("a || b", [b"a1", b"b5", b"a10"]),
        ("AaBB", [b"AaBB3", b"BBBB4"]),  # their hashes are equal; only a consumer can tell
    ],
)
async def test_tags_are_filtered_by_their_hashes(
    bench: Bench, expression: str, expected: list[bytes]
) -> None:
    await send_tagged(bench)
    assert (await bench.client.pull(subscription=expression)).bodies == expected


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("price > 4", [b"b5", b"None9", b"a10"]),
        ("price BETWEEN 3 AND 5 AND TAGS IS NOT NULL", [b"b5", b"AaBB3", b"BBBB4"]),
        ("TAGS IN ('a', 'b') AND NOT (price = 10)", [b"a1", b"b5"]),
        ("TAGS IS NULL", [b"None9"]),
        ("nothing > 3", []),
    ],
)
async def test_expressions_filter_by_properties(bench: Bench, expression: str, expected: list[bytes]) -> None:
    await send_tagged(bench)
    pulled = await bench.client.pull(subscription=expression, expression_type="SQL92")
    assert pulled.bodies == expected
    if not expected:
        assert pulled.answer.code == ResponseCode.PULL_RETRY_IMMEDIATELY
        assert pulled.answer.next_begin_offset == 6


async def test_nothing_that_matches_means_try_at_once_further_on(bench: Bench) -> None:
    await fill(bench, 7, properties={"TAGS": "x"})
    answer = (await bench.client.pull(subscription="y")).answer
    assert (answer.code, answer.next_begin_offset) == (ResponseCode.PULL_RETRY_IMMEDIATELY, 7)


async def test_a_bad_expression_is_refused(bench: Bench) -> None:
    refusal = await bench.client.refusal(pull(subscription="price >", expression_type="SQL92"))
    assert refusal.code == ResponseCode.SUBSCRIPTION_PARSE_FAILED


async def test_expressions_may_be_switched_off(bench: Bench) -> None:
    await bench.client.call(UpdateBrokerConfig(body="enablePropertyFilter=false\n"))
    refusal = await bench.client.refusal(pull(subscription="a > 1", expression_type="SQL92"))
    assert refusal.code == ResponseCode.SYSTEM_ERROR


# By the subscription that heartbeats told of


def subscribed(offset: int = 0, **fields: Any) -> Any:
    return pull(offset, **{"sys_flag": 0, "subscription": None, "sub_version": 1} | fields)


async def test_a_consumer_pulls_by_what_its_heartbeat_said(bench: Bench) -> None:
    await send_tagged(bench)
    await bench.client.heartbeat(consumer(expression="b", version=1))
    answer = await bench.client.call(subscribed())
    assert [stored.body for stored in decode_records(answer.body)] == [b"b5"]
    await bench.client.heartbeat(consumer(expression="price > 8", sql=True, version=2))
    answer = await bench.client.call(subscribed(sub_version=2))
    assert [stored.body for stored in decode_records(answer.body)] == [b"None9", b"a10"]


async def test_a_consumer_without_a_heartbeat_is_refused(bench: Bench) -> None:
    refusal = await bench.client.refusal(subscribed())
    assert refusal.code == ResponseCode.SUBSCRIPTION_NOT_EXIST


async def test_a_consumer_that_subscribed_to_something_else_is_refused(bench: Bench) -> None:
    await bench.client.heartbeat(consumer(topic="Another"))
    refusal = await bench.client.refusal(subscribed())
    assert refusal.code == ResponseCode.SUBSCRIPTION_NOT_EXIST


async def test_a_newer_subscription_has_to_be_told_first(bench: Bench) -> None:
    await bench.client.heartbeat(consumer(version=5))
    refusal = await bench.client.refusal(subscribed(sub_version=6))
    assert refusal.code == ResponseCode.SUBSCRIPTION_NOT_LATEST
    await bench.client.heartbeat(consumer(version=6))
    assert (await bench.client.call(subscribed(sub_version=6))).code == ResponseCode.PULL_NOT_FOUND


async def test_an_expression_that_cannot_be_compiled_has_no_filter(bench: Bench) -> None:
    await bench.client.heartbeat(consumer(expression="price >", sql=True))
    refusal = await bench.client.refusal(subscribed())
    assert refusal.code == ResponseCode.FILTER_DATA_NOT_EXIST


# Who may


@pytest.mark.parametrize(
    ("wrong", "code"),
    [
        ({"topic": "Nowhere"}, ResponseCode.TOPIC_NOT_EXIST),
        ({"queue_id": 4}, ResponseCode.INVALID_PARAMETER),
        ({"queue_id": -1}, ResponseCode.INVALID_PARAMETER),
        ({"group": "bad group"}, ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST),
    ],
)
async def test_a_pull_of_what_is_not_there_is_refused(bench: Bench, wrong: dict[str, Any], code: int) -> None:
    refusal = await bench.client.refusal(pull(**wrong))
    assert refusal.code == code
    assert refusal.remark


async def test_no_group_makes_itself_where_that_is_switched_off(bench: Bench) -> None:
    await bench.client.call(UpdateBrokerConfig(body="autoCreateSubscriptionGroup=false\n"))
    refusal = await bench.client.refusal(pull(group="unknown"))
    assert refusal.code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST


async def forbid_group(bench: Bench) -> None:
    config = SubscriptionGroupConfig(group_name=GROUP, consume_enable=False)
    await bench.client.call(CreateOrUpdateGroup(body=config))


async def forbid_topic(bench: Bench) -> None:
    await bench.client.create_topic(perm=2)


async def forbid_broker(bench: Bench) -> None:
    await bench.client.call(UpdateBrokerConfig(body="brokerPermission=2\n"))


async def forbid_subscription(bench: Bench) -> None:
    await bench.client.heartbeat(consumer())
    await bench.client.call(UpdateGroupForbidden(group=GROUP, topic=TOPIC, readable=False))


async def forbid_broadcasting(bench: Bench) -> None:
    config = SubscriptionGroupConfig(group_name=GROUP, consume_broadcast_enable=False)
    await bench.client.call(CreateOrUpdateGroup(body=config))
    await bench.client.heartbeat(consumer(model=MessageModel.BROADCASTING))


@pytest.mark.parametrize(
    "forbid", [forbid_broker, forbid_group, forbid_topic, forbid_broadcasting, forbid_subscription]
)
async def test_what_is_forbidden_is_refused(bench: Bench, forbid: Any) -> None:
    await forbid(bench)
    refusal = await bench.client.refusal(subscribed())
    assert refusal.code == ResponseCode.NO_PERMISSION


async def test_a_lite_pull_is_a_pull_that_can_be_switched_off(bench: Bench) -> None:
    await fill(bench, 2)
    request = pull()
    lite = LitePullMessage(**{name: getattr(request, name) for name in request.__struct_fields__})
    answer = await bench.client.call(lite)
    assert [stored.body for stored in decode_records(answer.body)] == [b"0", b"1"]
    await bench.client.call(UpdateBrokerConfig(body="litePullMessageEnable=false\n"))
    assert (await bench.client.refusal(lite)).code == ResponseCode.NO_PERMISSION


async def test_an_offset_is_committed_along_with_a_pull(bench: Bench) -> None:
    await fill(bench, 5)
    await bench.client.pull(5, commit=5)
    stands_at = await bench.client.call(QueryConsumerOffset(consumer_group=GROUP, topic=TOPIC, queue_id=0))
    assert stands_at.offset == 5


# Waiting


async def held_pull(bench: Bench, count: int = 1, **fields: Any) -> asyncio.Task[Pulled]:
    """A pull that waits at the broker by now."""
    task = asyncio.create_task(bench.client.pull(**{"hold_ms": LONG_MS} | fields))
    await turn_until(lambda: bench.broker.statistics().held_pulls == count)
    return task


async def test_a_pull_waits_until_a_message_arrives(bench: Bench) -> None:
    waiting = await held_pull(bench)
    await bench.client.send(b"at last")
    assert (await waiting).bodies == [b"at last"]
    assert bench.broker.statistics().held_pulls == 0


async def test_a_pull_without_the_flag_does_not_wait(bench: Bench) -> None:
    answer = (await bench.client.pull(suspend_timeout_millis=LONG_MS, sys_flag=SUBSCRIPTION)).answer
    assert answer.code == ResponseCode.PULL_NOT_FOUND


async def test_only_those_who_wait_for_the_queue_are_woken(bench: Bench) -> None:
    other_queue = await held_pull(bench, 1, queue_id=1)
    waiting = [await held_pull(bench, 2 + index) for index in range(3)]
    await bench.client.send(b"x")
    assert [pulled.bodies for pulled in await asyncio.gather(*waiting)] == [[b"x"]] * 3
    assert not other_queue.done()
    assert bench.broker.statistics().held_pulls == 1
    await bench.client.send(b"y", queue_id=1)
    assert (await other_queue).bodies == [b"y"]


async def test_a_pull_waits_on_when_what_arrives_is_not_for_it(bench: Bench) -> None:
    waiting = await held_pull(bench, subscription="wanted")
    await bench.client.send(b"1", properties={"TAGS": "other"})
    await bench.client.send(b"2")
    assert bench.broker.statistics().held_pulls == 1
    await bench.client.send(b"3", properties={"TAGS": "wanted"})
    pulled = await waiting
    assert (pulled.bodies, pulled.answer.next_begin_offset) == ([b"3"], 3)


async def test_much_that_is_not_for_a_waiting_pull_does_not_hide_what_is(bench: Bench) -> None:
    """A read looks at 800 messages, and behind the last one nothing else comes."""
    waiting = await held_pull(bench, subscription="wanted")
    many = message(encode_batch([BatchEntry(b"x", properties=b"TAGS\x01other\x02")] * 3000), batch=True)
    client = await WireClient.connect(bench.broker.address)
    one = message(b"at last", properties={"TAGS": "wanted"})
    client.send(encode_request(many, 1), encode_request(one, 2))
    pulled = await waiting
    assert (pulled.bodies, pulled.answer.next_begin_offset) == ([b"at last"], 3001)
    await client.close()


async def test_a_waiting_pull_by_a_group_that_may_not_read_any_more_is_refused(bench: Bench) -> None:
    waiting = await held_pull(bench)
    await forbid_group(bench)
    await bench.client.send(b"not for them")
    with pytest.raises(Refused, match="is disabled"):
        await waiting


async def test_a_waiting_pull_that_fails_harms_nobody_beside_it(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, error_logs: ErrorLogs
) -> None:
    waiting = [await held_pull(bench, 1 + index) for index in range(3)]
    reading = MessageStore.read
    failures = [OSError(errno.EMFILE, "too many open files")]

    def read(*arguments: Any, **options: Any) -> Any:
        if failures:
            raise failures.pop()
        return reading(*arguments, **options)

    monkeypatch.setattr(MessageStore, "read", read)
    await bench.client.send(b"x")
    unlucky, *others = await asyncio.gather(*waiting, return_exceptions=True)
    assert isinstance(unlucky, Refused)
    assert unlucky.code == ResponseCode.SYSTEM_ERROR
    assert [pulled.bodies for pulled in others if isinstance(pulled, Pulled)] == [[b"x"]] * 2
    assert bench.broker.statistics().held_pulls == 0
    error_logs.expect("a handler failed")


async def test_a_waiting_pull_brings_what_its_group_wants_by_then(bench: Bench) -> None:
    await bench.client.heartbeat(consumer(expression="a", version=1))
    waiting = asyncio.create_task(
        bench.client.call(subscribed(sys_flag=SUSPEND, suspend_timeout_millis=LONG_MS))
    )
    await turn_until(lambda: bench.broker.statistics().held_pulls == 1)
    await bench.client.send(b"1", properties={"TAGS": "b"})
    await bench.client.heartbeat(consumer(expression="b", version=2))
    await bench.client.send(b"2", properties={"TAGS": "b"})
    assert [stored.body for stored in decode_records((await waiting).body)] == [b"1", b"2"]


async def test_a_pull_by_expression_waits_for_what_passes(bench: Bench) -> None:
    waiting = await held_pull(bench, subscription="price > 5", expression_type="SQL92")
    await bench.client.send(b"cheap", properties={"price": "1"})
    await bench.client.send(b"dear", properties={"price": "10"})
    assert (await waiting).bodies == [b"dear"]


async def test_a_pull_that_waited_long_enough_goes_home(bench: Bench) -> None:
    answer = (await bench.client.pull(hold_ms=20)).answer
    assert (answer.code, answer.next_begin_offset) == (ResponseCode.PULL_NOT_FOUND, 0)


async def test_a_pull_that_saw_only_what_it_did_not_want_goes_on_behind_it(bench: Bench) -> None:
    waiting = await held_pull(bench, subscription="wanted")
    await bench.client.send(b"1", properties={"TAGS": "other"})
    bench.broker._started.held_pulls.release(TOPIC)  # what the end of its time does, too
    answer = (await waiting).answer
    assert answer.next_begin_offset == 1


async def test_long_polling_may_be_switched_off(bench: Bench) -> None:
    await bench.client.call(UpdateBrokerConfig(body="longPollingEnable=false\nshortPollingTimeMills=20\n"))
    answer = (await bench.client.pull(hold_ms=LONG_MS)).answer
    assert answer.code == ResponseCode.PULL_NOT_FOUND


async def test_a_pull_that_waits_is_let_go_when_its_topic_is_deleted(bench: Bench) -> None:
    waiting = await held_pull(bench)
    await bench.client.call(DeleteTopicFromBroker(topic=TOPIC))
    with pytest.raises(Refused, match=str(ResponseCode.TOPIC_NOT_EXIST.value)):
        await waiting
    assert (await bench.client.refusal(pull())).code == ResponseCode.TOPIC_NOT_EXIST


async def test_a_batch_and_a_oneway_wake_as_well(bench: Bench) -> None:
    waiting = await held_pull(bench)
    await bench.client.send_batch(b"a", b"b")
    assert (await waiting).bodies == [b"a", b"b"]
    waiting = asyncio.create_task(bench.client.pull(2, hold_ms=LONG_MS))
    await turn_until(lambda: bench.broker.statistics().held_pulls == 1)
    await bench.client.send_oneway(message(b"c"))
    assert (await waiting).bodies == [b"c"]


@pytest.mark.parametrize("form", HeaderForm)
async def test_a_synchronously_flushed_message_wakes_once_it_is_safe(
    tmp_path: Path, form: HeaderForm
) -> None:
    async with Bench(tmp_path, form, store={"flush_disk_type": "SYNC_FLUSH"}) as bench:
        await bench.client.create_topic()
        waiting = await held_pull(bench)
        await bench.client.send(b"safe")
        assert (await waiting).bodies == [b"safe"]


async def test_a_pull_whose_client_goes_is_forgotten(bench: Bench) -> None:
    leaving = await bench.new_client("leaving")
    waiting = asyncio.create_task(leaving.pull(hold_ms=LONG_MS))
    await turn_until(lambda: bench.broker.statistics().held_pulls == 1)
    await leaving.close()
    with pytest.raises(ConnectionLost):
        await waiting
    await turn_until(lambda: bench.broker.statistics().traffic.in_flight == 0)
    assert bench.broker.statistics().held_pulls == 0
