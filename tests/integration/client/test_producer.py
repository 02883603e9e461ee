"""Producers against a real broker: every way to send, and what is stored then."""

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.support.client_cluster import ClientCluster, client_cluster, stored_messages

from pyromq import aio
from pyromq.broker.broker import Broker
from pyromq.client.values import Message, MessageQueue, SendStatus
from pyromq.errors import BadMessage, NoRoute, Refused, SendFailed, StateError
from pyromq.protocol import properties as props
from pyromq.protocol.compression import Compression
from pyromq.protocol.record import StoredMessage
from pyromq.remoting.connection import Connection
from pyromq.testing import aio_cluster


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[ClientCluster]:
    async with client_cluster(tmp_path) as running:
        yield running


@pytest.fixture
async def broker(cluster: ClientCluster) -> Broker:
    return await cluster.add_broker("broker-a")


@pytest.fixture
async def producer(cluster: ClientCluster, broker: Broker) -> AsyncIterator[aio.Producer]:
    async with aio.Producer("orders", cluster.namesrv) as running:
        yield running


async def held(broker: Broker, topic: str = "Orders") -> list[StoredMessage]:
    return await stored_messages(broker.advertised_address, topic)


async def test_a_sent_message_is_stored_as_it_was_sent(producer: aio.Producer, broker: Broker) -> None:
    message = Message(
        "Orders", b"hello", tags="Created", keys=["o-1", "o-2"], properties={"colour": "grün"}, flag=7
    )
    result = await producer.send(message)
    assert result.status is SendStatus.SEND_OK
    [stored] = await held(broker)
    assert (stored.body, stored.flag, stored.queue_id) == (b"hello", 7, result.queue.queue_id)
    assert stored.get(props.UNIQ_KEY) == result.message_id
    assert (stored.get(props.TAGS), stored.get(props.KEYS)) == ("Created", "o-1 o-2")
    assert stored.get("colour") == "grün"
    assert stored.queue_offset == result.queue_offset
    assert stored.born_timestamp > 0


async def test_messages_go_round_the_queues(producer: aio.Producer) -> None:
    results = [await producer.send(Message("Orders", b"x")) for _ in range(8)]
    assert sorted(result.queue.queue_id for result in results) == [0, 0, 1, 1, 2, 2, 3, 3]


async def test_the_same_key_always_goes_to_the_same_queue_in_order(
    producer: aio.Producer, broker: Broker
) -> None:
    sending = [
        producer.send(Message("Orders", b"%d" % number), sharding_key=f"k{number % 5}")
        for number in range(50)
    ]
    await asyncio.gather(*sending)
    by_key: dict[str | None, list[StoredMessage]] = {}
    for stored in await held(broker):
        by_key.setdefault(stored.get(props.SHARDING_KEY), []).append(stored)
    assert len(by_key) == 5
    for messages in by_key.values():
        assert len({message.queue_id for message in messages}) == 1
        numbers = [int(message.body) for message in messages]
        assert numbers == sorted(numbers)


async def test_a_queue_can_be_chosen(producer: aio.Producer) -> None:
    queues = await producer.queues("Orders")
    assert [queue.queue_id for queue in queues] == [0, 1, 2, 3]
    assert (await producer.send(Message("Orders", b"x"), queue=queues[2])).queue == queues[2]
    chosen = await producer.send(Message("Orders", b"x"), selector=lambda all_queues, message: all_queues[-1])
    assert chosen.queue == queues[3]


@pytest.mark.parametrize("topic", ["Orders", "NotMadeYet"])
async def test_a_queue_on_a_broker_that_does_not_exist_is_refused_at_once(
    producer: aio.Producer, topic: str
) -> None:
    await producer.send(Message("Orders", b"x"))
    queue = MessageQueue(topic, "broker-z", 0)
    with pytest.raises(NoRoute, match="it is on no broker called broker-z"):
        async with asyncio.timeout(producer.settings.send_timeout_s / 2):
            await producer.send(Message(topic, b"x"), queue=queue)
    with pytest.raises(NoRoute, match="it is on no broker called broker-z"):
        await producer.send_oneway(Message(topic, b"x"), queue=queue)


async def test_two_ways_to_choose_a_queue_are_one_too_many(producer: aio.Producer) -> None:
    with pytest.raises(BadMessage, match="set only one of queue, selector and sharding_key"):
        await producer.send(
            Message("Orders", b"x"), queue=MessageQueue("Orders", "broker-a", 0), sharding_key="k"
        )
    with pytest.raises(BadMessage, match="does not belong to the topic"):
        await producer.send(Message("Orders", b"x"), queue=MessageQueue("Bills", "broker-a", 0))


async def test_what_is_no_message_or_no_choice_says_so(producer: aio.Producer) -> None:
    for nothing in (b"x", "text", ("Orders", b"x"), 7):
        with pytest.raises(BadMessage, match="send takes a Message or a sequence"):
            await producer.send(nothing)  # type: ignore[arg-type]
    message = Message("Orders", b"x")
    with pytest.raises(BadMessage, match="the selector must return one of the queues it was given, not None"):
        await producer.send(message, selector=lambda queues, message: None)  # type: ignore[arg-type, return-value]
    with pytest.raises(BadMessage, match="sharding_key must be str, not int"):
        await producer.send(message, sharding_key=7)  # type: ignore[call-overload]
    with pytest.raises(BadMessage, match="queue must be a MessageQueue, not 3"):
        await producer.send(message, queue=3)  # type: ignore[call-overload]
    with pytest.raises(BadMessage, match="a message must be a Message, not str"):
        await producer.send_oneway("text")  # type: ignore[arg-type]
    with pytest.raises(BadMessage, match="a message must be a Message, not bytes"):
        await producer.request(b"x")  # type: ignore[arg-type]


async def test_a_sender_learns_that_no_name_server_can_be_reached_when_its_time_is_up(
    unused_tcp_port: int,
) -> None:
    async with aio.Producer("orders", "127.0.0.1:1", send_timeout_s=0.6) as producer:
        for where in (
            {},
            {"sharding_key": "k"},
            {"selector": lambda queues, message: queues[0]},
        ):
            with pytest.raises(SendFailed, match=r"no name server can be reached \(namesrv=127.0.0.1"):
                await producer.send(Message("Orders", b"x"), **where)
        with pytest.raises(SendFailed) as failed:
            await producer.send(Message("Orders", b"x"))
        assert len(failed.value.attempts) == 1
        assert failed.value.__suppress_context__ or failed.value.__context__ is None, "one text is enough"
        with pytest.raises(SendFailed, match="no name server can be reached"):
            await producer.request(Message("Orders", b"x"))


async def test_a_batch_is_stored_in_order_and_every_message_has_a_result(
    producer: aio.Producer, broker: Broker
) -> None:
    results = await producer.send([Message("Orders", b"%d" % number, tags="T") for number in range(10)])
    stored = await held(broker)
    assert [message.body for message in stored] == [b"%d" % number for number in range(10)]
    assert [message.get(props.UNIQ_KEY) for message in stored] == [result.message_id for result in results]
    assert [message.queue_offset for message in stored] == [result.queue_offset for result in results]
    assert len({result.offset_message_id for result in results}) == 10


async def test_a_batch_that_is_too_large_is_split(cluster: ClientCluster, broker: Broker) -> None:
    async with aio.Producer("orders", cluster.namesrv, max_message_bytes=2000) as producer:
        results = await producer.send([Message("Orders", bytes([65 + n]) * 400) for n in range(10)])
        assert producer.statistics().sender.attempts == 3
    assert len({result.message_id for result in results}) == 10
    assert sorted(message.body[0] for message in await held(broker)) == list(range(65, 75))


@pytest.mark.parametrize("compression", list(Compression))
async def test_large_bodies_are_packed(
    cluster: ClientCluster, broker: Broker, compression: Compression
) -> None:
    async with aio.Producer("orders", cluster.namesrv, compression=compression) as producer:
        await producer.send(Message("Orders", b"a" * 4096), sharding_key="k")
        await producer.send(Message("Orders", b"b" * 4095), sharding_key="k")
    first, second = await held(broker)
    assert (first.body, second.body) == (b"a" * 4096, b"b" * 4095)
    as_stored = await stored_messages(broker.advertised_address, "Orders", unpack=False)
    assert [message.sys_flag for message in as_stored] == [compression.sys_flag, 0]
    assert len(as_stored[0].body) < 200


async def test_a_delayed_message_is_not_there_at_once(producer: aio.Producer, broker: Broker) -> None:
    result = await producer.send(Message("Orders", b"later", delay_level=18))
    assert result.is_ok
    assert await held(broker) == []
    assert len(await stored_messages(broker.advertised_address, "SCHEDULE_TOPIC_XXXX", queues=18)) == 1


async def test_what_a_broker_refuses_is_told_with_its_words(producer: aio.Producer) -> None:
    with pytest.raises(
        Refused, match=r"code 13: the time of delivery is .* ahead, expected at most 259200000"
    ):
        await producer.send(Message("Orders", b"later", delay_ms=400_000_000), timeout_s=60)


async def test_the_largest_message_is_sent_alone_and_in_a_list(tmp_path: Path) -> None:
    async with (
        aio_cluster(tmp_path) as running,
        aio.Producer("orders", running.namesrv, send_timeout_s=60) as producer,
    ):
        large = Message("Orders", os.urandom(producer.settings.max_message_bytes))
        small = Message("Orders", b"small")
        alone = await producer.send(large, sharding_key="k")
        results = await producer.send([small, large, small], sharding_key="k")
    assert [result.queue_offset for result in (alone, *results)] == [0, 1, 2, 3]


async def test_a_oneway_message_without_a_name_server_fails_as_any_other() -> None:
    async with aio.Producer("orders", "127.0.0.1:1", send_timeout_s=0.1) as producer:
        with pytest.raises(SendFailed, match="no name server"):
            await producer.send_oneway(Message("Orders", b"gone"))


async def test_a_oneway_message_does_not_wait_for_ever_for_a_broker_that_does_not_read(
    cluster: ClientCluster, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def never(connection: Connection) -> None:
        await asyncio.Event().wait()

    async with aio.Producer("orders", cluster.namesrv, send_timeout_s=0.1, retries=1) as producer:
        await producer.send_oneway(Message("Orders", b"first"))
        monkeypatch.setattr(Connection, "wait_writable", never)
        with pytest.raises(SendFailed, match=r"in 1 attempts: broker-a: .*not sent in 0\.1 s"):
            await producer.send_oneway(Message("Orders", b"stuck"))


async def test_a_oneway_message_arrives(producer: aio.Producer, broker: Broker) -> None:
    await producer.send_oneway(Message("Orders", b"gone"), sharding_key="k")
    await producer.send(Message("Orders", b"known"), sharding_key="k")
    assert [message.body for message in await held(broker)] == [b"gone", b"known"]


async def test_a_topic_without_a_route_says_what_to_do(cluster: ClientCluster) -> None:
    await cluster.add_broker("broker-a", auto_create_topics=False)
    async with aio.Producer("orders", cluster.namesrv) as producer:
        with pytest.raises(
            NoRoute, match=r"no route for topic Orders: .* create it with `mqadmin updateTopic"
        ):
            await producer.send(Message("Orders", b"x"))


async def test_a_created_topic_is_learned_without_waiting(producer: aio.Producer, broker: Broker) -> None:
    await producer.send(Message("Orders", b"x"))
    session = producer._started().session
    told = asyncio.Event()
    session.routes.on_change("Orders", lambda route: told.set())
    if session.routes.cached("Orders") is None:
        await told.wait()
    assert session.routes.cached("Orders") is not None
    assert not session.routes._borrowed


async def test_messages_sent_together_share_requests_and_keep_their_results(
    cluster: ClientCluster, broker: Broker
) -> None:
    async with aio.Producer("orders", cluster.namesrv, linger_ms=0) as producer:
        sending = [
            producer.send(Message("Orders", b"%d" % number, tags="AB"[number % 2])) for number in range(100)
        ]
        results = await asyncio.gather(*sending)
        statistics = producer.statistics()
    assert statistics.batches == 2, "one for each tag"
    assert statistics.batched_messages == 100
    stored = {message.get(props.UNIQ_KEY): message for message in await held(broker)}
    for number, result in enumerate(results):
        message = stored[result.message_id]
        assert message.body == b"%d" % number
        assert (message.queue_id, message.queue_offset) == (result.queue.queue_id, result.queue_offset)
        assert message.get(props.TAGS) == "AB"[number % 2]


async def test_what_cannot_be_gathered_does_not_overtake(cluster: ClientCluster, broker: Broker) -> None:
    async with aio.Producer("orders", cluster.namesrv, linger_ms=30_000) as producer:
        [queue, *_] = await producer.queues("Orders")
        gathered = asyncio.create_task(producer.send(Message("Orders", b"first"), queue=queue))
        await asyncio.sleep(0)
        await producer.send(Message("Orders", b"x" * 50_000), queue=queue)
        await gathered
    assert [message.body[:5] for message in await held(broker)] == [b"first", b"xxxxx"]


async def test_flush_and_close_send_what_was_gathered(cluster: ClientCluster, broker: Broker) -> None:
    async with aio.Producer("orders", cluster.namesrv, linger_ms=30_000) as producer:
        first = asyncio.create_task(producer.send(Message("Orders", b"1")))
        await asyncio.sleep(0)
        await producer.flush()
        assert first.done()
        second = asyncio.create_task(producer.send(Message("Orders", b"2")))
        await asyncio.sleep(0)
    assert (await second).is_ok
    assert len(await held(broker)) == 2


async def test_only_so_many_messages_are_in_flight(cluster: ClientCluster, broker: Broker) -> None:
    async with aio.Producer("orders", cluster.namesrv, max_in_flight=4) as producer:
        await producer.send(Message("Orders", b"x"))
        tasks = [asyncio.create_task(producer.send(Message("Orders", b"x"))) for _ in range(50)]
        await asyncio.sleep(0)
        statistics = producer.statistics()
        assert (statistics.in_flight, statistics.waiting_for_room) == (4, 46)
        await asyncio.gather(*tasks)
        assert producer.statistics().in_flight == 0


async def test_a_namespace_is_put_in_front_and_not_shown(cluster: ClientCluster, broker: Broker) -> None:
    async with aio.Producer("orders", cluster.namesrv, namespace="blue") as producer:
        result = await producer.send(Message("Orders", b"x"))
        assert result.queue.topic == "Orders"
        [queue, *_] = await producer.queues("Orders")
        assert (await producer.send(Message("Orders", b"y"), queue=queue)).queue == queue
    stored = await held(broker, "blue%Orders")
    assert sorted(message.body for message in stored) == [b"x", b"y"]
    assert {message.get(props.INSTANCE_ID) for message in stored} == {"blue"}


async def test_reports_of_sent_messages_reach_the_trace_topic(cluster: ClientCluster, broker: Broker) -> None:
    async with aio.Producer("orders", cluster.namesrv, trace=True) as producer:
        result = await producer.send(Message("Orders", b"hello", tags="T", keys=["k"]))
    [trace] = await stored_messages(broker.advertised_address, "RMQ_SYS_TRACE_TOPIC", queues=1)
    [record] = trace.body.decode().split("\x02")[:-1]
    fields = record.split("\x01")
    assert (fields[0], *fields[3:8]) == ("Pub", "orders", "Orders", result.message_id, "T", "k")
    assert fields[8:10] == [broker.advertised_address, "5"]
    assert fields[11:] == ["0", result.offset_message_id, "true"]
    assert trace.get(props.KEYS) == f"{result.message_id} k"


async def test_a_producer_works_between_start_and_close_only(cluster: ClientCluster, broker: Broker) -> None:
    producer = aio.Producer("orders", cluster.namesrv)
    with pytest.raises(StateError, match="has not been started"):
        await producer.send(Message("Orders", b"x"))
    async with producer:
        with pytest.raises(StateError, match="has been started already"):
            await producer.start()
    with pytest.raises(StateError, match="is closed"):
        await producer.send(Message("Orders", b"x"))
    with pytest.raises(StateError, match="create a new one"):
        await producer.start()
    await producer.close()


async def test_a_producer_belongs_to_the_loop_it_was_started_on(producer: aio.Producer) -> None:
    sending = producer.send(Message("Orders", b"x"))
    with pytest.raises(StateError, match="on another event loop"):
        await asyncio.to_thread(asyncio.run, sending)


async def test_a_transaction_is_refused_by_a_broker_without_them(cluster: ClientCluster) -> None:
    await cluster.add_broker("broker-a", reject_transaction_messages=True)

    async def nothing(_: object) -> aio.TransactionState:
        raise AssertionError("the local transaction must not run")

    async with aio.TransactionProducer("orders", cluster.namesrv, check=nothing, retries=0) as producer:
        with pytest.raises(Exception, match="accepts no transactional messages"):
            await producer.send_in_transaction(Message("Orders", b"x"), nothing)


async def test_a_declared_topic_is_created_once_and_stays_as_it_is(tmp_path: Path) -> None:
    async with aio_cluster(tmp_path) as cluster, aio.Producer("g", cluster.namesrv) as producer:
        assert await producer.declare_topic("Declared", queues=3)
        assert len(await producer.queues("Declared")) == 3
        assert not await producer.declare_topic("Declared", queues=5)
        assert len(await producer.queues("Declared")) == 3
