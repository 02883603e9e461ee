"""What strangers may do to a name server and its brokers, over real sockets."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.support.name_servers import Peer, name_server, register_broker
from tests.support.wire_client import WireClient

from pyromq.errors import Refused
from pyromq.nameserver.nameserver import NameServer
from pyromq.protocol.catalogue import Request, encode_request
from pyromq.protocol.codes import ResponseCode
from pyromq.protocol.frame import Frame
from pyromq.protocol.requests.brokers import UnregisterBroker
from pyromq.protocol.requests.routes import GetRoute, QueueData, RegisterTopic, TopicRouteData
from pyromq.protocol.requests.topics import TopicConfig

FAREWELL = UnregisterBroker(broker_name="a", broker_addr="a0:10911", cluster_name="c", broker_id=0)


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[NameServer]:
    async with name_server(tmp_path) as running:
        yield running


@pytest.fixture
async def broker(server: NameServer) -> AsyncIterator[Peer]:
    async with Peer(server) as connected:
        yield connected


@pytest.fixture
async def stranger(server: NameServer) -> AsyncIterator[WireClient]:
    """Someone who calls from another address than everybody else."""
    client = await WireClient.connect(server.address, local_addr=("127.0.0.2", 0))
    yield client
    await client.close()


async def ask(client: WireClient, *requests: Request) -> list[Frame]:  # type: ignore[type-arg]
    """The answers, in the order of the requests."""
    client.send(*(encode_request(request, opaque) for opaque, request in enumerate(requests)))
    answers = await client.frames(len(requests))
    return sorted(answers, key=lambda answer: answer.opaque)


async def test_a_stranger_neither_unregisters_nor_replaces_a_broker(
    broker: Peer, stranger: WireClient
) -> None:
    await broker.call(register_broker("a"))
    left, replaced = await ask(stranger, FAREWELL, register_broker("a", broker_addr="evil:1"))
    assert (left.code, replaced.code) == (ResponseCode.NO_PERMISSION, ResponseCode.NO_PERMISSION)
    assert "alive at a0:10911, registered from 127.0.0.1" in (replaced.remark or "")
    route = (await broker.call(GetRoute(topic="t"))).body
    assert [each.broker_addrs for each in route.broker_datas] == [{0: "a0:10911"}]


async def test_a_farewell_right_behind_a_large_registration_is_the_last_word(stranger: WireClient) -> None:
    """The registration is read in a thread; what comes behind it must not overtake it."""
    answers = await ask(
        stranger,
        register_broker("a", topics=[f"t{number}" for number in range(6000)], compressed=True),
        FAREWELL,
    )
    assert [answer.code for answer in answers] == [0, 0]
    (route,) = await ask(stranger, GetRoute(topic="t0"))
    assert route.code == ResponseCode.TOPIC_NOT_EXIST


async def test_a_large_registration_is_complete_when_it_is_answered(broker: Peer) -> None:
    topics = [f"topic-{number}" for number in range(12_000)]
    await broker.call(register_broker("a", topics=topics))
    for topic in (topics[0], topics[5_000], topics[-1]):
        assert (await broker.call(GetRoute(topic=topic))).body.queue_datas
    await broker.call(register_broker("a", topics=[*topics, "another"], counter=2, compressed=True))
    assert (await broker.call(GetRoute(topic="another"))).body.queue_datas


async def test_a_broker_that_hangs_up_behind_a_large_registration_is_not_registered(
    server: NameServer, broker: Peer, stranger: WireClient
) -> None:
    await broker.call(register_broker("b"))
    request = register_broker("a", topics=[f"t{number}" for number in range(20_000)], compressed=True)
    stranger.send(encode_request(request, 1))
    await stranger.drain()
    while not server.statistics().traffic.in_flight:  # noqa: ASYNC110
        await asyncio.sleep(0)
    stranger.abort()
    while server.statistics().traffic.connections > 1:  # noqa: ASYNC110
        await asyncio.sleep(0)
    # Another packed registration is read behind it, by the same thread.
    await broker.call(register_broker("b", topics=["u"], counter=2, compressed=True))
    assert server.statistics().tables.live_brokers == 1


async def test_a_topic_with_absurd_queues_is_left_out_and_its_broker_is_not(broker: Peer) -> None:
    topics = {
        "absurd": TopicConfig(topic_name="absurd", read_queue_nums=2_000_000_000),
        "t": TopicConfig(topic_name="t"),
    }
    await broker.call(register_broker("a", topics=topics))
    assert (await broker.call(GetRoute(topic="t"))).body.queue_datas
    with pytest.raises(Refused):
        await broker.call(GetRoute(topic="absurd"))


@pytest.mark.parametrize("queues", [65_537, -1])
async def test_nobody_gives_a_topic_absurd_queues_by_hand(broker: Peer, queues: int) -> None:
    await broker.call(register_broker("a"))
    body = TopicRouteData(queue_datas=[QueueData(broker_name="a", read_queue_nums=queues)])
    with pytest.raises(Refused, match=rf"{queues} read and 0 write queues; 0 to 65536 are allowed"):
        await broker.call(RegisterTopic(topic="t", body=body))
