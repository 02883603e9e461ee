"""Order by key: many keys at once over one queue, each in its order."""

import asyncio
import threading
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from tests.support.consumer_cluster import TIMEOUT_S, ConsumerCluster, Received, consumer_cluster
from tests.support.killable_consumer import start_killable_consumer
from tests.support.loop import turn_until

import pyromq
from pyromq import ReceivedMessage, aio
from pyromq.client.consumer.reading.in_flight import LOCK_EXPIRES_S
from pyromq.errors import ConfigError
from pyromq.testing import RunningCluster

KEYS = 100


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[ConsumerCluster]:
    async with consumer_cluster(tmp_path) as running, asyncio.timeout(TIMEOUT_S):
        yield running


async def send_by_key(cluster: ConsumerCluster, keys: int, each: int, queues: int = 1) -> int:
    """Messages `key/number`, the numbers of a key in order; returns how many."""
    await cluster.create_topic("Orders", queues=queues)
    producer = await cluster.producer()
    for number in range(each):
        for key in range(keys):
            message = aio.Message("Orders", f"{key}/{number}".encode(), keys=["other"])
            await producer.send(message, sharding_key=f"k{key}")
    return keys * each


def place(message: ReceivedMessage) -> tuple[int, int]:
    key, number = message.body.decode().split("/")
    return int(key), int(number)


def by_key(messages: list[ReceivedMessage]) -> dict[int, list[int]]:
    found: dict[int, list[int]] = defaultdict(list)
    for message in messages:
        key, number = place(message)
        found[key].append(number)
    return found


async def test_a_hundred_keys_of_one_queue_are_handled_at_once(cluster: ConsumerCluster) -> None:
    count = await send_by_key(cluster, KEYS, 3)
    consumer = aio.PushConsumer(
        "billing", cluster.namesrv, start_from="first", ordered="key", concurrency=KEYS
    )
    received, all_at_once = Received(), asyncio.Barrier(KEYS)

    @consumer.on("Orders")
    async def handle(message: ReceivedMessage) -> None:
        if place(message)[1] == 0:
            await all_at_once.wait()
        await received.take(message)

    async with consumer:
        await received.wait(lambda received: len(received.messages) == count)
    assert by_key(received.messages) == {key: [0, 1, 2] for key in range(KEYS)}


def test_so_they_are_in_plain_programs(rocketmq: RunningCluster) -> None:
    handled: dict[str, list[bytes]] = defaultdict(list)
    all_at_once, changed = threading.Barrier(KEYS), threading.Condition()
    with pyromq.Producer("tills", rocketmq.namesrv) as producer:
        queue = None
        for number in range(2):
            for key in range(KEYS):
                message = pyromq.Message("Orders", str(number).encode(), properties={"account": str(key)})
                queue = producer.send(message, queue=queue).queue if queue else producer.send(message).queue

    def account(message: ReceivedMessage) -> str | None:
        return message.get("account")

    consumer = pyromq.PushConsumer(
        "billing", rocketmq.namesrv, start_from="first", ordered=account, concurrency=KEYS
    )

    @consumer.on("Orders")
    def handle(message: ReceivedMessage) -> None:
        if message.body == b"0":
            all_at_once.wait(TIMEOUT_S)
        with changed:
            handled[account(message) or ""].append(message.body)
            changed.notify_all()

    with consumer, changed:
        assert changed.wait_for(lambda: sum(map(len, handled.values())) == 2 * KEYS, TIMEOUT_S)
    assert handled == {str(key): [b"0", b"1"] for key in range(KEYS)}


@pytest.mark.parametrize("is_async", [True, False])
async def test_a_key_that_fails_waits_alone_and_keeps_its_order(
    cluster: ConsumerCluster, is_async: bool
) -> None:
    count = await send_by_key(cluster, 10, 10)
    consumer = aio.PushConsumer(
        "billing", cluster.namesrv, start_from="first", ordered="key", retry_backoff_s=0.01
    )
    received, done, others_done = Received(), list[tuple[int, int]](), threading.Event()

    def fail_sometimes(message: ReceivedMessage) -> None:
        key, number = place(message)
        if key == 3 and message.reconsume_times < 3 and number in (0, 4):
            raise ValueError("not yet")
        if key == 3 and not others_done.is_set():
            raise ValueError("not before the others")
        done.append((key, number))
        if len(done) == count - 10:
            others_done.set()

    def handle(message: ReceivedMessage) -> None:
        fail_sometimes(message)
        received.take_on_thread(message)

    async def handle_async(message: ReceivedMessage) -> None:
        fail_sometimes(message)
        await received.take(message)

    consumer.subscribe("Orders", "*", handle_async if is_async else handle)
    async with consumer:
        await received.wait(lambda received: len(received.messages) == count)
    assert by_key(received.messages) == {key: list(range(10)) for key in range(10)}
    assert {place(message)[0] for message in received.messages[-10:]} == {3}


async def test_after_its_retries_a_message_is_a_dead_letter_and_its_key_goes_on(
    cluster: ConsumerCluster,
) -> None:
    count = await send_by_key(cluster, 3, 3)
    consumer = aio.PushConsumer(
        "billing", cluster.namesrv, start_from="first", ordered="key", retry_backoff_s=0.001, max_retries=2
    )
    received = Received()

    @consumer.on("Orders")
    async def handle(message: ReceivedMessage) -> None:
        if place(message) == (1, 0):
            raise ValueError("never")
        await received.take(message)

    async with consumer, aio.DeadLetters("billing", cluster.namesrv) as letters:
        await received.wait(lambda received: len(received.messages) == count - 1)
        while not (found := await letters.list()):
            pass
        await consumer.commit()
    assert by_key(received.messages) == {0: [0, 1, 2], 1: [1, 2], 2: [0, 1, 2]}
    assert [(letter.message.body, letter.attempts) for letter in found] == [(b"1/0", 3)]
    again = Received()
    follower = aio.PushConsumer("billing", cluster.namesrv, start_from="first", ordered="key")
    follower.subscribe("Orders", "*", again.take)
    async with follower:
        await follower.wait_assigned()
        (sent,) = await cluster.send("Orders", 1)
        await again.wait_for_all([sent])
    assert again.bodies == [sent], "the offset has passed everything else"


async def test_no_key_is_handled_twice_at_once_and_none_skips_a_message_when_queues_move(
    cluster: ConsumerCluster,
) -> None:
    handled: dict[int, list[int]] = defaultdict(list)
    running: set[int] = set()
    wrong: list[tuple[int, int]] = []

    def member() -> aio.PushConsumer:
        consumer = aio.PushConsumer("billing", cluster.namesrv, start_from="first", ordered="key")

        @consumer.on("Orders")
        async def handle(message: ReceivedMessage) -> None:
            key, number = place(message)
            if key in running or number > max(handled[key], default=-1) + 1:
                wrong.append((key, number))
            running.add(key)
            await asyncio.sleep(0.001)
            running.discard(key)
            handled[key].append(number)

        return consumer

    count = await send_by_key(cluster, 20, 30, queues=4)
    async with AsyncExitStack() as members:
        for part in range(1, 5):
            await members.enter_async_context(member())
            await turn_until(lambda: sum(map(len, handled.values())) > count * part // 10)  # noqa: B023
        async with member():
            await turn_until(lambda: sum(map(len, handled.values())) > count * 6 // 10)
        await turn_until(lambda: all(max(handled[key], default=0) == 29 for key in range(20)))
    assert wrong == []
    assert {key: sorted(set(numbers)) for key, numbers in handled.items()} == {
        key: list(range(30)) for key in range(20)
    }


async def test_a_member_that_is_killed_while_a_key_fails_skips_nothing(cluster: ConsumerCluster) -> None:
    count = await send_by_key(cluster, 5, 5)
    victim = await start_killable_consumer(cluster.namesrv, ordered="key", failing="2/1")
    try:
        assert victim.stdout is not None
        seen = {(await victim.stdout.readline()).decode().strip() for _ in range(count - 4)}
    finally:
        victim.kill()
        await victim.communicate()
    assert seen == {f"{key}/{number}" for key in range(5) for number in range(5 if key != 2 else 1)}
    # A minute later its broker gives its locks to others.
    cluster.clock.advance(LOCK_EXPIRES_S)
    survivor = aio.PushConsumer("billing", cluster.namesrv, start_from="first", ordered="key")
    received = Received()
    survivor.subscribe("Orders", "*", received.take)
    async with survivor:
        await received.wait_for_all([f"{key}/4" for key in range(5)])
    assert by_key(received.messages)[2][-4:] == [1, 2, 3, 4]
    for numbers in by_key(received.messages).values():
        assert numbers == list(range(numbers[0], 5)), "what comes again is in order"


def test_wrong_orders_are_refused() -> None:
    wrong: Any = "keys"
    with pytest.raises(ConfigError, match='"key" or a function'):
        aio.PushConsumer("billing", "a:1", ordered=wrong)
    with pytest.raises(ConfigError, match='True or False with mode="pop"'):
        aio.PushConsumer("billing", "a:1", ordered="key", mode="pop")
