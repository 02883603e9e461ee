"""Producers at the gRPC front: routes, settings, sends of every type, transactions, and their refusals."""

import time
from collections.abc import AsyncIterator, Iterator
from typing import Any

import grpc
import grpc.aio
import pytest
from tests.support.front import SharedFront, front_in_thread, read_all, user
from tests.support.front_user import CLIENT_TYPES, CODES, MESSAGE_TYPES, FrontUser, Resource, Settings

from pyromq.protocol.requests.groups import GroupRetryPolicy, GroupRetryPolicyType
from pyromq.proxy.messages import message

RESOLUTIONS = {"commit": 1, "rollback": 2}


@pytest.fixture(scope="module")
def running() -> Iterator[SharedFront]:
    with front_in_thread(
        transaction_timeout_ms=1000,
        transaction_check_interval_ms=200,
        transaction_op_interval_ms=100,
        recalls=True,
    ) as started:
        yield started


@pytest.fixture
async def producer(running: SharedFront, request: pytest.FixtureRequest) -> AsyncIterator[FrontUser]:
    async with user(running.target, f"client-of-{request.node.name}") as client:
        yield client


def _endpoints(host: str = "127.0.0.1", port: int = 1) -> Any:
    endpoints = message("Endpoints")(scheme=1)
    endpoints.addresses.add(host=host, port=port)
    return endpoints


async def test_a_route_leads_back_to_the_front(running: SharedFront, producer: FrontUser) -> None:
    await running.create_topic("RouteTest", "FIFO", queues=3)
    answer = await producer.call("QueryRoute", topic=Resource(name="RouteTest"), endpoints=_endpoints())
    assert CODES[answer.status.code] == "OK"
    assert [queue.id for queue in answer.message_queues] == [0, 1, 2]
    first = answer.message_queues[0]
    assert (first.broker.name, first.broker.id, first.permission) == ("broker-a", 0, 4)
    assert list(first.accept_message_types) == [MESSAGE_TYPES["FIFO"]]
    address = first.broker.endpoints.addresses[0]
    assert f"{address.host}:{address.port}" == running.target


async def test_a_route_says_which_messages_its_topic_takes(running: SharedFront, producer: FrontUser) -> None:
    for kind in ("DELAY", "PRIORITY"):
        await running.create_topic(f"Route{kind}", kind)
        answer = await producer.call(
            "QueryRoute", topic=Resource(name=f"Route{kind}"), endpoints=_endpoints()
        )
        assert list(answer.message_queues[0].accept_message_types) == [MESSAGE_TYPES[kind]]


async def test_the_assignment_of_a_group_is_one_place_for_each_broker_or_ordered_queue(
    running: SharedFront, producer: FrontUser
) -> None:
    await running.create_topic("AssignTest", queues=3)
    await running.create_group("OrderedGroup", consume_message_orderly=True)
    asked = {"topic": Resource(name="AssignTest"), "endpoints": _endpoints()}
    shared = await producer.call("QueryAssignment", group=Resource(name="AnyGroup"), **asked)
    assert [each.message_queue.id for each in shared.assignments] == [-1]
    ordered = await producer.call("QueryAssignment", group=Resource(name="OrderedGroup"), **asked)
    assert [each.message_queue.id for each in ordered.assignments] == [0, 1, 2]


async def test_the_settings_of_a_producer_are_answered(producer: FrontUser) -> None:
    answer = await producer.publish()
    assert answer.backoff_policy.max_attempts == 3
    assert answer.backoff_policy.exponential_backoff.initial.ToMilliseconds() == 10
    assert (answer.publishing.max_body_size, answer.publishing.validate_message_type) == (
        4 * 1024 * 1024,
        True,
    )
    assert answer.HasField("metric")


async def test_the_settings_of_a_consumer_have_the_retries_of_its_group(
    running: SharedFront, producer: FrontUser
) -> None:
    await running.create_group("SettledGroup", consume_message_orderly=True, retry_max_times=2)
    answer = await producer.subscribe("SettledGroup", "AnyTopic")
    assert answer.backoff_policy.max_attempts == 3
    delays = [each.seconds for each in answer.backoff_policy.customized_backoff.next]
    assert (delays[:4], delays[-1], len(delays)) == ([1, 5, 10, 30], 7200, 18)
    assert (answer.subscription.fifo, answer.subscription.receive_batch_size) == (True, 32)
    assert answer.subscription.long_polling_timeout.seconds == 20


async def test_a_group_whose_retries_wait_ever_longer_need_not_say_how_long(
    running: SharedFront, producer: FrontUser
) -> None:
    growing = GroupRetryPolicy(type=GroupRetryPolicyType.EXPONENTIAL)
    await running.create_group("GrowingGroup", group_retry_policy=growing)
    answer = await producer.subscribe("GrowingGroup", "AnyTopic")
    backoff = answer.backoff_policy.exponential_backoff
    assert (backoff.initial.seconds, backoff.max.seconds, backoff.multiplier) == (5, 7200, 2)


@pytest.mark.parametrize("kind", ["LITE_PUSH_CONSUMER", "LITE_SIMPLE_CONSUMER"])
async def test_a_consumer_of_lite_topics_is_not_served_as_an_ordinary_one(
    producer: FrontUser, kind: str
) -> None:
    settings = Settings(client_type=CLIENT_TYPES[kind])
    settings.subscription.group.name = "LiteGroup"
    with pytest.raises(grpc.aio.AioRpcError, match="does not read lite topics") as caught:
        await producer.open_stream(settings)
    assert caught.value.code() == grpc.StatusCode.INVALID_ARGUMENT


@pytest.mark.parametrize("group", ["", "CID_RMQ_SYS_X", "a b"])
async def test_a_stream_with_wrong_settings_ends(producer: FrontUser, group: str) -> None:
    settings = Settings(client_type=CLIENT_TYPES["SIMPLE_CONSUMER"])
    if group:
        settings.subscription.group.name = group
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await producer.open_stream(settings)
    assert caught.value.code() == grpc.StatusCode.INVALID_ARGUMENT


async def test_a_client_is_known_from_its_settings_to_its_goodbye(producer: FrontUser) -> None:
    assert await producer.code("NotifyClientTermination") == "UNRECOGNIZED_CLIENT_TYPE"
    await producer.publish()
    assert await producer.code("Heartbeat", client_type=1) == "OK"
    assert await producer.code("Heartbeat", client_type=0) == "UNRECOGNIZED_CLIENT_TYPE"
    assert await producer.code("NotifyClientTermination") == "OK"
    assert await producer.code("NotifyClientTermination") == "UNRECOGNIZED_CLIENT_TYPE"


async def test_a_sent_message_is_stored_with_all_it_has(running: SharedFront, producer: FrontUser) -> None:
    await running.create_topic("SendTest")
    sent = producer.message(
        "SendTest",
        b"hello",
        tag="blue",
        keys=["k1", "k2"],
        trace_context="tc",
        properties={"colour": "ultramarine"},
    )
    answer = await producer.send(sent)
    assert CODES[answer.status.code] == "OK"
    (entry,) = answer.entries
    assert entry.message_id == entry.transaction_id == sent.system_properties.message_id
    (found,) = await read_all(running.namesrv, "SendTest", 1)
    assert (found.body, found.tags, found.keys) == (b"hello", "blue", ("k1", "k2"))
    assert found.get("colour") == "ultramarine"
    assert found.get("UNIQ_KEY") == entry.message_id
    assert found.get("__BORNHOST") == "127.0.0.1"


async def test_several_messages_of_one_request_have_an_answer_each(
    running: SharedFront, producer: FrontUser
) -> None:
    await running.create_topic("SeveralTest")
    answer = await producer.send(*(producer.message("SeveralTest", b"x" * size) for size in (1, 2, 3)))
    assert len({entry.message_id for entry in answer.entries}) == 3
    assert len(await read_all(running.namesrv, "SeveralTest", 3)) == 3


async def test_messages_of_one_group_go_to_one_queue(running: SharedFront, producer: FrontUser) -> None:
    await running.create_topic("FifoTest", "FIFO", queues=8)
    for number in range(10):
        sent = producer.message("FifoTest", b"x" * (number + 1), message_group="orders", message_type=2)
        assert CODES[(await producer.send(sent)).status.code] == "OK"
    found = await read_all(running.namesrv, "FifoTest", 10)
    assert len({each.queue.queue_id for each in found}) == 1
    assert [len(each.body) for each in found] == list(range(1, 11))


async def test_a_delayed_message_has_a_handle_and_can_be_recalled(
    running: SharedFront, producer: FrontUser
) -> None:
    await running.create_topic("DelayTest", "DELAY")
    later = int(time.time() * 1000) + 3_600_000
    sent = producer.message("DelayTest", b"later", deliver_ms=later, message_type=3)
    (entry,) = (await producer.send(sent)).entries
    assert entry.recall_handle
    recalled = await producer.call(
        "RecallMessage", topic=Resource(name="DelayTest"), recall_handle=entry.recall_handle
    )
    assert (CODES[recalled.status.code], recalled.message_id) == ("OK", entry.message_id)
    assert await producer.code("RecallMessage", topic=Resource(name="DelayTest"), recall_handle="junk") == (
        "INTERNAL_SERVER_ERROR"
    )


@pytest.mark.parametrize("resolution", ["commit", "rollback"])
async def test_a_transaction_ends_as_its_producer_says(
    running: SharedFront, producer: FrontUser, resolution: str
) -> None:
    topic = f"Transaction-{resolution}"
    await running.create_topic(topic, "TRANSACTION")
    await producer.publish(topic)
    (entry,) = (await producer.send(producer.message(topic, b"half", message_type=4))).entries
    ended = {
        "topic": Resource(name=topic),
        "message_id": entry.message_id,
        "transaction_id": entry.transaction_id,
    }
    assert (
        await producer.code("EndTransaction", resolution=RESOLUTIONS[resolution], source=1, **ended) == "OK"
    )
    # It can be ended only once here.
    assert await producer.code("EndTransaction", resolution=1, source=1, **ended) == "INTERNAL_SERVER_ERROR"
    if resolution == "commit":
        assert [each.body for each in await read_all(running.namesrv, topic, 1)] == [b"half"]


@pytest.mark.parametrize("topic", ["CheckTest", "NS%CheckTest"])
async def test_a_broker_asks_for_the_end_of_a_transaction_on_the_stream(
    running: SharedFront, producer: FrontUser, topic: str
) -> None:
    await running.create_topic(topic, "TRANSACTION")
    await producer.publish(topic)
    sent = producer.message(topic, b"orphan", message_type=4, properties={"mine": "yes"})
    await producer.send(sent)
    asked = (await producer.stream.read()).recover_orphaned_transaction_command
    assert asked.message.body == b"orphan"
    assert dict(asked.message.user_properties) == {"mine": "yes"}
    assert asked.message.system_properties.message_id == sent.system_properties.message_id
    code = await producer.code(
        "EndTransaction",
        topic=Resource(name=asked.message.topic.name),
        message_id=asked.message.system_properties.message_id,
        transaction_id=asked.transaction_id,
        resolution=RESOLUTIONS["commit"],
        source=2,
    )
    assert code == "OK"
    assert [each.body for each in await read_all(running.namesrv, topic, 1)] == [b"orphan"]


@pytest.mark.parametrize(
    ("system", "code"),
    [
        ({"tag": "a|b"}, "ILLEGAL_MESSAGE_TAG"),
        ({"tag": " "}, "ILLEGAL_MESSAGE_TAG"),
        ({"keys": ["\x01"]}, "ILLEGAL_MESSAGE_KEY"),
        ({"message_group": "g" * 64}, "ILLEGAL_MESSAGE_GROUP"),
        ({"message_group": ""}, "ILLEGAL_MESSAGE_GROUP"),
        ({"message_id": ""}, "ILLEGAL_MESSAGE_ID"),
        ({"properties": {"TAGS": "x"}}, "ILLEGAL_MESSAGE_PROPERTY_KEY"),
        ({"properties": {"a": "\x02"}}, "ILLEGAL_MESSAGE_PROPERTY_KEY"),
        ({"properties": {f"p{n}": "" for n in range(129)}}, "MESSAGE_PROPERTIES_TOO_LARGE"),
        ({"properties": {"p": "x" * 16_384}}, "MESSAGE_PROPERTIES_TOO_LARGE"),
        ({"body": b""}, "MESSAGE_BODY_EMPTY"),
        ({"body": b"x" * (4 * 1024 * 1024 + 1)}, "MESSAGE_BODY_TOO_LARGE"),
        ({"deliver_ms": int(time.time() * 1000) + 90_000_000}, "ILLEGAL_DELIVERY_TIME"),
        ({"message_group": "g"}, "MESSAGE_PROPERTY_CONFLICT_WITH_TYPE"),
        ({"deliver_ms": 1}, "MESSAGE_PROPERTY_CONFLICT_WITH_TYPE"),
        ({"message_type": 4}, "MESSAGE_PROPERTY_CONFLICT_WITH_TYPE"),
        ({"priority": 1}, "MESSAGE_PROPERTY_CONFLICT_WITH_TYPE"),
        ({"priority": -1}, "BAD_REQUEST"),
        ({"topic": "RMQ_SYS_TRANS_HALF_TOPIC"}, "ILLEGAL_TOPIC"),
        ({"topic": "a b"}, "ILLEGAL_TOPIC"),
        ({"topic": "NoSuchTopic"}, "TOPIC_NOT_FOUND"),
    ],
)
async def test_a_message_that_cannot_be_sent_is_refused_with_the_code_that_clients_know(
    running: SharedFront, producer: FrontUser, system: dict[str, Any], code: str
) -> None:
    await running.create_topic("RefusedTest")
    system = dict(system)
    sent = producer.message(system.pop("topic", "RefusedTest"), system.pop("body", b"body"), **system)
    answer = await producer.send(sent)
    assert CODES[answer.status.code] == code
    assert not answer.entries


async def test_keys_without_text_are_passed_over(running: SharedFront, producer: FrontUser) -> None:
    await running.create_topic("KeysTest")
    assert CODES[(await producer.send(producer.message("KeysTest", keys=["", "k-1"]))).status.code] == "OK"
    assert [each.keys for each in await read_all(running.namesrv, "KeysTest", 1)] == [("k-1",)]


async def test_a_message_of_the_wrong_type_is_refused_with_the_command_that_mends_it(
    running: SharedFront, producer: FrontUser
) -> None:
    await running.create_topic("TypeTest", "NORMAL")
    answer = await producer.send(producer.message("TypeTest", message_group="g"))
    assert "which takes NORMAL" in answer.status.message
    assert "mqadmin updateTopic" in answer.status.message
    assert "-t TypeTest -a +message.type=FIFO" in answer.status.message


async def test_other_requests_are_refused_with_the_codes_that_clients_know(producer: FrontUser) -> None:
    missing = {"topic": Resource(name="NoSuchTopic"), "endpoints": _endpoints()}
    assert await producer.code("QueryRoute", **missing) == "TOPIC_NOT_FOUND"
    assert await producer.code("QueryAssignment", group=Resource(name="g"), **missing) == "TOPIC_NOT_FOUND"
    assert await producer.code("SendMessage") == "MESSAGE_CORRUPTED"
    mixed = [producer.message("RefusedTest"), producer.message("TypeTest")]
    assert await producer.code("SendMessage", messages=mixed) == "MESSAGE_CORRUPTED"
    assert (
        await producer.code("EndTransaction", topic=Resource(name="RefusedTest")) == "INVALID_TRANSACTION_ID"
    )
    for metadata in ([], [("x-mq-client-id", "")], [("x-mq-client-id", "  ")]):
        producer.metadata = metadata
        assert await producer.code("QueryRoute", **missing) == "CLIENT_ID_REQUIRED"


async def test_rpcs_that_no_client_uses_are_not_implemented(producer: FrontUser) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await producer.call("GetOffset")
    assert caught.value.code() == grpc.StatusCode.UNIMPLEMENTED
