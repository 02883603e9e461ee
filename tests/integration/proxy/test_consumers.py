"""Consumers at the gRPC front: receives, acknowledgements, redeliveries, order, dead letters and renewal."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator
from typing import Any

import grpc
import grpc.aio
import pytest
from tests.support.front import SharedFront, front_in_thread, read_all, user
from tests.support.front_user import CODES, MESSAGE_TYPES, FrontUser, Resource, aged_id

from pyromq.protocol.requests.inspection import GetConsumerRunningInfo
from pyromq.protocol.requests.membership import GetConsumerConnections


@pytest.fixture(scope="module")
def running() -> Iterator[SharedFront]:
    settings = {
        "min_invisible_ms": 1000,
        "min_polling_ms": 200,
        "default_invisible_ms": 1500,
        "renew_ahead_ms": 1000,
        "renew_interval_ms": 100,
        "invisible_when_gone_ms": 100,
    }
    with front_in_thread(settings=settings) as started:
        yield started


@pytest.fixture
async def client(running: SharedFront, request: pytest.FixtureRequest) -> AsyncIterator[FrontUser]:
    async with user(running.target, f"client-of-{request.node.name}") as joined:
        yield joined


async def _prepare(
    running: SharedFront, client: FrontUser, name: str, *bodies: bytes, **group: Any
) -> tuple[str, str]:
    """A topic with messages, and a group of which this client is a member."""
    topic, members = f"{name}Topic", f"{name}Group"
    await running.create_topic(topic, "FIFO" if group.get("consume_message_orderly") else "NORMAL", queues=1)
    await running.create_group(members, **group)
    await client.subscribe(members, topic)
    for number, body in enumerate(bodies):
        system = {"message_group": "g"} if group.get("consume_message_orderly") else {}
        sent = client.message(topic, body, message_id=f"01{number:032X}", **system)
        assert CODES[(await client.send(sent)).status.code] == "OK"
    return topic, members


async def test_a_message_arrives_with_all_it_had(running: SharedFront, client: FrontUser) -> None:
    topic, group = await _prepare(running, client, "Whole")
    sent = client.message(
        topic, b"hello", tag="blue", keys=["k1", "k2"], trace_context="tc", properties={"colour": "red"}
    )
    await client.send(sent)
    received = await client.receive(group, topic)
    assert received.code == "OK"
    (found,) = received.messages
    system = found.system_properties
    assert (found.body, found.topic.name, dict(found.user_properties)) == (b"hello", topic, {"colour": "red"})
    assert (system.tag, list(system.keys), system.trace_context) == ("blue", ["k1", "k2"], "tc")
    assert system.message_id == sent.system_properties.message_id
    assert (system.body_digest.type, system.body_digest.checksum) == (2, "5D41402ABC4B2A76B9719D911017C592")
    assert (system.delivery_attempt, system.queue_id, system.queue_offset) == (1, 0, 0)
    assert await client.ack(group, topic, found) == ["OK"]


async def test_a_message_of_a_topic_with_a_namespace_is_acknowledged_under_the_name_it_comes_with(
    running: SharedFront, client: FrontUser
) -> None:
    topic, group = await _prepare(running, client, "NS%Named", b"one")
    (found,) = (await client.receive(group, topic)).messages
    assert await client.ack(group, found.topic.name, found) == ["OK"]


async def test_an_acknowledged_message_does_not_come_again(running: SharedFront, client: FrontUser) -> None:
    topic, group = await _prepare(running, client, "Acked", b"one", b"two")
    received = await client.receive(group, topic, invisible_s=1)
    assert received.bodies == [b"one", b"two"]
    assert await client.ack(group, topic, *received.messages) == ["OK", "OK"]
    assert (await client.receive(group, topic, wait_s=2)).code == "MESSAGE_NOT_FOUND"


async def test_a_message_that_is_not_acknowledged_comes_again(
    running: SharedFront, client: FrontUser
) -> None:
    topic, group = await _prepare(running, client, "Again", b"one")
    first = (await client.receive(group, topic, invisible_s=1)).messages[0]
    second = (await client.receive(group, topic, wait_s=15)).messages[0]
    assert second.body == b"one"
    assert second.topic.name == topic
    assert second.system_properties.delivery_attempt == 2
    assert second.system_properties.message_id == first.system_properties.message_id
    assert await client.ack(group, topic, first) == ["INVALID_RECEIPT_HANDLE"]
    assert await client.ack(group, topic, second) == ["OK"]


async def test_a_waiting_receive_is_answered_when_a_message_arrives(
    running: SharedFront, client: FrontUser
) -> None:
    topic, group = await _prepare(running, client, "Waiting")
    waiting = asyncio.create_task(client.receive(group, topic, wait_s=15))
    await client.send(client.message(topic, b"late"))
    assert (await waiting).bodies == [b"late"]


async def test_a_receive_waits_for_settings_that_are_on_their_way(
    running: SharedFront, client: FrontUser
) -> None:
    await running.create_topic("EarlyTopic")
    early = asyncio.create_task(client.receive("EarlyGroup", "EarlyTopic", wait_s=1))
    await asyncio.sleep(0)
    await client.subscribe("EarlyGroup", "EarlyTopic")
    assert (await early).code == "MESSAGE_NOT_FOUND"


async def test_a_changed_handle_replaces_the_one_before(running: SharedFront, client: FrontUser) -> None:
    topic, group = await _prepare(running, client, "Changed", b"one")
    first = (await client.receive(group, topic)).messages[0]
    changed = await client.change(group, topic, first, 60)
    assert CODES[changed.status.code] == "OK"
    assert changed.receipt_handle != first.system_properties.receipt_handle
    first.system_properties.receipt_handle = changed.receipt_handle
    assert await client.ack(group, topic, first) == ["OK"]


async def test_an_invisible_time_of_zero_delivers_again_at_once(
    running: SharedFront, client: FrontUser
) -> None:
    topic, group = await _prepare(running, client, "Nack", b"one")
    first = (await client.receive(group, topic, invisible_s=60)).messages[0]
    await client.change(group, topic, first, 0)
    again = (await client.receive(group, topic, wait_s=15)).messages[0]
    assert again.system_properties.delivery_attempt == 2


async def test_tags_and_sql_choose_messages(running: SharedFront, client: FrontUser) -> None:
    topic, group = await _prepare(running, client, "Filtered")
    for tag, size in (("a", 1), ("b", 2), ("a", 3)):
        await client.send(client.message(topic, b"x" * size, tag=tag, properties={"size": str(size)}))
    by_tag = await client.receive(group, topic, expression="a || c")
    assert sorted(map(len, by_tag.bodies)) == [1, 3]
    await running.create_group("SqlGroup")
    by_sql = await client.receive("SqlGroup", topic, expression="size > 1", filter_type=2)
    assert sorted(map(len, by_sql.bodies)) == [2, 3]


async def test_fields_of_bodies_choose_messages(running: SharedFront, client: FrontUser) -> None:
    bodies = (b'{"size": 1}', b"no JSON", b'{"size": 2}')
    topic, _ = await _prepare(running, client, "Bodies", *bodies)
    await running.create_group("BodyGroup")
    found = await client.receive("BodyGroup", topic, expression="body.size > 1", filter_type=2)
    assert found.bodies == [b'{"size": 2}']


async def test_two_members_share_the_messages(running: SharedFront, client: FrontUser) -> None:
    topic, group = await _prepare(running, client, "Shared", *(bytes([number]) for number in range(20)))
    async with user(running.target, "another-member") as other:
        await other.subscribe(group, topic)
        mine = await client.receive(group, topic, batch_size=10)
        theirs = await other.receive(group, topic, batch_size=10)
    assert sorted(mine.bodies + theirs.bodies) == [bytes([number]) for number in range(20)]


async def test_messages_in_order_wait_for_those_before(running: SharedFront, client: FrontUser) -> None:
    topic, group = await _prepare(running, client, "Ordered", b"1", b"2", b"3", consume_message_orderly=True)
    first = await client.receive(group, topic, batch_size=1, attempt_id="first")
    assert first.bodies == [b"1"]
    assert (await client.receive(group, topic, wait_s=0.3, attempt_id="second")).code == "MESSAGE_NOT_FOUND"
    assert await client.ack(group, topic, *first.messages) == ["OK"]
    assert (await client.receive(group, topic, wait_s=15, attempt_id="third")).bodies == [b"2", b"3"]


async def test_messages_with_a_higher_priority_come_first(running: SharedFront, client: FrontUser) -> None:
    topic, group = "PriorityTopic", "PriorityGroup"
    await running.create_topic(topic, "PRIORITY", queues=4)
    await running.create_group(group)
    await client.subscribe(group, topic)
    for number, priority in enumerate((1, 3, 0, 3, 9)):
        sent = client.message(topic, b"%d" % priority, message_id=f"01{number:032X}", priority=priority)
        assert CODES[(await client.send(sent)).status.code] == "OK"
    received = [(await client.receive(group, topic, batch_size=1)).messages[0] for _ in range(5)]
    # There are as many priorities as queues: 9 counts as 3.
    assert [each.body for each in received] == [b"3", b"3", b"9", b"1", b"0"]
    system = received[0].system_properties
    assert (system.message_type, system.priority) == (MESSAGE_TYPES["PRIORITY"], 3)
    assert not received[0].user_properties


async def test_a_message_can_be_forwarded_to_the_dead_letters(
    running: SharedFront, client: FrontUser
) -> None:
    topic, group = await _prepare(running, client, "Dead", b"one")
    (found,) = (await client.receive(group, topic)).messages
    code = await client.code(
        "ForwardMessageToDeadLetterQueue",
        group=Resource(name=group),
        topic=Resource(name=topic),
        receipt_handle=found.system_properties.receipt_handle,
        message_id=found.system_properties.message_id,
    )
    assert code == "OK"
    (dead,) = await read_all(running.namesrv, f"%DLQ%{group}", 1)
    assert dead.body == b"one"


async def test_a_message_with_too_many_attempts_becomes_a_dead_letter(
    running: SharedFront, client: FrontUser
) -> None:
    topic, group = await _prepare(running, client, "Worn", b"one", retry_max_times=1)
    for attempt in (1, 2):
        (found,) = (await client.receive(group, topic, wait_s=15)).messages
        assert found.system_properties.delivery_attempt == attempt
        await client.change(group, topic, found, 0)
    assert (await client.receive(group, topic, wait_s=1)).code == "MESSAGE_NOT_FOUND"
    (dead,) = await read_all(running.namesrv, f"%DLQ%{group}", 1)
    assert dead.body == b"one"


async def test_a_message_stays_invisible_while_a_push_consumer_handles_it(
    running: SharedFront, client: FrontUser
) -> None:
    topic, group = await _prepare(running, client, "Renewed", b"slow")
    (found,) = (await client.receive(group, topic, auto_renew=True)).messages
    # It would be visible again after 1.5 s.
    assert (await client.receive(group, topic, wait_s=2.5)).code == "MESSAGE_NOT_FOUND"
    assert await client.ack(group, topic, found) == ["OK"]


async def test_messages_of_a_client_that_says_goodbye_go_to_others_soon(
    running: SharedFront, client: FrontUser
) -> None:
    topic, group = await _prepare(running, client, "Leaving", b"one")
    async with user(running.target, "leaving-member") as other:
        await other.subscribe(group, topic, kind="PUSH_CONSUMER")
        assert (await other.receive(group, topic, auto_renew=True)).bodies == [b"one"]
        assert await other.code("NotifyClientTermination") == "OK"
    assert (await client.receive(group, topic, wait_s=15)).bodies == [b"one"]


async def test_messages_popped_for_a_client_that_gave_up_go_to_others(
    running: SharedFront, client: FrontUser
) -> None:
    topic, group = await _prepare(running, client, "GaveUp")
    # The front may answer in the very moment in which the client gives up.
    with contextlib.suppress(grpc.aio.AioRpcError):
        assert not (await client.receive(group, topic, wait_s=2, timeout=1, invisible_s=3600)).messages
    await client.send(client.message(topic, b"one"))
    assert (await client.receive(group, topic, wait_s=15)).bodies == [b"one"]


async def test_brokers_know_the_members_and_ask_them(running: SharedFront, client: FrontUser) -> None:
    topic, group = await _prepare(running, client, "Member", b"one")
    assert await client.code("Heartbeat", group=Resource(name=group), client_type=3) == "OK"
    assert await client.code("Heartbeat", client_type=3) == "ILLEGAL_CONSUMER_GROUP"
    listed = (await running.ask_broker(GetConsumerConnections(consumer_group=group))).body
    assert [each.client_id for each in listed.connection_set] == [client.client_id]
    assert listed.subscription_table[topic].sub_string == "*"

    asking = asyncio.create_task(
        running.ask_broker(
            GetConsumerRunningInfo(consumer_group=group, client_id=client.client_id, jstack_enable=True)
        )
    )
    command = await client.stream.read()
    await client.answer(command.print_thread_stack_trace_command.nonce, stack="a stack")
    assert (await asking).body.jstack == "a stack"

    assert await client.code("NotifyClientTermination", group=Resource(name=group)) == "OK"


async def test_a_client_with_a_missing_topic_is_a_member_at_the_brokers_of_the_others(
    running: SharedFront, client: FrontUser
) -> None:
    await running.create_topic("PresentTopic")
    await client.subscribe("HalfGroup", "AbsentTopic", "PresentTopic")
    assert await client.code("Heartbeat", client_type=3, group=Resource(name="HalfGroup")) == "OK"
    listed = (await running.ask_broker(GetConsumerConnections(consumer_group="HalfGroup"))).body
    assert [each.client_id for each in listed.connection_set] == [client.client_id]


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({"invisible_s": 0}, "ILLEGAL_INVISIBLE_TIME"),
        ({"invisible_s": 43_201}, "ILLEGAL_INVISIBLE_TIME"),
        ({"filter_type": 2, "expression": ""}, "ILLEGAL_FILTER_EXPRESSION"),
        ({"expression": "||"}, "ILLEGAL_FILTER_EXPRESSION"),
        ({"timeout": 0.15}, "ILLEGAL_POLLING_TIME"),
    ],
)
async def test_a_receive_that_cannot_be_served_is_refused(
    running: SharedFront, client: FrontUser, options: dict[str, Any], code: str
) -> None:
    await running.create_topic("RefusedReceives")
    await client.subscribe("RefusedGroup", "RefusedReceives")
    assert (await client.receive("RefusedGroup", "RefusedReceives", **options)).code == code


async def test_a_receive_is_answered_before_its_deadline(running: SharedFront, client: FrontUser) -> None:
    await running.create_topic("DeadlineReceives")
    await client.subscribe("DeadlineGroup", "DeadlineReceives")
    received = await client.receive("DeadlineGroup", "DeadlineReceives", wait_s=5, timeout=1.5)
    assert received.code == "MESSAGE_NOT_FOUND"


async def test_a_client_that_sent_its_settings_to_another_front_is_served(running: SharedFront) -> None:
    topic, group = "AdoptedTopic", "AdoptedGroup"
    await running.create_topic(topic)
    await running.create_group(group)
    async with user(running.target, aged_id(0)) as young, user(running.target, aged_id(60)) as moved:
        await moved.send(moved.message(topic, b"one"))
        assert (await young.receive(group, topic)).code == "UNRECOGNIZED_CLIENT_TYPE"
        received = await moved.receive(group, topic)
        assert received.bodies == [b"one"]
        assert await moved.ack(group, topic, *received.messages) == ["OK"]
        listed = (await running.ask_broker(GetConsumerConnections(consumer_group=group))).body
        assert [each.client_id for each in listed.connection_set] == [moved.client_id]


async def test_other_receives_are_refused_with_the_codes_that_clients_know(
    running: SharedFront, client: FrontUser
) -> None:
    await running.create_topic("KnownTopic")
    await client.subscribe("SomeGroup", "KnownTopic")
    assert (await client.receive("SomeGroup", "MissingTopic")).code == "TOPIC_NOT_FOUND"
    assert (await client.receive("a b", "KnownTopic")).code == "ILLEGAL_CONSUMER_GROUP"
    junk = client.message("KnownTopic", receipt_handle="junk")
    assert await client.ack("SomeGroup", "KnownTopic", junk) == ["INVALID_RECEIPT_HANDLE"]
    nothing = {"group": Resource(name="SomeGroup"), "topic": Resource(name="KnownTopic")}
    assert await client.code("AckMessage", **nothing) == "INTERNAL_SERVER_ERROR"
