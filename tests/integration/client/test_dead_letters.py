"""Dead letters in Python: listed with their reasons, sent again, dropped."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from tests.support.consumer_cluster import TIMEOUT_S, ConsumerCluster, Received, consumer_cluster

import pyromq
from pyromq import aio
from pyromq.client.namespaces import wrap
from pyromq.errors import StateError
from pyromq.protocol.dead_letters import SETTLED
from pyromq.testing import RunningCluster

NAMESPACES = pytest.mark.parametrize("namespace", [None, "shop"])


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[ConsumerCluster]:
    async with consumer_cluster(tmp_path, brokers=2) as running, asyncio.timeout(TIMEOUT_S):
        yield running


async def letters_of(letters: aio.DeadLetters, count: int) -> Sequence[aio.DeadLetter]:
    while len(found := await letters.list()) < count:
        pass
    assert len(found) == count
    return found


async def give_up(cluster: ConsumerCluster, topic: str, bodies: Sequence[str], namespace: str | None) -> str:
    """Have a member of `billing` give messages up; returns its client id."""
    await cluster.create_topic(wrap(topic, namespace))
    consumer = aio.PushConsumer(
        "billing", cluster.namesrv, start_from="first", max_retries=1, namespace=namespace
    )

    @consumer.on(topic)
    async def handle(message: aio.ReceivedMessage) -> None:
        raise ValueError(f"no stock for {message.body.decode()}")

    letters = aio.DeadLetters("billing", cluster.namesrv, namespace=namespace)
    producer = aio.Producer("tills", cluster.namesrv, namespace=namespace)
    async with letters, producer, consumer:
        before = len(await letters.list())
        for body in bodies:
            message = aio.Message(topic, body.encode(), "Created", ["k", f"o-{body}"], {"tenant": "a"})
            await producer.send(message)
        await letters_of(letters, before + len(bodies))
        return consumer.client_id


def bodies(letters: Sequence[aio.DeadLetter]) -> list[str]:
    return sorted(letter.message.body.decode() for letter in letters)


@NAMESPACES
async def test_a_letter_says_why_when_where_and_after_how_many_attempts(
    cluster: ConsumerCluster, namespace: str | None
) -> None:
    before = datetime.now(UTC)
    member = await give_up(cluster, "Orders", ["1"], namespace)
    async with aio.DeadLetters("billing", cluster.namesrv, namespace=namespace) as letters:
        (letter,) = await letters.list()
    assert (letter.topic, letter.attempts, letter.member) == ("Orders", 2, member)
    assert letter.error == "ValueError('no stock for 1')"
    assert before - timedelta(seconds=1) < letter.failed_at < datetime.now(UTC) + timedelta(seconds=1)
    message = letter.message
    assert (message.body, message.tags, message.keys) == (b"1", "Created", ("k", "o-1"))
    assert message.properties["tenant"] == "a"


async def test_letters_are_found_by_topic_time_and_reason_the_newest_first(cluster: ConsumerCluster) -> None:
    await give_up(cluster, "Orders", [str(number) for number in range(40)], None)
    await give_up(cluster, "Payments", ["a", "b"], None)
    async with aio.DeadLetters("billing", cluster.namesrv) as letters:
        every = await letters.list()
        stored = [letter.message.stored_ms for letter in every]
        assert stored == sorted(stored, reverse=True)
        assert len(every) == 42
        assert bodies(await letters.list(topic="Payments")) == ["a", "b"]
        assert bodies(await letters.list(reason="stock for 1", topic="Orders")) == sorted(
            ["1", *map(str, range(10, 20))]
        )
        assert bodies(await letters.list(limit=3)) == bodies(every[:3])
        middle_ms = stored[20]
        middle = datetime.fromtimestamp(middle_ms / 1000, UTC)
        assert len(await letters.list(since=middle)) == sum(each >= middle_ms for each in stored)
        assert len(await letters.list(until=middle)) == sum(each < middle_ms for each in stored)
    async with aio.DeadLetters("others", cluster.namesrv) as letters:
        assert await letters.list() == []


@NAMESPACES
async def test_letters_are_sent_again_to_their_group_alone_or_to_all(
    cluster: ConsumerCluster, namespace: str | None
) -> None:
    await give_up(cluster, "Orders", ["1", "2", "3"], namespace)
    received, other = Received(), Received()
    members = [
        aio.PushConsumer(group, cluster.namesrv, namespace=namespace) for group in ("billing", "mailing")
    ]
    for member, taking in zip(members, (received, other), strict=True):
        member.subscribe("Orders", "*", taking.take)
    async with aio.DeadLetters("billing", cluster.namesrv, namespace=namespace) as letters:
        async with members[0], members[1]:
            for member in members:
                await member.wait_assigned()
            by_body = {letter.message.body: letter for letter in await letters.list()}
            await letters.resend(by_body[b"1"], by_body[b"2"])
            await received.wait_for_all(["1", "2"])
            assert bodies(await letters.list()) == ["3"]
            await letters.resend(by_body[b"3"], to_topic=True)
            await received.wait_for_all(["3"])
            await other.wait_for_all(["3"])
        assert await letters.list() == []
    assert other.bodies == ["3"]
    for message in received.messages:
        assert message.topic == "Orders"
        assert (message.tags, message.keys[0], message.get("tenant")) == ("Created", "k", "a")
        assert message.get("PYROMQ_ERROR") is None, "it has not failed yet"


async def test_a_dropped_letter_is_gone_and_stays_gone(cluster: ConsumerCluster) -> None:
    await give_up(cluster, "Orders", ["1", "2", "3"], None)
    async with aio.DeadLetters("billing", cluster.namesrv) as letters:
        await letters.drop(*[each for each in await letters.list() if each.message.body != b"2"])
        assert bodies(await letters.list()) == ["2"]
    await give_up(cluster, "Orders", ["4"], None)
    async with aio.DeadLetters("billing", cluster.namesrv) as letters:
        assert bodies(await letters.list()) == ["2", "4"]
        await letters.drop(*await letters.list())
        assert await letters.list() == []


async def test_letters_that_were_sent_before_a_failure_are_settled(cluster: ConsumerCluster) -> None:
    await give_up(cluster, "Orders", ["1", "2"], None)
    async with aio.DeadLetters("billing", cluster.namesrv) as letters:
        good, bad = await letters.list()
        send = letters._send

        async def fail(letter: aio.DeadLetter, *, to_group: bool) -> None:
            if letter is bad:
                raise StateError("the broker is away")
            await send(letter, to_group=to_group)

        letters._send = fail  # type: ignore[method-assign]
        with pytest.raises(StateError, match="the broker is away"):
            await letters.resend(good, bad)
        assert bodies(await letters.list()) == bodies([bad])


def test_the_blocking_form_does_the_same(rocketmq: RunningCluster) -> None:
    with pyromq.Producer("tills", rocketmq.namesrv) as producer:
        producer.send(pyromq.Message("Orders", b"1"))
    consumer = pyromq.PushConsumer("billing", rocketmq.namesrv, start_from="first")

    @consumer.on("Orders")
    def handle(message: pyromq.ReceivedMessage) -> None:
        raise pyromq.GiveUp("no such account")

    with pyromq.DeadLetters("billing", rocketmq.namesrv) as letters:
        with consumer:
            while not (found := letters.list(topic="Orders", reason="account")):
                pass
        (letter,) = found
        assert (letter.error, letter.attempts) == ("no such account", 1)
        letters.drop(letter)
        assert not letters.list()
        letters.resend(letter, to_topic=True)
    with pyromq.PullConsumer("undertakers", rocketmq.namesrv, start_from="first") as all_letters:
        all_letters.subscribe("%DLQ%billing")
        raw = all_letters.poll(30.0, min_messages=3)
    assert [message.get(SETTLED) for message in raw] == [None, "true", "true"]
