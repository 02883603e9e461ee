"""A broker starts, registers, changes, is stopped in the middle of things, and comes back."""

import asyncio
import socket
import threading
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from tests.support.broker_cluster import (
    BROKER_NAME,
    CLUSTER,
    GROUP,
    TOPIC,
    Bench,
    BrokerClient,
    Pulled,
    configuration,
    consumer,
    message,
    pull,
    running_broker,
)
from tests.support.held_files import HeldFiles
from tests.support.loop import turn_until
from tests.support.name_servers import Peer, name_server
from tests.support.wire_client import WireClient

from pyromq.broker.broker import Broker
from pyromq.broker.settings import vip_port
from pyromq.clock import ManualClock
from pyromq.errors import ConnectFailed, Refused, TransportError
from pyromq.filesystem import FileLock, Files
from pyromq.nameserver.nameserver import NameServer
from pyromq.protocol.catalogue import Request, encode_request
from pyromq.protocol.codes import CURRENT_VERSION, V4_9_4, ResponseCode
from pyromq.protocol.frame import HeaderForm
from pyromq.protocol.requests.membership import GetConsumerIds
from pyromq.protocol.requests.offsets import GetMaxOffset, QueryConsumerOffset, UpdateConsumerOffset
from pyromq.protocol.requests.routes import GetClusterInfo, GetRoute, QueueData
from pyromq.protocol.requests.settings import UpdateBrokerConfig
from pyromq.protocol.requests.topics import DeleteTopicFromBroker, GetTopicConfig
from pyromq.remoting.addresses import format_address
from pyromq.remoting.ports import Ports

NOBODY = "127.0.0.1:1"
"""An address at which nothing listens."""
LONG_MS = 60_000
SERIALIZE_TYPES = {HeaderForm.JSON: "JSON", HeaderForm.BINARY: "ROCKETMQ"}
"""How a broker is told to speak to name servers."""
PAUSE_S = 0.01
"""Between attempts to reach a broker that is not there: whoever spins keeps it from starting."""


@pytest.fixture(params=HeaderForm, ids=lambda form: form.name)
async def bench(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[Bench]:
    # The clock stands still: no time slice of a filter ends early, however busy the machine is.
    async with Bench(tmp_path, request.param, ManualClock()) as running:
        await running.client.create_topic()
        yield running


# Name servers


@pytest.fixture
async def servers(tmp_path: Path) -> AsyncIterator[list[NameServer]]:
    settings: dict[str, Any] = {"delete_topic_with_broker_registration": True}
    async with (
        name_server(tmp_path / "ns1", **settings) as first,
        name_server(tmp_path / "ns2", **settings) as second,
    ):
        yield [first, second]


def addresses(servers: list[NameServer]) -> str:
    return ";".join([NOBODY, *(format_address(*server.address) for server in servers)])


async def queues(peer: Peer, topic: str) -> QueueData | None:
    try:
        (found,) = (await peer.call(GetRoute(topic=topic))).body.queue_datas
    except Refused:
        return None
    return found


@pytest.mark.parametrize("serialize_type", ["JSON", "ROCKETMQ"])
async def test_it_registers_with_every_name_server_that_lives(
    tmp_path: Path, servers: list[NameServer], serialize_type: str
) -> None:
    async with running_broker(
        tmp_path / "store", namesrv_addr=addresses(servers), serialize_type=serialize_type
    ) as broker:
        for server in servers:
            async with Peer(server) as peer:
                cluster = (await peer.call(GetClusterInfo())).body
                assert cluster.cluster_addr_table == {CLUSTER: [BROKER_NAME]}
                addrs = cluster.broker_addr_table[BROKER_NAME].broker_addrs
                assert addrs == {0: broker.advertised_address}
                assert await queues(peer, "TBW102") is not None
    for server in servers:
        async with Peer(server) as peer:
            assert (await peer.call(GetClusterInfo())).body.broker_addr_table == {}, "it said goodbye"


@pytest.mark.parametrize("form", HeaderForm)
async def test_changes_of_topics_are_in_the_routes_at_once(
    tmp_path: Path, servers: list[NameServer], form: HeaderForm
) -> None:
    async with (
        running_broker(
            tmp_path / "store", namesrv_addr=addresses(servers), serialize_type=SERIALIZE_TYPES[form]
        ) as broker,
        BrokerClient(broker.address, form) as client,
        Peer(servers[0]) as watcher,
        Peer(servers[1]) as other,
    ):
        with pytest.raises(Refused):
            await watcher.watch("Fresh")
        await client.send(b"x", "Fresh")
        assert await watcher.wait_told() == ["Fresh"]
        assert await queues(watcher, "Fresh") is not None
        await watcher.watch("Fresh")
        await client.create_topic("Fresh", queues=7)
        await watcher.wait_told()
        changed = await queues(watcher, "Fresh")
        assert changed is not None
        assert changed.write_queue_nums == 7
        while (found := await queues(other, "Fresh")) is None or found.write_queue_nums != 7:
            pass  # the second name server hears of it as well
        await watcher.watch("Fresh")
        await client.call(DeleteTopicFromBroker(topic="Fresh"))
        await watcher.wait_told()
        assert await queues(watcher, "Fresh") is None


@pytest.mark.parametrize("form", HeaderForm)
async def test_the_brokers_permission_is_applied_to_its_topics(
    tmp_path: Path, servers: list[NameServer], form: HeaderForm
) -> None:
    async with (
        running_broker(
            tmp_path / "store", namesrv_addr=addresses(servers), serialize_type=SERIALIZE_TYPES[form]
        ) as broker,
        BrokerClient(broker.address, form) as client,
        Peer(servers[0]) as watcher,
    ):
        await client.create_topic(perm=6)
        while await queues(watcher, TOPIC) is None:
            pass
        await watcher.watch(TOPIC)
        await client.call(UpdateBrokerConfig(body="brokerPermission=4\n"))
        await watcher.wait_told()
        found = await queues(watcher, TOPIC)
        assert found is not None
        assert found.perm == 4


# Ports


@pytest.mark.parametrize("form", HeaderForm)
async def test_the_second_port_serves_everything_but_pulls(tmp_path: Path, form: HeaderForm) -> None:
    async with running_broker(tmp_path) as broker, BrokerClient(broker.address, form) as client:
        await client.call_vip(message(b"by the fast port"))
        with pytest.raises(Refused) as refusal:
            await client.call_vip(pull())
        assert refusal.value.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
        assert (await client.pull()).bodies == [b"by the fast port"]
        await client.heartbeat(consumer())
        assert (await client.call_vip(GetConsumerIds(consumer_group=GROUP))).body.consumer_id_list == ["c1"]


@pytest.mark.parametrize("distance", [0, 2])
async def test_a_port_that_is_taken_stops_the_start_and_leaves_nothing_behind(
    tmp_path: Path, distance: int
) -> None:
    async with running_broker(tmp_path / "first") as broker:
        port = broker.address[1]
    with Ports().listen("127.0.0.1", port - distance) as taken:
        taken.listen()
        with pytest.raises(OSError, match=str(port - distance)):
            await Broker(configuration(tmp_path / "store", listen_port=port)).start()
    async with running_broker(tmp_path / "store", listen_port=port) as broker:
        assert broker.address[1] == port
        assert vip_port(port) == port - 2


def test_a_port_that_was_chosen_is_nobody_elses_before_anyone_is_let_in() -> None:
    with Ports().listen("127.0.0.1", 0) as chosen:
        port = chosen.getsockname()[1]
        with pytest.raises(OSError, match=str(port)):
            Ports().listen("127.0.0.1", port).close()


class SlowToOpen(Files):
    """Whoever opens a store waits to be let."""

    def __init__(self) -> None:
        super().__init__()
        self.began, self.let = threading.Event(), threading.Event()

    def lock(self, path: Path) -> FileLock:
        self.began.set()
        assert self.let.wait(LONG_MS / 1000)
        return super().lock(path)


async def test_a_start_that_is_cancelled_while_the_store_is_opened_lets_go_of_it(tmp_path: Path) -> None:
    files = SlowToOpen()
    starting = asyncio.create_task(Broker(configuration(tmp_path), files=files).start())
    await asyncio.to_thread(files.began.wait)
    starting.cancel()
    asyncio.get_running_loop().call_later(PAUSE_S, files.let.set)
    with pytest.raises(asyncio.CancelledError):
        await starting
    async with running_broker(tmp_path) as broker:
        assert broker.store.recovery.was_clean


async def test_a_start_that_is_cancelled_while_it_registers_leaves_nothing_behind(tmp_path: Path) -> None:
    heard = asyncio.Event()

    async def hear_and_be_silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        heard.set()
        await reader.read()
        writer.close()

    async with await asyncio.start_server(hear_and_be_silent, "127.0.0.1", 0) as server:
        address = format_address(*server.sockets[0].getsockname())
        broker = Broker(configuration(tmp_path, namesrv_addr=address))
        starting = asyncio.create_task(broker.start())
        await heard.wait()
        starting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await starting
        async with running_broker(tmp_path, listen_port=broker.address[1]) as broker:
            assert broker.store.recovery.was_clean


async def test_a_stopped_broker_is_not_there(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        address = broker.address
    async with BrokerClient(address) as client:
        with pytest.raises(ConnectFailed):
            await client.send()


# Restarts


async def test_a_restart_keeps_everything(bench: Bench) -> None:
    client = bench.client
    await client.create_topic("Kept", 7)
    for number in range(100):
        await client.send(b"%d" % number, "Kept", number % 7, properties={"TAGS": str(number % 2)})
    await client.heartbeat(consumer(topic="Kept"))
    await client.call(UpdateConsumerOffset(consumer_group=GROUP, topic="Kept", queue_id=3, commit_offset=5))
    for _ in range(2):
        await bench.restart()
        assert (await client.call(GetTopicConfig(topic="Kept"))).body.read_queue_nums == 7
        request = QueryConsumerOffset(consumer_group=GROUP, topic="Kept", queue_id=3)
        assert (await client.call(request)).offset == 5
        bodies = {body for queue_id in range(7) for body in (await client.pull(0, "Kept", queue_id)).bodies}
        assert bodies == {b"%d" % number for number in range(100)}
        assert bench.broker.store.recovery.was_clean
    assert (await client.send(b"next", "Kept", 0)).queue_offset == 15


@pytest.mark.parametrize("flush", ["SYNC_FLUSH", "ASYNC_FLUSH"])
@pytest.mark.parametrize("form", HeaderForm)
async def test_restarts_in_the_middle_of_sends_lose_nothing(
    tmp_path: Path, form: HeaderForm, flush: str
) -> None:
    stored: dict[int, bytes] = {}
    async with Bench(tmp_path, form, store={"flush_disk_type": flush}) as bench:
        await bench.client.create_topic(queues=1)
        is_over = asyncio.Event()

        async def produce(name: str) -> None:
            client = await bench.new_client(name)
            number = 0
            while not is_over.is_set():
                body = f"{name}-{number}".encode()
                number += 1
                try:
                    sent = await client.send(body)
                except (TransportError, Refused):
                    await asyncio.sleep(PAUSE_S)
                else:
                    assert sent.queue_offset not in stored
                    stored[sent.queue_offset] = body

        async with asyncio.TaskGroup() as tasks:
            for index in range(4):
                tasks.create_task(produce(f"p{index}"))
            for _ in range(4):
                before = len(stored)
                await turn_until(lambda: len(stored) > before + 50)  # noqa: B023
                await bench.restart()
            is_over.set()
        bodies: list[bytes] = []
        while len(bodies) < (await bench.client.call(GetMaxOffset(topic=TOPIC, queue_id=0))).offset:
            bodies += (await bench.client.pull(len(bodies))).bodies
        assert all(bodies[offset] == body for offset, body in stored.items())
        assert len(set(bodies)) == len(bodies)


async def test_pulls_that_wait_are_answered_when_the_broker_stops(bench: Bench) -> None:
    waiting = [asyncio.create_task(bench.client.pull(hold_ms=LONG_MS)) for _ in range(20)]
    await turn_until(lambda: bench.broker.statistics().held_pulls == 20)
    await bench.restart()
    codes = {pulled.answer.code for pulled in await asyncio.gather(*waiting)}
    assert codes == {ResponseCode.PULL_NOT_FOUND}


@pytest.mark.parametrize("form", HeaderForm)
async def test_a_stopping_broker_is_not_held_up_by_clients_that_ask_on(
    tmp_path: Path, form: HeaderForm
) -> None:
    files = HeldFiles()
    store = {"flush_disk_type": "SYNC_FLUSH", "sync_flush_timeout_ms": LONG_MS}
    async with running_broker(tmp_path, files=files, store=store, shutdown_wait_seconds=60) as broker:
        client = await WireClient.connect(broker.address)
        await client.call(encode_request(message(b"first"), 0, form=form))  # it makes the log's first file
        files.let.clear()

        async def asked(request: Request[Any], version: int) -> int:
            return (await client.call(encode_request(request, 2, form=form, version=version))).code

        client.send(encode_request(message(b"before"), 1, form=form, version=V4_9_4))
        await turn_until(lambda: broker.statistics().traffic.in_flight == 1)
        stopping = asyncio.create_task(broker.stop())
        while await asked(GetMaxOffset(topic=TOPIC, queue_id=0), CURRENT_VERSION) != ResponseCode.GO_AWAY:
            pass
        for request in (pull(hold_ms=LONG_MS), message(b"after")):
            assert await asked(request, V4_9_4) == ResponseCode.SERVICE_NOT_AVAILABLE
        assert not stopping.done()
        files.let.set()
        (answer,) = await client.wait_closed()
        assert (answer.opaque, answer.code) == (1, ResponseCode.SUCCESS), "what was taken is finished"
        await stopping
        await client.close()


async def test_a_consumer_goes_on_through_restarts(bench: Bench) -> None:
    """It pulls and waits, and sees each message once, in order."""
    seen: list[bytes] = []

    async def consume() -> None:
        while len(seen) < 40:
            try:
                pulled: Pulled = await bench.client.pull(len(seen), hold_ms=LONG_MS)
            except (TransportError, Refused):
                await asyncio.sleep(PAUSE_S)
            else:
                seen.extend(pulled.bodies)

    consuming = asyncio.create_task(consume())
    producer = await bench.new_client("p")
    for number in range(40):
        if number % 10 == 5:
            await bench.restart()
        while True:
            with suppress(TransportError, Refused):
                await producer.send(b"%d" % number)
                break
            await asyncio.sleep(PAUSE_S)
    await consuming
    assert seen == [b"%d" % number for number in range(40)]


async def test_members_come_back_after_a_restart(bench: Bench) -> None:
    await bench.client.heartbeat(consumer())
    await bench.restart()
    refusal = await bench.client.refusal(pull(sys_flag=0, subscription=None, sub_version=1))
    assert refusal.code == ResponseCode.SUBSCRIPTION_NOT_EXIST, "until the next heartbeat"
    await bench.client.heartbeat(consumer())
    ids = (await bench.client.call(GetConsumerIds(consumer_group=GROUP))).body.consumer_id_list
    assert ids == ["c1"]


async def test_a_group_filter_is_kept_over_a_restart(bench: Bench) -> None:
    await bench.client.heartbeat(consumer(expression="price > 5", sql=True, version=3))
    await bench.client.send(b"dear", properties={"price": "9"})
    await bench.restart()
    await bench.client.heartbeat(consumer(expression="price > 5", sql=True, version=3))
    answer = await bench.client.call(pull(sys_flag=0, subscription=None, sub_version=3))
    assert answer.code == ResponseCode.SUCCESS


async def test_a_broker_that_is_stopped_twice_stops_once(tmp_path: Path) -> None:
    broker = Broker(configuration(tmp_path))
    await broker.stop()  # not even started
    await broker.start()
    await asyncio.gather(broker.stop(), broker.stop())
    await broker.run_until_stopped()


async def test_a_taken_port_for_replicas_is_replaced_unless_it_was_set(tmp_path: Path) -> None:
    taken = None
    while taken is None:
        async with running_broker(tmp_path / "a") as first:
            port = first.address[1]
        with suppress(OSError):  # a connection of somebody else has it, or had it a moment ago
            taken = socket.create_server(("127.0.0.1", port + 1), reuse_port=False)
    with taken:
        async with running_broker(tmp_path / "a", listen_port=port) as broker:
            assert broker.address[1] == port
        with pytest.raises(OSError, match="could not listen on"):
            async with running_broker(tmp_path / "a", ha_listen_port=taken.getsockname()[1]):
                pass
