"""Our producers against Apache's name servers and brokers; Apache's client reads what they sent."""

import asyncio
import random
from datetime import UTC, datetime, timedelta

import pytest
from tests.support.apache import ApacheServers, wait_until
from tests.support.apache_releases import ALL_RELEASES, APACHE_4
from tests.support.both_paths import plain_send
from tests.support.broker_cluster import BrokerClient

from pyromq import Compression, Message, Producer, ReceivedMessage, TransactionState, aio
from pyromq.admin import messages, topics
from pyromq.admin.cluster import Cluster
from pyromq.errors import Refused
from pyromq.protocol.frame import HeaderForm
from pyromq.protocol.message_id import RecallHandle, encode_recall_handle
from pyromq.protocol.requests.sending import SendMessage, SendMessageV2
from pyromq.remoting.addresses import parse_address

# A JVM takes its time to start, and longer on a busy machine.
pytestmark = [
    pytest.mark.interop,
    pytest.mark.timeout(600),
    pytest.mark.parametrize("servers", ALL_RELEASES, indirect=True, ids=str, scope="module"),
]

# Brokers of 5.x write down what ended only every three seconds, and ask about everything else.
SETTINGS = {
    "transactionTimeOut": "5000",
    "transactionCheckInterval": "2000",
    "traceTopicEnable": "true",
    "recallMessageEnable": "true",
    # A message has to fit into one file of the log.
    "mappedFileSizeCommitLog": str(16 << 20),
}

FORMS = pytest.mark.parametrize("form", list(HeaderForm), ids=lambda form: form.name.lower())


def bodies(servers: ApacheServers, topic: str, count: int = 1) -> list[bytes]:
    return [row["body"] for row in servers.client.read(servers.names, topic, at_least=count)]


def ids(servers: ApacheServers, topic: str, count: int) -> set[str]:
    rows = servers.client.read(servers.names, topic, at_least=count)
    return {row["properties"]["UNIQ_KEY"] for row in rows}


@FORMS
async def test_a_message_arrives_as_it_was_sent(servers: ApacheServers, form: HeaderForm) -> None:
    topic = f"Single{form.name}"
    async with aio.Producer("orders", servers.names, form=form) as producer:
        message = Message(topic, b"hello", tags="A", keys=["k1", "k2"], properties={"colour": "grün"})
        result = await producer.send(message)
    [row] = servers.client.read(servers.names, topic, at_least=1)
    assert row["body"] == b"hello"
    expected = {"TAGS": "A", "KEYS": "k1 k2", "colour": "grün", "UNIQ_KEY": result.message_id}
    assert expected.items() <= row["properties"].items()


def test_a_thread_sends_without_a_loop(servers: ApacheServers) -> None:
    with Producer("orders", servers.names) as producer:
        result = producer.send(Message("Blocking", b"hello"))
    [row] = servers.client.read(servers.names, "Blocking", at_least=1)
    assert (row["body"], row["properties"]["UNIQ_KEY"]) == (b"hello", result.message_id)


@FORMS
@pytest.mark.parametrize("kind", [SendMessage, SendMessageV2])
async def test_a_mark_of_a_repeated_send_is_ignored(
    servers: ApacheServers, form: HeaderForm, kind: type[SendMessage | SendMessageV2]
) -> None:
    topic = f"Resent{kind.__name__}{form.name}"
    await asyncio.to_thread(servers.client.create_topic, servers.names, servers.broker.address, topic)
    async with BrokerClient(parse_address(servers.broker.address), form=form) as client:
        for _ in range(2):
            await client.call(plain_send(kind, topic=topic, queue_id=0, resent=True))
    assert len(await asyncio.to_thread(bodies, servers, topic, 2)) == 2


@FORMS
async def test_oneway_messages_arrive(servers: ApacheServers, form: HeaderForm) -> None:
    topic = f"Oneway{form.name}"
    await asyncio.to_thread(servers.client.create_topic, servers.names, servers.broker.address, topic)
    async with aio.Producer("orders", servers.names, form=form) as producer:
        for number in range(10):
            await producer.send_oneway(Message(topic, b"%d" % number))
        # Nobody tells when they are there.
        found = await asyncio.to_thread(bodies, servers, topic, 10)
    assert sorted(found) == [b"%d" % number for number in range(10)]


@FORMS
async def test_a_message_of_nearly_four_megabytes_arrives(servers: ApacheServers, form: HeaderForm) -> None:
    topic = f"Big{form.name}"
    body = random.Random(1).randbytes(4 * 1024 * 1024 - 1000)
    async with aio.Producer("orders", servers.names, form=form) as producer:
        await producer.send(Message(topic, body))
    assert bodies(servers, topic) == [body]


async def test_messages_are_found_by_key_and_by_both_ids(servers: ApacheServers) -> None:
    async with aio.Producer("orders", servers.names) as producer:
        sent = [await producer.send(Message("Found", b"%d" % n, keys=[f"key{n}", "every"])) for n in range(5)]
    query = servers.client.query
    await asyncio.to_thread(
        wait_until, lambda: len(query(servers.names, "Found", "every")) == 5, "an index of five messages"
    )
    [by_java] = query(servers.names, "Found", "key3")
    assert by_java["body"] == b"3"
    async with Cluster(servers.names) as cluster:
        assert len(await messages.by_key(cluster, "Found", "every")) == 5
        [by_key] = await messages.by_key(cluster, "Found", "key3")
        assert by_key.body == b"3"
        assert sent[3].offset_message_id is not None
        for message_id in (sent[3].message_id, sent[3].offset_message_id):
            assert await messages.by_id(cluster, "Found", message_id) == by_key
            assert servers.client.view(servers.names, "Found", message_id) == by_java


async def test_batches_keep_the_ids_of_their_messages(servers: ApacheServers) -> None:
    async with (
        aio.Producer("orders", servers.names) as producer,
        aio.Producer("orders", servers.names, linger_ms=0) as gathering,
    ):
        results = await producer.send([Message("Batch", b"%d" % number) for number in range(10)])
        results += await asyncio.gather(
            *(gathering.send(Message("Batch", b"%d" % number)) for number in range(10, 20))
        )
        assert gathering.statistics().batches == 1
    assert ids(servers, "Batch", 20) == {result.message_id for result in results}
    assert sorted(map(int, bodies(servers, "Batch", 20))) == list(range(20))


@pytest.mark.parametrize("compression", list(Compression), ids=lambda kind: kind.name)
async def test_packed_bodies_are_unpacked(servers: ApacheServers, compression: Compression) -> None:
    topic = f"Packed{compression.name}"
    async with aio.Producer("orders", servers.names, compression=compression) as producer:
        await producer.send(Message(topic, b"x" * 100_000))
    assert bodies(servers, topic) == [b"x" * 100_000]


async def test_keys_go_to_the_queues_that_java_chooses(servers: ApacheServers) -> None:
    async with aio.Producer("orders", servers.names) as producer:
        results = {
            key: await producer.send(Message("Sharded", b"x"), sharding_key=key)
            for key in ("a", "order-1", "polygenelubricants")
        }
    chosen = {key: result.queue.queue_id for key, result in results.items()}
    assert chosen == {"a": 1, "order-1": 2, "polygenelubricants": 0}


async def test_delayed_messages_arrive_later(servers: ApacheServers) -> None:
    expected = {b"level"}
    async with aio.Producer("orders", servers.names) as producer:
        await producer.send(Message("Delayed", b"level", delay_level=1))
        if servers.release is not APACHE_4:
            await producer.send(Message("Delayed", b"timer"), delay=timedelta(seconds=2))
            soon = datetime.now(UTC) + timedelta(seconds=3)
            await producer.send(Message("Delayed", b"clock"), deliver_at=soon)
            expected |= {b"timer", b"clock"}
    consume, count = servers.client.consume, len(expected)
    consumed = await asyncio.to_thread(consume, servers.names, "Delayed", count, group="late")
    assert {row["body"] for row in consumed} == expected
    assert all(row["storeTimestamp"] - row["bornTimestamp"] >= 1000 for row in consumed)


async def test_timed_messages_are_taken_back(servers: ApacheServers) -> None:
    topic = "Recalled"
    async with aio.Producer("orders", servers.names) as producer:
        if servers.release is APACHE_4:
            await producer.send(Message(topic, b"there"))
            handle = RecallHandle(topic, servers.broker.name, 2**41, "A" * 32)
            with pytest.raises(Refused, match=r"code 3: .*Apache's brokers can since 5\.3"):
                await producer.recall(encode_recall_handle(handle))
            return
        recalled = await producer.send(Message(topic, b"never"), delay=timedelta(seconds=4))
        await producer.send(Message(topic, b"in the end"), delay=timedelta(seconds=6))
        assert await producer.recall(recalled) == recalled.message_id
        with pytest.raises(Refused, match=r"the message .* is due at 2286"):
            await producer.recall(
                encode_recall_handle(RecallHandle("Other", servers.broker.name, 9_999_999_999_999, "A" * 32))
            )
    assert await asyncio.to_thread(bodies, servers, topic) == [b"in the end"]


async def test_a_producer_answers_for_one_that_is_gone(servers: ApacheServers) -> None:
    topic = "Inherited"
    await asyncio.to_thread(servers.client.create_topic, servers.names, servers.broker.address, topic)

    async def work(_: Message) -> TransactionState:
        return TransactionState.UNKNOWN

    async def too_early(_: ReceivedMessage) -> TransactionState:
        return TransactionState.UNKNOWN

    async with aio.TransactionProducer("heirs", servers.names, check=too_early) as producer:
        await producer.send_in_transaction(Message(topic, b"left open"), work)
    asked: asyncio.Queue[ReceivedMessage] = asyncio.Queue()

    async def check(message: ReceivedMessage) -> TransactionState:
        asked.put_nowait(message)
        return TransactionState.COMMIT

    async with aio.TransactionProducer("heirs", servers.names, check=check, topics=[topic]):
        assert (await asked.get()).body == b"left open"
        assert set(await asyncio.to_thread(bodies, servers, topic)) == {b"left open"}


async def test_transactions_end_as_they_should(servers: ApacheServers) -> None:
    was_asked = asyncio.Event()

    async def check(message: ReceivedMessage) -> TransactionState:
        assert message.topic == topic
        if message.body != b"UNKNOWN":
            # A slow broker asks again about what it was told just now.
            return TransactionState[message.body.decode()]
        was_asked.set()
        return TransactionState.COMMIT

    topic = "Transactions"
    async with aio.TransactionProducer("payers", servers.names, check=check) as producer:
        await producer.send(Message(topic, b"plain"))
        for state in TransactionState:
            half = await producer._prepare(Message(topic, state.name.encode()))
            await producer._end(half, state)
        await was_asked.wait()
        # Whatever a broker asks about once more is there twice; what was rolled back never is.
        expected = {b"COMMIT", b"UNKNOWN", b"plain"}
        await asyncio.to_thread(wait_until, lambda: set(bodies(servers, topic)) >= expected, "what was sent")
    assert set(bodies(servers, topic)) == expected


async def test_requests_are_replied_to(servers: ApacheServers) -> None:
    consumer = aio.PushConsumer("adders", servers.names, start_from="first")
    async with (
        aio.Producer("askers", servers.names) as asker,
        aio.Producer("answerers", servers.names) as answerer,
    ):

        @consumer.on("Sums")
        async def add(message: ReceivedMessage) -> None:
            await answerer.reply(message, b"%d" % sum(map(int, message.body.split())))

        async with consumer:
            reply = await asker.request(Message("Sums", b"20 22"), timeout_s=120)
    assert reply.body == b"42"


async def test_replies_still_come_after_another_producer_of_the_process_has_closed(
    servers: ApacheServers,
) -> None:
    consumer = aio.PushConsumer("echoes", servers.names, start_from="first")
    async with aio.Producer("askers", servers.names) as asker:

        @consumer.on("Echoes")
        async def echo(message: ReceivedMessage) -> None:
            await asker.reply(message, message.body)

        async with consumer:
            first = await asker.request(Message("Echoes", b"before"), timeout_s=120)
            async with aio.TransactionProducer(
                "payers", servers.names, check=lambda _: TransactionState.COMMIT, topics=["Echoes"]
            ):
                pass
            second = await asker.request(Message("Echoes", b"after"), timeout_s=20)
    assert (first.body, second.body) == (b"before", b"after")


async def test_what_java_sends_is_consumed_and_an_operator_sees_it(servers: ApacheServers) -> None:
    """The everyday part of test_client_consumer_interop, with every release."""
    sent = sorted(b"%d" % number for number in range(20))
    rows = [{"topic": "FromJava", "body": body, "tags": f"T{int(body) % 2}"} for body in sent]
    await asyncio.to_thread(servers.client.send, servers.names, rows)
    received: asyncio.Queue[bytes] = asyncio.Queue()
    pushed = aio.PushConsumer("pushed", servers.names, start_from="first")

    @pushed.on("FromJava", "T1")
    async def take(message: ReceivedMessage) -> None:
        received.put_nowait(message.body)

    async with pushed, aio.PullConsumer("pulled", servers.names, start_from="first") as pulled:
        assert sorted([await received.get() for _ in range(10)]) == [body for body in sent if int(body) % 2]
        pulled.subscribe("FromJava")
        found: list[bytes] = []
        while len(found) < len(sent):
            found += [message.body for message in await pulled.poll(timeout_s=60)]
        assert sorted(found) == sent
    async with Cluster(servers.names) as cluster:
        assert "FromJava" in await topics.names(cluster)


async def test_reports_reach_the_trace_topic(servers: ApacheServers) -> None:
    async with aio.Producer("traced", servers.names, trace=True) as producer:
        result = await producer.send(Message("Traced", b"x", keys=["k"]))
    [trace] = bodies(servers, "RMQ_SYS_TRACE_TOPIC")
    assert trace.startswith(b"Pub\x01")
    assert result.message_id.encode() in trace
