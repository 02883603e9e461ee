"""Topics that make themselves: on every broker that is sent to, and on none where that is switched off."""

from pathlib import Path

import pytest
from tests.support.broker_cluster import Bench, BrokerClient, message
from tests.support.name_servers import Peer, name_server

from pyromq.errors import Refused
from pyromq.protocol.codes import ResponseCode
from pyromq.protocol.frame import HeaderForm
from pyromq.protocol.requests.routes import GetRoute
from pyromq.protocol.requests.topics import GetTopicConfig
from pyromq.remoting.addresses import format_address


async def holders(peer: Peer, topic: str) -> set[str]:
    """The brokers that a name server knows a topic of."""
    try:
        route = (await peer.call(GetRoute(topic=topic))).body
    except Refused:
        return set()
    return {data.broker_name for data in route.broker_datas}


@pytest.mark.parametrize("form", HeaderForm)
async def test_a_topic_is_made_on_each_broker_that_is_sent_to(tmp_path: Path, form: HeaderForm) -> None:
    async with name_server(tmp_path / "ns") as server, Peer(server) as peer:
        address = format_address(*server.address)
        async with (
            Bench(tmp_path / "a", form, namesrv_addr=address, broker_name="a") as a,
            Bench(tmp_path / "b", form, namesrv_addr=address, broker_name="b") as b,
        ):
            assert await holders(peer, "TBW102") == {"a", "b"}, "a producer of a new topic asks for this one"
            for bench, expected in ((a, {"a"}), (b, {"a", "b"})):
                await bench.client.send(b"x", "Fresh")
                while await holders(peer, "Fresh") != expected:
                    pass  # each question gives the broker a turn to register


@pytest.mark.parametrize("form", HeaderForm)
async def test_the_switch_is_obeyed_from_the_start_and_over_restarts(
    tmp_path: Path, form: HeaderForm
) -> None:
    async def code(client: BrokerClient, topic: str) -> int:
        return (await client.refusal(message(b"x", topic))).code

    async with name_server(tmp_path / "ns") as server, Peer(server) as peer:
        address = format_address(*server.address)
        async with Bench(tmp_path / "s", form, namesrv_addr=address, auto_create_topics=False) as bench:
            assert await holders(peer, "TBW102") == set()
            assert await code(bench.client, "Fresh") == ResponseCode.TOPIC_NOT_EXIST
            await bench.restart(auto_create_topics=True)
            assert await holders(peer, "TBW102") == {"broker-a"}
            await bench.client.send(b"x", "Fresh")
            await bench.restart(auto_create_topics=False)
            assert await code(bench.client, "Fresher") == ResponseCode.TOPIC_NOT_EXIST
            await bench.client.send(b"y", "Fresh")
            # java: retries find their topic whatever is switched off
            await bench.client.send(b"z", "%RETRY%g")
            assert (await bench.client.call(GetTopicConfig(topic="%RETRY%g"))).body.perm == 6
