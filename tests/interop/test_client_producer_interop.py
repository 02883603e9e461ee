"""Our producers against Apache's name servers and brokers; Apache's client reads what they sent."""

import asyncio
import random
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from tests.support.apache import ApacheBroker, ApacheClient, ApacheNameServer, ClientOf, wait_until
from tests.support.apache_releases import APACHE_5, RELEASES, Release

from pyromq import Compression, Message, Producer, ReceivedMessage, TransactionState, aio
from pyromq.admin import messages
from pyromq.admin.cluster import Cluster
from pyromq.protocol.frame import HeaderForm

# A JVM takes its time to start, and longer on a busy machine.
pytestmark = [pytest.mark.interop, pytest.mark.timeout(600)]

# Brokers of 5.x write down what ended only every three seconds, and ask about everything else.
SETTINGS = {
    "transactionTimeOut": "5000",
    "transactionCheckInterval": "2000",
    "traceTopicEnable": "true",
    # A message has to fit into one file of the log.
    "mappedFileSizeCommitLog": str(16 << 20),
}

FORMS = pytest.mark.parametrize("form", list(HeaderForm), ids=lambda form: form.name.lower())


@dataclass(frozen=True)
class Apache:
    release: Release
    names: str
    broker: str
    client: ApacheClient


@pytest.fixture(scope="module", params=RELEASES, ids=str)
def apache(
    request: pytest.FixtureRequest, client_of: ClientOf, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Apache]:
    release: Release = request.param
    client = client_of(release, "JSON")
    with (
        ApacheNameServer(release) as names,
        ApacheBroker(release, names.address, tmp_path_factory.mktemp("store"), settings=SETTINGS) as broker,
    ):
        client.wait_for_broker(names.address, broker.name)
        yield Apache(release, names.address, broker.address, client)


def bodies(apache: Apache, topic: str, count: int = 1) -> list[bytes]:
    return [row["body"] for row in apache.client.read(apache.names, topic, at_least=count)]


def ids(apache: Apache, topic: str, count: int) -> set[str]:
    rows = apache.client.read(apache.names, topic, at_least=count)
    return {row["properties"]["UNIQ_KEY"] for row in rows}


@FORMS
async def test_a_message_arrives_as_it_was_sent(apache: Apache, form: HeaderForm) -> None:
    topic = f"Single{form.name}"
    async with aio.Producer("orders", apache.names, form=form) as producer:
        message = Message(topic, b"hello", tags="A", keys=["k1", "k2"], properties={"colour": "grün"})
        result = await producer.send(message)
    [row] = apache.client.read(apache.names, topic, at_least=1)
    assert row["body"] == b"hello"
    expected = {"TAGS": "A", "KEYS": "k1 k2", "colour": "grün", "UNIQ_KEY": result.message_id}
    assert expected.items() <= row["properties"].items()


def test_a_thread_sends_without_a_loop(apache: Apache) -> None:
    with Producer("orders", apache.names) as producer:
        result = producer.send(Message("Blocking", b"hello"))
    [row] = apache.client.read(apache.names, "Blocking", at_least=1)
    assert (row["body"], row["properties"]["UNIQ_KEY"]) == (b"hello", result.message_id)


@FORMS
async def test_oneway_messages_arrive(apache: Apache, form: HeaderForm) -> None:
    topic = f"Oneway{form.name}"
    await asyncio.to_thread(apache.client.create_topic, apache.names, apache.broker, topic)
    async with aio.Producer("orders", apache.names, form=form) as producer:
        for number in range(10):
            await producer.send_oneway(Message(topic, b"%d" % number))
        # Nobody tells when they are there.
        found = await asyncio.to_thread(bodies, apache, topic, 10)
    assert sorted(found) == [b"%d" % number for number in range(10)]


@FORMS
async def test_a_message_of_nearly_four_megabytes_arrives(apache: Apache, form: HeaderForm) -> None:
    topic = f"Big{form.name}"
    body = random.Random(1).randbytes(4 * 1024 * 1024 - 1000)
    async with aio.Producer("orders", apache.names, form=form) as producer:
        await producer.send(Message(topic, body))
    assert bodies(apache, topic) == [body]


async def test_messages_are_found_by_key_and_by_both_ids(apache: Apache) -> None:
    async with aio.Producer("orders", apache.names) as producer:
        sent = [await producer.send(Message("Found", b"%d" % n, keys=[f"key{n}", "every"])) for n in range(5)]
    query = apache.client.query
    await asyncio.to_thread(
        wait_until, lambda: len(query(apache.names, "Found", "every")) == 5, "an index of five messages"
    )
    [by_java] = query(apache.names, "Found", "key3")
    assert by_java["body"] == b"3"
    async with Cluster(apache.names) as cluster:
        assert len(await messages.by_key(cluster, "Found", "every")) == 5
        [by_key] = await messages.by_key(cluster, "Found", "key3")
        assert by_key.body == b"3"
        assert sent[3].offset_message_id is not None
        for message_id in (sent[3].message_id, sent[3].offset_message_id):
            assert await messages.by_id(cluster, "Found", message_id) == by_key
            assert apache.client.view(apache.names, "Found", message_id) == by_java


async def test_batches_keep_the_ids_of_their_messages(apache: Apache) -> None:
    async with (
        aio.Producer("orders", apache.names) as producer,
        aio.Producer("orders", apache.names, linger_ms=0) as gathering,
    ):
        results = await producer.send([Message("Batch", b"%d" % number) for number in range(10)])
        results += await asyncio.gather(
            *(gathering.send(Message("Batch", b"%d" % number)) for number in range(10, 20))
        )
        assert gathering.statistics().batches == 1
    assert ids(apache, "Batch", 20) == {result.message_id for result in results}
    assert sorted(map(int, bodies(apache, "Batch", 20))) == list(range(20))


@pytest.mark.parametrize("compression", list(Compression), ids=lambda kind: kind.name)
async def test_packed_bodies_are_unpacked(apache: Apache, compression: Compression) -> None:
    topic = f"Packed{compression.name}"
    async with aio.Producer("orders", apache.names, compression=compression) as producer:
        await producer.send(Message(topic, b"x" * 100_000))
    assert bodies(apache, topic) == [b"x" * 100_000]


async def test_keys_go_to_the_queues_that_java_chooses(apache: Apache) -> None:
    async with aio.Producer("orders", apache.names) as producer:
        results = {
            key: await producer.send(Message("Sharded", b"x"), sharding_key=key)
            for key in ("a", "order-1", "polygenelubricants")
        }
    chosen = {key: result.queue.queue_id for key, result in results.items()}
    assert chosen == {"a": 1, "order-1": 2, "polygenelubricants": 0}


async def test_delayed_messages_arrive_later(apache: Apache) -> None:
    async with aio.Producer("orders", apache.names) as producer:
        await producer.send(Message("Delayed", b"level", delay_level=1))
        if apache.release is APACHE_5:
            await producer.send(Message("Delayed", b"timer", delay_ms=2000))
    expected = 2 if apache.release is APACHE_5 else 1
    consumed = await asyncio.to_thread(apache.client.consume, apache.names, "Delayed", expected, group="late")
    assert {row["body"] for row in consumed} == {b"level", b"timer"} if expected == 2 else {b"level"}


async def test_transactions_end_as_they_should(apache: Apache) -> None:
    was_asked = asyncio.Event()

    async def check(message: ReceivedMessage) -> TransactionState:
        assert message.topic == topic
        if message.body != b"UNKNOWN":
            # A slow broker asks again about what it was told just now.
            return TransactionState[message.body.decode()]
        was_asked.set()
        return TransactionState.COMMIT

    topic = "Transactions"
    async with aio.TransactionProducer("payers", apache.names, check=check) as producer:
        await producer.send(Message(topic, b"plain"))
        for state in TransactionState:
            half = await producer.prepare(Message(topic, state.name.encode()))
            await producer.end(half, state)
        await was_asked.wait()
        consumed = await asyncio.to_thread(apache.client.consume, apache.names, topic, 3, group="payees")
    assert sorted(row["body"] for row in consumed) == [b"COMMIT", b"UNKNOWN", b"plain"]


async def test_requests_are_replied_to(apache: Apache) -> None:
    consumer = aio.PushConsumer("adders", apache.names, start_from="first")
    async with (
        aio.Producer("askers", apache.names) as asker,
        aio.Producer("answerers", apache.names) as answerer,
    ):

        @consumer.on("Sums")
        async def add(message: ReceivedMessage) -> None:
            await answerer.reply(message, b"%d" % sum(map(int, message.body.split())))

        async with consumer:
            reply = await asker.request(Message("Sums", b"20 22"), timeout_s=120)
    assert reply.body == b"42"


async def test_reports_reach_the_trace_topic(apache: Apache) -> None:
    async with aio.Producer("traced", apache.names, trace=True) as producer:
        result = await producer.send(Message("Traced", b"x", keys=["k"]))
    [trace] = bodies(apache, "RMQ_SYS_TRACE_TOPIC")
    assert trace.startswith(b"Pub\x01")
    assert result.message_id.encode() in trace
