"""Our consumers against Apache's name servers and brokers: all that Apache's servers do for a consumer."""

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from tests.support.apache import ApacheServers, wait_until
from tests.support.apache_releases import APACHE_5
from tests.support.consumer_cluster import Received

from pyromq import (
    Compression,
    GiveUp,
    Message,
    MessageQueue,
    Producer,
    PullConsumer,
    PushConsumer,
    ReceivedMessage,
    RetryLater,
    SendResult,
    Sql,
    StateError,
    aio,
)
from pyromq.admin import brokers, connections, messages, offsets
from pyromq.admin.cluster import Cluster
from pyromq.admin.failures import NotFound
from pyromq.protocol import names
from pyromq.protocol.frame import HeaderForm
from pyromq.protocol.requests.inspection import CMResult, GetConsumerStatus
from pyromq.protocol.requests.settings import UpdateBrokerConfig
from pyromq.protocol.requests.topics import CreateOrUpdateTopic

# A JVM takes its time to start, and longer on a busy machine.
pytestmark = [pytest.mark.interop, pytest.mark.timeout(600)]

# More than the two minutes for which a broker can take a member for present that has left: when, on a busy
# machine, its last heartbeat is handled after its goodbye.
TIMEOUT_S = 180.0
LOG_FILE_BYTES = 1 << 20
FILLING_BYTES = 100_000

SETTINGS = {
    "enablePropertyFilter": "true",
    "traceTopicEnable": "true",
    "messageDelayLevel": " ".join(["1s"] * 18),
    "mappedFileSizeCommitLog": str(LOG_FILE_BYTES),
    "cleanResourceInterval": "200",
}

FORMS = pytest.mark.parametrize("form", list(HeaderForm), ids=lambda form: form.name.lower())


class Apache:
    """A producer and an operator's tool beside the servers."""

    def __init__(self, servers: ApacheServers, cluster: Cluster, producer: aio.Producer) -> None:
        self.release = servers.release
        self.names = servers.names
        self.address = servers.broker.address
        self.broker_name = servers.broker.name
        self.cluster = cluster
        self.producer = producer

    async def create_topic(self, topic: str, queues: int = 1) -> list[MessageQueue]:
        """Returns when the name server knows it: brokers of 5.x tell it after they have answered."""
        request = CreateOrUpdateTopic(
            topic=topic,
            default_topic=names.AUTO_CREATE_TOPIC,
            read_queue_nums=queues,
            write_queue_nums=queues,
            perm=names.READ_WRITE,
            topic_filter_type="SINGLE_TAG",
        )
        await self.cluster.ask(self.address, request)
        await wait_for_route(self.cluster, topic)
        return [MessageQueue(topic, self.broker_name, number) for number in range(queues)]

    async def configure(self, setting: str) -> None:
        """Change a setting of the running broker; one that it does not know, it ignores."""
        await self.cluster.ask(self.address, UpdateBrokerConfig(body=setting))

    async def send(self, queue: MessageQueue, bodies: Sequence[str], **fields: Any) -> list[SendResult]:
        return [
            await self.producer.send(Message(queue.topic, body.encode(), **fields), queue=queue)
            for body in bodies
        ]

    async def lose_first_messages(self, queue: MessageQueue) -> None:
        """Fill a log file and have the broker remove it."""
        for _ in range(LOG_FILE_BYTES // FILLING_BYTES + 1):
            await self.producer.send(Message(queue.topic, os.urandom(FILLING_BYTES)), queue=queue)
        await self.configure("fileReservedTime=0")
        await brokers.delete_expired_log(self.cluster, [self.address])

        async def is_lost() -> bool:
            first, _ = await offsets.limits(self.cluster, self.address, queue)
            return first > 0

        await ask_until(is_lost, f"the loss of the first messages of {queue}")
        await self.configure("fileReservedTime=72")

    async def dead_letters(self, group: str, bodies: Sequence[str]) -> Received:
        """What became of these messages when the group gave them up."""
        topic = names.dlq_topic(group)
        await wait_for_route(self.cluster, topic)
        dead = Received(TIMEOUT_S)
        undertaker = aio.PushConsumer(f"undertaker-of-{group}", self.names, start_from="first")
        undertaker.subscribe(topic, "*", dead.take)
        async with undertaker:
            await dead.wait_for_all(bodies)
        return dead


async def wait_for_route(cluster: Cluster, topic: str) -> None:
    async def is_routed() -> bool:
        try:
            await cluster.route(topic)
        except NotFound:
            return False
        return True

    await ask_until(is_routed, f"the route of {topic}")


async def ask_until(is_reached: Callable[[], Coroutine[Any, Any, bool]], what: str) -> None:
    """Servers do not tell when they are done with these things: ask again and again."""
    loop = asyncio.get_running_loop()

    def ask() -> bool:
        return asyncio.run_coroutine_threadsafe(is_reached(), loop).result(TIMEOUT_S)

    await asyncio.to_thread(wait_until, ask, what, TIMEOUT_S)


@pytest.fixture
async def apache(servers: ApacheServers) -> AsyncIterator[Apache]:
    async with Cluster(servers.names) as cluster, aio.Producer("tills", servers.names) as producer:
        yield Apache(servers, cluster, producer)


@asynccontextmanager
async def consuming(
    apache: Apache, group: str, topic: str, expression: str | Sql = "*", **options: Any
) -> AsyncIterator[tuple[aio.PushConsumer, Received]]:
    """A member of a group that starts at the first message, and what it received."""
    received = Received(TIMEOUT_S)
    options = {"start_from": "first", **options}
    consumer = aio.PushConsumer(group, apache.names, **options)
    consumer.subscribe(topic, expression, received.take)
    async with consumer:
        yield consumer, received


async def polled(consumer: aio.PullConsumer, count: int) -> list[str]:
    bodies: list[str] = []
    async with asyncio.timeout(TIMEOUT_S):
        while len(bodies) < count:
            bodies += [message.body.decode() for message in await consumer.poll()]
    return bodies


def numbers(count: int, first: int = 0) -> list[str]:
    return [str(number) for number in range(first, first + count)]


# Messages


@FORMS
async def test_messages_arrive_as_they_were_sent(apache: Apache, form: HeaderForm) -> None:
    topic = f"Whole{form.name}"
    (queue,) = await apache.create_topic(topic)
    async with consuming(apache, topic, topic, form=form) as (_, received):
        (sent,) = await apache.send(queue, ["hello"], tags="A", keys=["k1", "k2"], properties={"c": "grün"})
        await received.wait_for_all(["hello"])
    (message,) = received.messages
    assert (message.message_id, message.offset_message_id) == (sent.message_id, sent.offset_message_id)
    assert (message.topic, message.queue, message.queue_offset) == (topic, queue, 0)
    assert (message.tags, message.keys, message.get("c")) == ("A", ("k1", "k2"), "grün")


@pytest.mark.parametrize("compression", list(Compression), ids=lambda kind: kind.name)
async def test_packed_bodies_are_unpacked(apache: Apache, compression: Compression) -> None:
    topic = f"Packed{compression.name}"
    await apache.create_topic(topic)
    body = "x" * 100_000
    async with aio.Producer("packers", apache.names, compression=compression) as producer:
        await producer.send(Message(topic, body.encode()))
    async with consuming(apache, topic, topic) as (_, received):
        await received.wait_for_all([body])


async def test_batches_come_as_single_messages(apache: Apache) -> None:
    await apache.create_topic("Batch")
    results = await apache.producer.send([Message("Batch", body.encode()) for body in numbers(40)])
    async with consuming(apache, "batch", "Batch") as (_, received):
        await received.wait_for_all(numbers(40))
    assert received.bodies == numbers(40)
    assert [m.message_id for m in received.messages] == [result.message_id for result in results]


async def test_handlers_may_take_several_messages_and_fail_in_part(apache: Apache) -> None:
    (queue,) = await apache.create_topic("Several")
    received, again = Received(TIMEOUT_S), Received(TIMEOUT_S)
    consumer = aio.PushConsumer("several", apache.names, start_from="first", batch_size=8)

    @consumer.on("Several")
    async def take(batch: list[ReceivedMessage]) -> None:
        for message in batch:
            await (again if message.reconsume_times else received).take(message)
        failed = [message for message in batch if message.body == b"3" and not message.reconsume_times]
        if failed:
            raise RetryLater(only=failed)

    await apache.send(queue, numbers(20))
    async with consumer:
        await received.wait_for_all(numbers(20))
        await again.wait_for_all(["3"])
    assert again.bodies == ["3"]


async def test_delayed_messages_come_later(apache: Apache) -> None:
    (queue,) = await apache.create_topic("Delayed")
    async with consuming(apache, "delayed", "Delayed") as (_, received):
        await apache.send(queue, ["level"], delay_level=3)
        sent = ["level"]
        if apache.release is APACHE_5:
            await apache.send(queue, ["timer"], delay_ms=1000)
            sent.append("timer")
        await received.wait_for_all(sent)
    # So the broker notes where a message belongs that waits elsewhere.
    assert [message.get("REAL_TOPIC") for message in received.messages] == ["Delayed"] * len(sent)
    assert {message.topic for message in received.messages} == {"Delayed"}


# Filters


@pytest.mark.parametrize(
    ("name", "expression"),
    [("Tags", "Paid || Created"), ("Sql", Sql("price > 10 AND colour IN ('red', 'green')"))],
)
@FORMS
async def test_only_what_is_wanted_comes(
    apache: Apache, name: str, expression: str | Sql, form: HeaderForm
) -> None:
    topic = f"Filtered{name}{form.name}"
    (queue,) = await apache.create_topic(topic)
    pull = aio.PullConsumer(f"pull-{topic}", apache.names, start_from="first", form=form)
    pull.subscribe(topic, expression)
    async with consuming(apache, topic, topic, expression, form=form) as (_, received), pull:
        await apache.send(queue, ["a"], tags="Cancelled", properties={"price": "3", "colour": "red"})
        await apache.send(queue, ["b"], tags="Paid", properties={"price": "30", "colour": "green"})
        await apache.send(queue, ["c"], tags="Cancelled", properties={"price": "30", "colour": "blue"})
        await apache.send(queue, ["d"], tags="Created", properties={"price": "11", "colour": "red"})
        await received.wait_for_all(["b", "d"])
        assert await polled(pull, 2) == ["b", "d"]
    assert received.bodies == ["b", "d"]


async def test_tags_whose_hashes_collide_are_told_apart(apache: Apache) -> None:
    (queue,) = await apache.create_topic("Collision")
    async with consuming(apache, "collision", "Collision", "Aa") as (_, received):
        await apache.send(queue, ["no"], tags="BB")
        await apache.send(queue, ["yes"], tags="Aa")
        await received.wait_for_all(["yes"])
    assert received.bodies == ["yes"]


# Members


@FORMS
async def test_members_share_the_queues_and_the_last_one_has_all(apache: Apache, form: HeaderForm) -> None:
    topic = group = f"Shared{form.name}"
    queues = await apache.create_topic(topic, queues=8)
    is_shared, is_alone = asyncio.Event(), asyncio.Event()
    received = Received(TIMEOUT_S)
    first, second = (aio.PushConsumer(group, apache.names, start_from="first", form=form) for _ in range(2))
    for consumer in (first, second):
        consumer.subscribe(topic, "*", received.take)

    def held(consumer: aio.PushConsumer) -> set[MessageQueue]:
        return {queue for queue in consumer.assigned if queue.topic == topic}

    @first.on_rebalance
    def changed(assigned: set[MessageQueue], revoked: set[MessageQueue]) -> None:
        if held(first):
            (is_alone if len(held(first)) == 8 else is_shared).set()

    async def send(first_number: int) -> list[str]:
        bodies = numbers(40, first_number)
        for number, body in enumerate(bodies):
            await apache.send(queues[number % 8], [body])
        return bodies

    async with asyncio.timeout(TIMEOUT_S), first:
        sent = await send(0)
        async with second:
            await is_shared.wait()
            await second.wait_assigned()
            assert len(held(first)) == len(held(second)) == 4
            assert held(first) | held(second) == set(queues)
            sent += await send(40)
            await received.wait_for_all(sent)
            is_alone.clear()
        await is_alone.wait()
        sent += await send(80)
        await received.wait_for_all(sent)


async def test_broadcasting_members_each_get_everything_and_remember_where_they_were(
    apache: Apache, tmp_path: Path
) -> None:
    queues = await apache.create_topic("Broadcast", queues=2)

    async def consume(name: str, wanted: list[str]) -> list[str]:
        async with consuming(
            apache, "screens", "Broadcast", broadcast=True, instance_name=name, offset_directory=tmp_path
        ) as (_, received):
            await received.wait_for_all(wanted)
        return sorted(received.bodies, key=int)

    await apache.send(queues[0], numbers(5))
    await apache.send(queues[1], numbers(5, 5))
    left, right = await asyncio.gather(consume("left", numbers(10)), consume("right", numbers(10)))
    assert left == right == numbers(10)
    await apache.send(queues[0], numbers(3, 10))
    assert await consume("left", numbers(3, 10)) == numbers(3, 10)


# Order


@FORMS
async def test_ordered_queues_stay_ordered_through_failures(apache: Apache, form: HeaderForm) -> None:
    topic = f"Ordered{form.name}"
    queues = await apache.create_topic(topic, queues=3)
    received = Received(TIMEOUT_S)
    consumer = aio.PushConsumer(
        topic, apache.names, start_from="first", ordered=True, suspend_s=0.01, form=form
    )

    @consumer.on(topic)
    async def fail_sometimes(message: ReceivedMessage) -> None:
        if int(message.body) % 5 == 0 and message.reconsume_times < 2:
            raise RuntimeError("not yet")
        await received.take(message)

    for queue in queues:
        await apache.send(queue, numbers(20))
    async with consumer:
        await received.wait(lambda received: len(received.messages) == 60)
    for queue in queues:
        assert [m.body.decode() for m in received.messages if m.queue == queue] == numbers(20)


async def test_ordered_members_hand_their_queues_over(apache: Apache) -> None:
    queues = await apache.create_topic("Handed", queues=4)
    received = Received(TIMEOUT_S)
    first, second = (aio.PushConsumer("handed", apache.names, start_from="first", ordered=True) for _ in "12")
    for consumer in (first, second):
        consumer.subscribe("Handed", "*", received.take)
    async with first:
        for queue in queues:
            await apache.send(queue, numbers(5))
        await received.wait(lambda received: len(received.messages) == 20)
        async with second:
            async with asyncio.timeout(TIMEOUT_S):
                await second.wait_assigned()
            for queue in queues:
                await apache.send(queue, numbers(5, 5))
            await received.wait(lambda received: len(received.messages) == 40)
    for queue in queues:
        assert [m.body.decode() for m in received.messages if m.queue == queue] == numbers(10)


async def test_an_ordered_message_that_fails_too_often_is_put_aside(apache: Apache) -> None:
    (queue,) = await apache.create_topic("Stuck")
    received = Received(TIMEOUT_S)
    consumer = aio.PushConsumer(
        "stuck", apache.names, start_from="first", ordered=True, max_retries=2, suspend_s=0.01
    )

    @consumer.on("Stuck")
    async def fail(message: ReceivedMessage) -> None:
        if message.body == b"b":
            raise RuntimeError("never")
        await received.take(message)

    await apache.send(queue, ["a", "b", "c"])
    async with consumer:
        await received.wait_for_all(["a", "c"])
        dead = await apache.dead_letters("stuck", ["b"])
    assert received.bodies == ["a", "c"]
    assert dead.messages[0].get("RETRY_TOPIC") == "Stuck"


# Failures


@FORMS
async def test_what_fails_comes_again_and_is_a_dead_letter_in_the_end(
    apache: Apache, form: HeaderForm
) -> None:
    topic = group = f"Failing{form.name}"
    (queue,) = await apache.create_topic(topic)
    attempts = Received(TIMEOUT_S)
    consumer = aio.PushConsumer(group, apache.names, start_from="first", max_retries=2, form=form)

    @consumer.on(topic)
    async def fail(message: ReceivedMessage) -> None:
        await attempts.take(message)
        if message.body == b"never" or message.reconsume_times == 0:
            raise RuntimeError("not yet")

    sent = await apache.send(queue, ["later", "never"])
    async with consumer:
        dead = await apache.dead_letters(group, ["never"])
    times = {
        body: [m.reconsume_times for m in attempts.messages if m.body == body]
        for body in (b"later", b"never")
    }
    assert times == {b"later": [0, 1], b"never": [0, 1, 2]}
    assert {message.topic for message in attempts.messages} == {topic}
    assert {message.message_id for message in attempts.messages} == {each.message_id for each in sent}
    assert dead.bodies == ["never"]


async def test_a_handler_can_give_a_message_up_at_once(apache: Apache) -> None:
    (queue,) = await apache.create_topic("Given")
    attempts = Received(TIMEOUT_S)
    consumer = aio.PushConsumer("given", apache.names, start_from="first")

    @consumer.on("Given")
    async def give_up(message: ReceivedMessage) -> None:
        await attempts.take(message)
        raise GiveUp("cannot be read")

    await apache.send(queue, ["a"])
    async with consumer:
        await apache.dead_letters("given", ["a"])
    assert attempts.bodies == ["a"]


# Where to start, and where to go on


async def test_a_new_group_starts_at_the_end_of_a_young_queue_whatever_its_broker_guesses(
    apache: Apache,
) -> None:
    (queue,) = await apache.create_topic("Young")
    await apache.send(queue, ["a", "b"])
    pulling = aio.PullConsumer("young-pull", apache.names, start_from="last")
    pulling.subscribe("Young")
    async with consuming(apache, "young-push", "Young", start_from="last") as (_, pushed), pulling:
        await apache.send(queue, ["c"])
        await pushed.wait_for_all(["c"])
        assert await polled(pulling, 1) == ["c"]
    assert pushed.bodies == ["c"]
    if apache.release is not APACHE_5:
        return  # brokers before 5.0 do not know pops
    simple = aio.SimpleConsumer("young-simple", apache.names, start_from="last")
    simple.subscribe("Young")
    async with consuming(apache, "young-pop", "Young", start_from="last", mode="pop") as (_, popped), simple:
        await apache.send(queue, ["d"])
        await popped.wait_for_all(["d"])
        async with asyncio.timeout(TIMEOUT_S):
            while not (found := await simple.receive()):
                pass
    assert (popped.bodies, [message.body for message in found]) == (["d"], [b"d"])


@FORMS
async def test_the_next_member_goes_on_where_the_last_one_stopped(apache: Apache, form: HeaderForm) -> None:
    topic = group = f"Resumed{form.name}"
    queues = await apache.create_topic(topic, queues=2)
    for queue in queues:
        await apache.send(queue, numbers(10))
    async with consuming(apache, group, topic, form=form) as (_, received):
        await received.wait(lambda received: len(received.messages) == 20)
    stats = await offsets.lag(apache.cluster, group, topic)
    for queue in queues:
        assert stats.offset_table[queue].consumer_offset == 10
        await apache.send(queue, ["new"])
    async with consuming(apache, group, topic, form=form) as (_, received):
        await received.wait(lambda received: len(received.messages) == 2)
    assert received.bodies == ["new", "new"]


async def test_pause_resume_and_seek(apache: Apache) -> None:
    (queue,) = await apache.create_topic("Sought")
    await apache.send(queue, ["a", "b"])
    async with consuming(apache, "sought", "Sought") as (consumer, received):
        await received.wait_for_all(["a", "b"])
        consumer.pause(queue)
        await apache.send(queue, ["c"])
        await consumer.seek(queue, 1)
        consumer.resume(queue)
        await received.wait(lambda received: len(received.messages) >= 4)
    assert received.bodies[-2:] == ["b", "c"]


# Operators


@FORMS
async def test_a_reset_by_an_operator_sends_a_running_consumer_back(apache: Apache, form: HeaderForm) -> None:
    topic = group = f"Reset{form.name}"
    (queue,) = await apache.create_topic(topic)
    await apache.send(queue, ["a", "b", "c"])
    await apache.configure("useServerSideResetOffset=false")
    async with consuming(apache, group, topic, form=form) as (consumer, received):
        await received.wait_for_all(["a", "b", "c"])
        await consumer.commit()
        moved = await offsets.reset(apache.cluster, group, topic, 0)
        assert [(each.queue, each.offset) for each in moved] == [(queue, 0)]
        await received.wait(lambda received: len(received.messages) == 6)
    assert received.bodies == ["a", "b", "c"] * 2


async def test_a_reset_that_only_the_broker_knows_of_is_found_by_the_next_pull(apache: Apache) -> None:
    if apache.release is not APACHE_5:
        pytest.skip("brokers of 4.x tell the members")
    (queue,) = await apache.create_topic("ResetThere")
    await apache.send(queue, ["a", "b", "c"])
    await apache.configure("useServerSideResetOffset=true")
    async with consuming(apache, "reset-there", "ResetThere") as (consumer, received):
        await received.wait_for_all(["a", "b", "c"])
        await consumer.commit()
        await offsets.reset(apache.cluster, "reset-there", "ResetThere", 0)
        await apache.send(queue, ["d"])  # ends the pull that waits
        await received.wait_for_all(["d"])
        await received.wait(lambda received: received.bodies[-4:] == ["a", "b", "c", "d"])


@FORMS
async def test_operators_see_what_a_consumer_does(apache: Apache, form: HeaderForm) -> None:
    topic = group = f"Watched{form.name}"
    (queue,) = await apache.create_topic(topic)
    await apache.send(queue, ["a", "b"], tags="Paid")
    async with consuming(apache, group, topic, "Paid", form=form) as (consumer, received):
        await received.wait_for_all(["a", "b"])
        await consumer.commit()
        info = await connections.running_info(
            apache.cluster, group, consumer.client_id, stacks=True, address=apache.address
        )
        request = GetConsumerStatus(topic=topic, group=group)
        status = (await apache.cluster.ask(apache.address, request)).body
        client_id = consumer.client_id
    assert info.properties["PROP_CONSUME_TYPE"] == "CONSUME_PASSIVELY"
    assert info.mq_table[queue].commit_offset == 2
    assert {each.topic: each.sub_string for each in info.subscription_set} == {
        topic: "Paid",
        names.retry_topic(group): "*",
    }
    assert info.jstack
    assert status.consumer_table == {client_id: {queue: 2}}


async def test_an_operator_has_one_message_consumed_now(apache: Apache) -> None:
    (queue,) = await apache.create_topic("Directly")
    (sent,) = await apache.send(queue, ["a"])
    async with consuming(apache, "directly", "Directly") as (consumer, received):
        await received.wait_for_all(["a"])
        message = await messages.by_id(apache.cluster, "Directly", sent.offset_message_id)
        result = await messages.consume_directly(apache.cluster, "directly", consumer.client_id, message)
    assert result.consume_result is CMResult.CR_SUCCESS
    assert received.bodies == ["a", "a"]


async def test_consumption_is_traced(apache: Apache) -> None:
    (queue,) = await apache.create_topic("Traced")
    await apache.send(queue, ["a"], keys=["o-1"])
    async with consuming(apache, "traced", "Traced", trace=True) as (_, received):
        await received.wait_for_all(["a"])
    async with consuming(apache, "auditors", "RMQ_SYS_TRACE_TOPIC") as (_, reports):
        await reports.wait(lambda reports: "".join(reports.bodies).count("\x02") == 2)
    # One report tells of both, or two that come by different queues, in any order.
    records = [record.split("\x01") for body in reports.bodies for record in body.split("\x02")[:-1]]
    assert sorted(record[0] for record in records) == ["SubAfter", "SubBefore"]
    assert all(received.messages[0].message_id in record for record in records)


async def test_requests_are_replied_to(apache: Apache) -> None:
    await apache.create_topic("Sums")
    consumer = aio.PushConsumer("adders", apache.names, start_from="first")

    @consumer.on("Sums")
    async def add(message: ReceivedMessage) -> None:
        await apache.producer.reply(message, b"%d" % sum(map(int, message.body.split())))

    async with aio.Producer("askers", apache.names) as asker, consumer:
        reply = await asker.request(Message("Sums", b"20 22"), timeout_s=TIMEOUT_S)
    assert reply.body == b"42"


async def test_names_within_a_namespace_are_the_applications_own(apache: Apache) -> None:
    await apache.create_topic("shop%Spaced")
    attempts = Received(TIMEOUT_S)
    consumer = aio.PushConsumer("spaced", apache.names, start_from="first", namespace="shop")

    @consumer.on("Spaced")
    async def fail_once(message: ReceivedMessage) -> None:
        await attempts.take(message)
        if message.reconsume_times == 0:
            raise RuntimeError("not yet")

    async with aio.Producer("tills", apache.names, namespace="shop") as producer, consumer:
        await producer.send(Message("Spaced", b"a"))
        await attempts.wait(lambda attempts: len(attempts.messages) == 2)
    assert [message.topic for message in attempts.messages] == ["Spaced", "Spaced"]


def test_threads_consume_without_a_loop(servers: ApacheServers) -> None:
    with Producer("tills", servers.names) as producer:
        for body in numbers(10):
            producer.send(Message("Blocking", body.encode()))
    pushed: list[str] = []
    with PushConsumer("blocking-push", servers.names, start_from="first") as push:
        for message in push.subscribe("Blocking"):
            pushed.append(message.body.decode())
            if len(pushed) == 10:
                break
    polled: list[str] = []
    pull = PullConsumer("blocking-pull", servers.names, start_from="first")
    pull.subscribe("Blocking")
    with pull:
        while len(polled) < 10:
            polled += [message.body.decode() for message in pull.poll()]
    assert sorted(pushed) == sorted(polled) == numbers(10)


# Pulling


@FORMS
async def test_a_subscriber_polls_every_message_and_commits(apache: Apache, form: HeaderForm) -> None:
    topic = group = f"Polled{form.name}"
    (queue,) = await apache.create_topic(topic)
    await apache.send(queue, numbers(30))

    def subscriber() -> aio.PullConsumer:
        consumer = aio.PullConsumer(group, apache.names, start_from="first", auto_commit=False, form=form)
        consumer.subscribe(topic)
        return consumer

    async with subscriber() as consumer:
        done = await consumer.poll(TIMEOUT_S, max_messages=5)
        await consumer.commit()
        assert await consumer.committed(queue) == consumer.position(queue) == len(done)
        await polled(consumer, 30 - len(done))
    async with subscriber() as consumer:
        assert await polled(consumer, 30 - len(done)) == numbers(30)[len(done) :]
        await consumer.commit({queue: 7})
        assert await consumer.committed(queue) == 7


async def test_pulling_members_share_the_queues(apache: Apache) -> None:
    queues = await apache.create_topic("PulledTogether", queues=4)
    first, second = (aio.PullConsumer("together", apache.names, start_from="first") for _ in range(2))
    is_shared, is_alone = asyncio.Event(), asyncio.Event()

    @first.on_rebalance
    def changed(assigned: set[MessageQueue], revoked: set[MessageQueue]) -> None:
        states: dict[int, Callable[[], None]] = {2: is_shared.set, 4: is_alone.set}
        states.get(len(first.assigned), lambda: None)()

    first.subscribe("PulledTogether")
    second.subscribe("PulledTogether")
    async with asyncio.timeout(TIMEOUT_S), first:
        async with second:
            await is_shared.wait()
            is_alone.clear()
        await is_alone.wait()
        for number, queue in enumerate(queues):
            await apache.send(queue, [str(number)])
        assert sorted(await polled(first, 4)) == numbers(4)


async def test_assigned_queues_are_read_sought_and_timed(apache: Apache) -> None:
    queues = await apache.create_topic("Assigned", queues=2)
    await apache.send(queues[0], numbers(5))
    await apache.send(queues[1], ["other"])
    async with aio.PullConsumer("assigned", apache.names, start_from="first") as consumer:
        assert set(await consumer.queues("Assigned")) == set(queues)
        await consumer.assign(queues[:1])
        stored: list[ReceivedMessage] = []
        async with asyncio.timeout(TIMEOUT_S):
            while len(stored) < 5:
                stored += await consumer.poll()
        found = await consumer.offsets_for_times({queues[0]: stored[2].stored_ms})
        assert stored[found[queues[0]]].stored_ms == stored[2].stored_ms
        await consumer.seek(queues[0], 3)
        assert await polled(consumer, 2) == ["3", "4"]
        await consumer.seek_to_begin()
        assert await polled(consumer, 5) == numbers(5)
        await consumer.seek_to_end(queues[0])
        assert consumer.position(queues[0]) == 5
        with pytest.raises(StateError, match="it has 0 to 5"):
            await consumer.seek(queues[0], 6)
        await consumer.assign(queues[1:])
        assert await polled(consumer, 1) == ["other"]


# Last, because brokers remove no files in their first minute


async def test_a_group_starts_where_it_wants_to(apache: Apache) -> None:
    (queue,) = await apache.create_topic("Starting")
    await apache.lose_first_messages(queue)
    before = ["a", "b", "c"]
    await apache.send(queue, before, tags="T")
    async with consuming(apache, "from-first", "Starting", "T") as (_, first):
        await first.wait_for_all(before)
    # Messages of the same millisecond start together.
    moment_ms = first.messages[2].stored_ms
    since = [m.body.decode() for m in first.messages if m.stored_ms >= moment_ms]
    moment = datetime.fromtimestamp(moment_ms / 1000, UTC)
    async with (
        consuming(apache, "from-last", "Starting", "T", start_from="last") as (_, last),
        consuming(apache, "from-moment", "Starting", "T", start_from=moment) as (_, timed),
    ):
        await apache.send(queue, ["d"], tags="T")
        await last.wait_for_all(["d"])
        await timed.wait_for_all(["c", "d"])
    assert first.bodies == before
    assert last.bodies == ["d"]
    assert timed.bodies == [*since, "d"]


# Popping


async def test_a_push_consumer_pops_acknowledges_and_retries(apache: Apache) -> None:
    if apache.release is not APACHE_5:
        pytest.skip("brokers before 5.0 do not know pops")
    topic = "PoppedByUs"
    queues = await apache.create_topic(topic, 2)
    failed: list[str] = []

    async def handler(message: ReceivedMessage) -> None:
        body = message.body.decode()
        await received.take(message)
        if body == "hopeless":
            raise GiveUp("it never helps")
        if body == "fails once" and not failed:
            failed.append(body)
            raise RetryLater(delay_level=1)

    received = Received(TIMEOUT_S)
    consumer = aio.PushConsumer("poppers", apache.names, start_from="first", mode="pop")
    consumer.subscribe(topic, "*", handler)
    async with consumer:
        await apache.send(queues[0], ["a", "hopeless"])
        await apache.send(queues[1], ["b", "fails once"])
        await received.wait(lambda each: each.bodies.count("fails once") == 2)
        await consumer.drain()
    assert sorted(received.bodies) == ["a", "b", "fails once", "fails once", "hopeless"]
    assert received.messages[-1].reconsume_times == 1
    await apache.dead_letters("poppers", ["hopeless"])


async def test_a_push_consumer_pops_in_order_and_a_failure_holds_up_its_queue_only(apache: Apache) -> None:
    if apache.release is not APACHE_5:
        pytest.skip("brokers before 5.0 do not know pops")
    queues = await apache.create_topic("PoppedInOrder", 2)
    sent = [[f"{queue.queue_id}-{number}" for number in range(6)] for queue in queues]
    for queue, bodies in zip(queues, sent, strict=True):
        await apache.send(queue, bodies)
    received = Received(TIMEOUT_S)
    attempts: list[int] = []

    async def handler(message: ReceivedMessage) -> None:
        await received.take(message)
        if message.body == b"0-2":
            attempts.append(message.reconsume_times)
            if len(attempts) < 3:
                raise RetryLater

    options: dict[str, Any] = {"start_from": "first", "suspend_s": 0.1, "pull_batch_size": 4}
    members = [
        aio.PushConsumer("in-order", apache.names, mode="pop", ordered=True, **options) for _ in range(2)
    ]
    for member in members:
        member.subscribe("PoppedInOrder", "*", handler)
    async with members[0], members[1]:
        await received.wait_for_all([body for bodies in sent for body in bodies])
        for member in members:
            await member.drain()
    came = [[message for message in received.messages if message.queue == queue] for queue in queues]
    assert [[message.body.decode() for message in each] for each in came] == [
        ["0-0", "0-1", "0-2", "0-2", "0-2", "0-3", "0-4", "0-5"],
        sent[1],
    ]
    assert attempts == [0, 1, 2]
