"""Lite topics at the gRPC front: sends, subscriptions, receives, notices and dead letters."""

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest
from tests.support.access import ALICE
from tests.support.front import SharedFront, front, front_in_thread, read_all, user
from tests.support.front_user import CODES, LITE_ACTIONS, MESSAGE_TYPES, FrontUser, Resource
from tests.support.guarded_servers import BOB

from pyromq.protocol.requests.access import PolicyEntryInfo
from pyromq.protocol.requests.lite import GetLiteClientInfo
from pyromq.protocol.requests.membership import GetConsumerConnections, MessageModel
from pyromq.remoting.access.users_file import UsersFile
from pyromq.security.users import PolicyType, User, UserRules, entry_of

ON = {"light_queues": True, "multi_dispatch": True}
ADD, REMOVE, ALL = "PARTIAL_ADD", "PARTIAL_REMOVE", "COMPLETE_ADD"
SETTINGS = {
    "min_invisible_ms": 1000,
    "min_polling_ms": 200,
    "default_invisible_ms": 1500,
    "renew_ahead_ms": 1000,
    "renew_interval_ms": 100,
    "invisible_when_gone_ms": 100,
    "cache_refresh_seconds": 1,
}


@pytest.fixture(scope="module")
def running() -> Iterator[SharedFront]:
    with front_in_thread(settings=SETTINGS, **ON) as started:
        yield started


@pytest.fixture
async def client(running: SharedFront, request: pytest.FixtureRequest) -> AsyncIterator[FrontUser]:
    async with user(running.target, f"client-of-{request.node.name}") as joined:
        yield joined


async def _prepare(
    running: Any,
    client: FrontUser,
    name: str,
    *subscribed: str,
    kind: str = "LITE_PUSH_CONSUMER",
    **attributes: str,
) -> tuple[str, str]:
    """A topic of type LITE, and a group of which this client is a member."""
    topic, group = f"{name}Topic", f"{name}Group"
    await running.create_topic(topic, "LITE", queues=2)
    named = {"+lite.bind.topic": topic} | {f"+lite.{key}": value for key, value in attributes.items()}
    await running.create_group(group, attributes=named, retry_max_times=1)
    await client.subscribe(group, topic, kind=kind)
    if subscribed:
        assert await client.sync(ADD, group, topic, *subscribed) == "OK"
    return topic, group


def _lite(client: FrontUser, topic: str, lite_topic: str, body: bytes, **system: Any) -> Any:
    return client.message(topic, body, lite_topic=lite_topic, message_type=MESSAGE_TYPES["LITE"], **system)


async def _put(client: FrontUser, topic: str, lite_topic: str, *bodies: bytes) -> None:
    for body in bodies:
        assert CODES[(await client.send(_lite(client, topic, lite_topic, body))).status.code] == "OK"


@pytest.mark.parametrize("kind", ["LITE_PUSH_CONSUMER", "LITE_SIMPLE_CONSUMER"])
async def test_a_message_arrives_with_the_lite_topic_that_it_was_sent_to(
    running: SharedFront, client: FrontUser, kind: str
) -> None:
    topic, group = await _prepare(running, client, f"Whole-{kind}", "s-1", kind=kind)
    await _put(client, topic, "s-1", b"one", b"two")
    await _put(client, topic, "s-2", b"foreign")
    received = await client.receive(group, topic)
    assert received.bodies == [b"one", b"two"]
    system = received.messages[1].system_properties
    assert (system.lite_topic, system.queue_offset, system.delivery_attempt) == ("s-1", 1, 1)
    assert system.message_type == MESSAGE_TYPES["LITE"]
    assert dict(received.messages[1].user_properties) == {}
    assert await client.ack(group, topic, *received.messages) == ["OK", "OK"]
    assert (await client.receive(group, topic, wait_s=1)).code == "MESSAGE_NOT_FOUND"
    assert sorted(each.body for each in await read_all(running.namesrv, topic, 3)) == [
        b"foreign",
        b"one",
        b"two",
    ]


async def test_messages_and_topics_must_be_of_the_same_type(running: SharedFront, client: FrontUser) -> None:
    topic, _ = await _prepare(running, client, "Typed")
    await running.create_topic("TypedPlain")
    later_ms = time.time_ns() // 1_000_000 + 60_000
    half = client.message(topic, b"1", lite_topic="a", message_type=MESSAGE_TYPES["TRANSACTION"])
    for message, code in (
        (client.message(topic), "MESSAGE_PROPERTY_CONFLICT_WITH_TYPE"),
        (_lite(client, "TypedPlain", "a", b"1"), "MESSAGE_PROPERTY_CONFLICT_WITH_TYPE"),
        (_lite(client, topic, "a", b"1", message_group="g"), "MESSAGE_PROPERTY_CONFLICT_WITH_TYPE"),
        (_lite(client, topic, "a", b"1", priority=1), "MESSAGE_PROPERTY_CONFLICT_WITH_TYPE"),
        (_lite(client, topic, "a", b"1", deliver_ms=later_ms), "MESSAGE_PROPERTY_CONFLICT_WITH_TYPE"),
        (half, "MESSAGE_PROPERTY_CONFLICT_WITH_TYPE"),
        (_lite(client, topic, "a$b", b"1"), "ILLEGAL_LITE_TOPIC"),
        (_lite(client, topic, "a" * 65, b"1"), "ILLEGAL_LITE_TOPIC"),
        (_lite(client, topic, "a", b"1"), "OK"),
    ):
        assert CODES[(await client.send(message)).status.code] == code
    route = await client.call("QueryRoute", topic=Resource(name=topic))
    assert list(route.message_queues[0].accept_message_types) == [MESSAGE_TYPES["LITE"]]


async def test_all_messages_of_a_lite_topic_go_to_one_queue(running: SharedFront, client: FrontUser) -> None:
    topic, group = await _prepare(running, client, "Queued", "s")
    await _put(client, topic, "s", *(b"%d" % number for number in range(5)))
    found = await read_all(running.namesrv, topic, 5)
    assert len({each.queue.queue_id for each in found}) == 1
    assert (await client.receive(group, topic)).bodies == [b"0", b"1", b"2", b"3", b"4"]


async def test_a_waiting_receive_gets_the_first_message_of_a_lite_topic(
    running: SharedFront, client: FrontUser
) -> None:
    topic, group = await _prepare(running, client, "Waiting", "s")
    waiting = asyncio.create_task(client.receive(group, topic, wait_s=15))
    await _put(client, topic, "s", b"now")
    assert (await waiting).bodies == [b"now"]


async def test_the_settings_of_a_lite_consumer_say_its_limits(
    running: SharedFront, client: FrontUser
) -> None:
    topic, group = await _prepare(running, client, "Limited", **{"sub.client.quota": "7"})
    settings = (await client.subscribe(group, topic, kind="LITE_PUSH_CONSUMER")).subscription
    assert (settings.lite_subscription_quota, settings.max_lite_topic_size) == (7, 64)
    assert await client.sync(ADD, group, topic, *map(str, range(7))) == "OK"
    assert await client.sync(ADD, group, topic, "one-more") == "LITE_SUBSCRIPTION_QUOTA_EXCEEDED"


async def test_subscriptions_are_checked(running: SharedFront, client: FrontUser) -> None:
    topic, group = await _prepare(running, client, "Checked")
    await running.create_topic("CheckedOther", "LITE")
    for action in (ADD, REMOVE, ALL, "COMPLETE_REMOVE"):
        assert await client.sync(action, group, topic, "x y") == "ILLEGAL_LITE_TOPIC"
    assert await client.sync(ADD, group, "CheckedOther", "a") == "ILLEGAL_TOPIC"
    assert await client.sync(ADD, "unbound", topic, "a") == "ILLEGAL_TOPIC"


@pytest.mark.parametrize(("kind", "is_bound"), [("PUSH_CONSUMER", True), ("LITE_PUSH_CONSUMER", False)])
async def test_a_client_of_another_kind_than_its_group_is_refused(
    running: SharedFront, client: FrontUser, kind: str, is_bound: bool
) -> None:
    name = f"Kind{is_bound}"
    await running.create_topic(f"{name}Topic", "LITE")
    await running.create_group(
        f"{name}Group", attributes={"+lite.bind.topic": f"{name}Topic"} if is_bound else {}
    )
    with pytest.raises(grpc.aio.AioRpcError, match="lite topics"):
        await client.subscribe(f"{name}Group", f"{name}Topic", kind=kind)


async def test_one_assignment_for_each_broker_also_in_an_orderly_group(
    running: SharedFront, client: FrontUser
) -> None:
    topic, group = await _prepare(running, client, "Assigned")
    await running.create_group(group, attributes={"+lite.bind.topic": topic}, consume_message_orderly=True)
    answer = await client.call("QueryAssignment", topic=Resource(name=topic), group=Resource(name=group))
    assert [each.message_queue.id for each in answer.assignments] == [-1]


async def test_a_client_is_told_what_another_one_took_from_it(
    running: SharedFront, client: FrontUser
) -> None:
    topic, group = await _prepare(running, client, "Taken", "s", **{"sub.model": "Exclusive"})
    async with user(running.target, "the-next-owner") as other:
        await other.subscribe(group, topic, kind="LITE_PUSH_CONSUMER")
        assert await other.sync(ADD, group, topic, "s") == "OK"
        command = await client.stream.read()
        assert command.notify_unsubscribe_lite_command.lite_topic == "s"
        await _put(client, topic, "s", b"1")
        assert (await client.receive(group, topic, wait_s=1)).code == "MESSAGE_NOT_FOUND"
        assert (await other.receive(group, topic)).bodies == [b"1"]


async def test_a_message_that_is_hidden_comes_again_and_counts(
    running: SharedFront, client: FrontUser
) -> None:
    topic, group = await _prepare(running, client, "Again", "s")
    await _put(client, topic, "s", b"bad", b"good")
    bad, good = (await client.receive(group, topic)).messages
    answer = await client.change(group, topic, bad, 1, suspend=True)
    assert CODES[answer.status.code] == "OK"
    bad, good = (await client.receive(group, topic, wait_s=15)).messages
    assert bad.system_properties.delivery_attempt == 1
    assert await client.ack(group, topic, good) == ["OK"]
    assert CODES[(await client.change(group, topic, bad, 1)).status.code] == "OK"
    (again,) = (await client.receive(group, topic, wait_s=15)).messages
    assert (again.body, again.system_properties.delivery_attempt) == (b"bad", 2)
    assert await client.ack(group, topic, bad) == ["INVALID_RECEIPT_HANDLE"]
    assert await client.ack(group, topic, again) == ["OK"]


async def test_a_message_is_renewed_while_a_push_consumer_handles_it(
    running: SharedFront, client: FrontUser
) -> None:
    topic, group = await _prepare(running, client, "Renewed", "s")
    await _put(client, topic, "s", b"slow")
    (slow,) = (await client.receive(group, topic, auto_renew=True)).messages
    # Longer than its invisible time of 1.5 s.
    assert (await client.receive(group, topic, wait_s=3)).code == "MESSAGE_NOT_FOUND"
    assert await client.ack(group, topic, slow) == ["OK"]


async def test_a_message_becomes_a_dead_letter(running: SharedFront, client: FrontUser) -> None:
    topic, group = await _prepare(running, client, "Dead", "s")
    await _put(client, topic, "s", b"poison", b"fine")
    (poison, fine) = (await client.receive(group, topic)).messages
    code = await client.code(
        "ForwardMessageToDeadLetterQueue",
        group=Resource(name=group),
        topic=Resource(name=topic),
        receipt_handle=poison.system_properties.receipt_handle,
        message_id=poison.system_properties.message_id,
        delivery_attempt=2,
        max_delivery_attempts=2,
        lite_topic="s",
    )
    assert code == "OK"
    assert await client.ack(group, topic, fine) == ["OK"]
    (dead,) = await read_all(running.namesrv, f"%DLQ%{group}", 1)
    assert dead.body == b"poison"
    assert (await client.receive(group, topic, wait_s=1)).code == "MESSAGE_NOT_FOUND"


async def test_a_group_reads_everything_and_begins_where_it_wants(
    running: SharedFront, client: FrontUser
) -> None:
    topic, group = await _prepare(running, client, "Everything", **{"sub.wildcard": "true"})
    await _put(client, topic, "a", b"1")
    assert await client.sync(ALL, group, topic) == "OK"
    assert (await client.receive(group, topic)).bodies == [b"1"]
    topic, group = await _prepare(running, client, "Begin")
    await _put(client, topic, "a", b"old")
    assert await client.sync(ADD, group, topic, "a", offset_option={"policy": 2}) == "OK"
    await _put(client, topic, "a", b"new")
    assert (await client.receive(group, topic)).bodies == [b"new"]


async def test_who_says_goodbye_reads_nothing_any_more(running: SharedFront, client: FrontUser) -> None:
    topic, group = await _prepare(running, client, "Bye", "s")
    asked = GetConsumerConnections(consumer_group=group)
    assert (await running.ask_broker(asked)).body.message_model is MessageModel.LITE_SELECTIVE
    assert await client.code("NotifyClientTermination", group=Resource(name=group)) == "OK"
    info = GetLiteClientInfo(parent_topic=topic, group=group, client_id=client.client_id)
    async with asyncio.timeout(60):
        while True:
            if (await running.ask_broker(info)).body.lite_topic_count == -1:
                break
            await asyncio.sleep(0.05)


async def test_a_front_in_the_process_of_its_broker_serves_lite_topics() -> None:
    async with (
        front(settings=SETTINGS, beside=True, **ON) as running,
        user(running.target) as client,
    ):
        topic, group = await _prepare(running, client, "Beside", "s")
        await _put(client, topic, "s", b"near")
        (near,) = (await client.receive(group, topic)).messages
        assert await client.ack(group, topic, near) == ["OK"]


async def test_only_who_may_consume_subscribes_to_lite_topics(tmp_path: Path) -> None:
    rights = [
        entry_of(PolicyEntryInfo(resource=resource, actions=["Sub"], decision="Allow"))
        for resource in ("Topic:Chat", "Group:readers")
    ]
    rules = UserRules(
        {each.access_key: User(each.access_key, each.secret_key) for each in (ALICE, BOB)},
        {
            ALICE.access_key: {PolicyType.CUSTOM: tuple(rights)},
            BOB.access_key: {PolicyType.CUSTOM: tuple(rights[1:])},
        },
        decides=True,
    )
    UsersFile(tmp_path).save(rules)
    guarded = SETTINGS | {"authentication": True, "deny_by_default": True, "auth_config_path": tmp_path}
    async with front(settings=guarded, **ON) as started:
        await started.create_topic("Chat", "LITE")
        await started.create_group("readers", attributes={"+lite.bind.topic": "Chat"})
        async with user(started.target, "of-alice") as alice, user(started.target, "of-bob") as bob:
            alice.sign(ALICE.access_key, ALICE.secret_key)
            await alice.subscribe("readers", "Chat", kind="LITE_PUSH_CONSUMER")
            assert await alice.sync(ADD, "readers", "Chat", "a") == "OK"
            bob.sign(BOB.access_key, BOB.secret_key)
            await bob.publish()
            for action, names in ((ADD, ["a"]), (REMOVE, ["a"]), (ALL, [])):
                answer = await bob.call(
                    "SyncLiteSubscription",
                    action=LITE_ACTIONS[action],
                    topic=Resource(name="Chat"),
                    group=Resource(name="readers"),
                    lite_topic_set=names,
                )
                assert CODES[answer.status.code] == "UNAUTHORIZED"
                assert "bob may not Sub on Topic:Chat" in answer.status.message
