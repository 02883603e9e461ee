"""Clients that ask for it are told when a route changes."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest
from tests.support.name_servers import Peer, name_server, register_broker
from tests.support.wire_client import WireClient

from pyromq.nameserver.nameserver import NameServer
from pyromq.protocol.codes import ResponseCode
from pyromq.protocol.frame import ONEWAY_FLAG, Frame, HeaderForm
from pyromq.protocol.requests.brokers import UnregisterBroker, WipeWritePermission
from pyromq.protocol.requests.kv import PutKvEntry
from pyromq.protocol.requests.routes import (
    DeleteTopicFromNameServer,
    GetRoute,
    QueueData,
    RegisterTopic,
    TopicRouteData,
)
from pyromq.protocol.requests.settings import UpdateNameServerConfig


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[NameServer]:
    async with name_server(tmp_path) as running:
        yield running


@pytest.fixture
async def broker(server: NameServer) -> AsyncIterator[Peer]:
    async with Peer(server) as peer:
        await peer.call(register_broker("a", 0, ["t", "u"]))
        await peer.call(register_broker("b", 0, ["x"]))
        yield peer


@pytest.fixture
async def client(broker: Peer, server: NameServer) -> AsyncIterator[Peer]:
    async with Peer(server) as peer:
        answer = await peer.watch("t")
        assert answer.watch is True
        yield peer


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda b: b.call(register_broker("b", 0, ["x", "t"], counter=2)), id="a broker joins"),
        pytest.param(lambda b: b.call(register_broker("a", 1)), id="a replica joins"),
        pytest.param(
            lambda b: b.call(
                UnregisterBroker(broker_name="a", broker_addr="a0:10911", cluster_name="c", broker_id=0)
            ),
            id="its broker leaves",
        ),
        pytest.param(lambda b: b.call(WipeWritePermission(broker_name="a")), id="it becomes read-only"),
        pytest.param(lambda b: b.call(DeleteTopicFromNameServer(topic="t")), id="it is deleted"),
        pytest.param(
            lambda b: b.call(
                RegisterTopic(topic="t", body=TopicRouteData(queue_datas=[QueueData(broker_name="b")]))
            ),
            id="queues come by hand",
        ),
        pytest.param(
            lambda b: b.call(UpdateNameServerConfig(body="supportActingMaster=true")),
            id="routes are told differently",
        ),
    ],
)
async def test_a_watching_client_is_told_when(
    client: Peer, broker: Peer, change: Callable[[Peer], Awaitable[object]]
) -> None:
    await change(broker)
    assert await client.wait_told() == ["t"]


async def test_nothing_is_told_of_other_topics_or_repetitions(client: Peer, broker: Peer) -> None:
    await broker.call(register_broker("a", 0, ["t", "u"]))
    await broker.call(register_broker("b", 0, ["x", "u"], counter=2))
    await broker.call(DeleteTopicFromNameServer(topic="u"))
    await broker.call(DeleteTopicFromNameServer(topic="t"))
    assert await client.wait_told() == ["t"]
    assert client.told.empty()


async def test_a_client_is_told_that_the_connection_of_a_broker_was_lost(
    client: Peer, server: NameServer
) -> None:
    async with Peer(server) as lost:
        await lost.call(register_broker("z", 0, ["t"]))
        assert await client.wait_told() == ["t"]
    assert await client.wait_told() == ["t"]
    assert [each.broker_name for each in (await client.call(GetRoute(topic="t"))).body.broker_datas] == ["a"]


async def test_a_topic_that_does_not_exist_can_be_watched(server: NameServer, broker: Peer) -> None:
    wire = await WireClient.connect(server.address)
    answer = await wire.call(Frame(105, opaque=1, ext={"topic": "new", "watch": "true"}))
    assert (answer.code, answer.ext) == (ResponseCode.TOPIC_NOT_EXIST, {"watch": "true"})
    await broker.call(register_broker("b", 0, ["x", "new"], counter=2))
    told = await wire.frame()
    await wire.close()
    assert (told.code, told.flag, told.body) == (30105, ONEWAY_FLAG, b'["new"]')


async def test_changes_that_come_together_are_told_together(client: Peer, broker: Peer) -> None:
    for topic in ("u", "t"):
        await client.watch(topic)
    await broker.call(register_broker("a", 1))
    assert sorted(await client.wait_told()) == ["t", "u"]
    assert client.told.empty()


async def test_a_client_that_did_not_ask_is_told_nothing(server: NameServer, broker: Peer) -> None:
    wire = await WireClient.connect(server.address)
    first = await wire.call(Frame(105, opaque=1, ext={"topic": "t"}))
    await broker.call(register_broker("a", 1))
    second = await wire.call(Frame(105, opaque=2, ext={"topic": "t"}))
    await wire.close()
    assert (first.ext, second.ext) == ({}, {})
    assert (first.opaque, second.opaque) == (1, 2), "no frame in between"


async def test_a_changed_order_configuration_is_told_if_routes_have_it(client: Peer, broker: Peer) -> None:
    await broker.call(UpdateNameServerConfig(body="orderMessageEnable=true"))
    assert await client.wait_told() == ["t"]
    await broker.call(PutKvEntry(namespace="ORDER_TOPIC_CONFIG", key="u", value="a:8"))
    await broker.call(PutKvEntry(namespace="ORDER_TOPIC_CONFIG", key="t", value="a:8"))
    assert await client.wait_told() == ["t"]
    assert (await client.call(GetRoute(topic="t"))).body.order_topic_conf == "a:8"


async def test_watches_end_with_their_connection(server: NameServer, broker: Peer) -> None:
    wire = await WireClient.connect(server.address)
    for number in range(3):
        await wire.call(Frame(105, opaque=number, ext={"topic": f"t{number}", "watch": "true"}))
    assert server.statistics().watches == 3
    lost = asyncio.Event()
    server._server.on_connection_lost(lambda _: lost.set())
    await wire.close()
    await lost.wait()
    assert server.statistics().watches == 0
    await broker.call(register_broker("a", 0, ["t", "u", "t1"], counter=2))


@pytest.mark.parametrize("form", HeaderForm)
async def test_both_header_forms_are_told(tmp_path: Path, form: HeaderForm) -> None:
    serialize_type = "ROCKETMQ" if form is HeaderForm.BINARY else "JSON"
    async with name_server(tmp_path, serialize_type=serialize_type) as server, Peer(server, form) as peer:
        wire = await WireClient.connect(server.address)
        await wire.call(Frame(105, opaque=1, ext={"topic": "t", "watch": "true"}, form=form))
        await peer.call(register_broker("a", 0, ["t"]))
        told = await wire.frame()
        await wire.close()
    assert (told.code, told.form, told.body) == (30105, form, b'["t"]')


async def test_a_long_name_is_not_watched(server: NameServer) -> None:
    wire = await WireClient.connect(server.address)
    answer = await wire.call(Frame(105, opaque=1, ext={"topic": "t" * 256, "watch": "true"}))
    await wire.close()
    assert answer.ext == {"watch": "false"}
    assert server.statistics().watches == 0
