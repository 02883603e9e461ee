"""Whatever a stranger sends, it is answered with an error or hung up on, and everybody else is served."""

import zlib
from collections.abc import AsyncIterator
from pathlib import Path
from struct import pack
from typing import Any

import pytest
from tests.support.name_servers import Peer, name_server, register_broker, registration_body
from tests.support.wire_client import WireClient

from pyromq.nameserver.nameserver import NameServer
from pyromq.protocol import registration
from pyromq.protocol.catalogue import encode_request
from pyromq.protocol.codes import ResponseCode
from pyromq.protocol.frame import Frame, HeaderForm
from pyromq.protocol.framing import encode_frame
from pyromq.protocol.requests.routes import GetClusterInfo, GetRoute

MIB = 1024 * 1024


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[NameServer]:
    async with name_server(tmp_path, max_frame_bytes=4 * MIB) as running:
        yield running


@pytest.fixture
async def bystander(server: NameServer) -> AsyncIterator[Peer]:
    """Registered before the trouble, served after it."""
    async with Peer(server) as peer:
        await peer.call(register_broker("good", 0, ["t"]))
        yield peer
        route = (await peer.call(GetRoute(topic="t"))).body
        assert [each.broker_name for each in route.broker_datas] == ["good"]
        assert list((await peer.call(GetClusterInfo())).body.broker_addr_table) == ["good"]
        assert server.statistics().tables.topics == 1


@pytest.fixture
async def stranger(server: NameServer, bystander: Peer) -> AsyncIterator[WireClient]:
    client = await WireClient.connect(server.address)
    yield client
    await client.close()


def _packed(*parts: bytes) -> bytes:
    return zlib.compress(b"".join(parts))


def _sized(data: bytes) -> bytes:
    return pack(">i", len(data)) + data


VERSION = _sized(b'{"counter":1}')
TOPIC = _sized(b"t 8 8 6 SINGLE_TAG")
PLAIN = registration.encode_plain(registration_body(["t"]), 479)
PACKED = registration.encode_compressed(registration_body(["t"]), 479)


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(b"\x00\x01\x02", id="not JSON at all"),
        pytest.param(PLAIN[:-10], id="truncated JSON"),
        pytest.param(b"[]", id="JSON of another shape"),
        pytest.param(b'"text"', id="a JSON text"),
        pytest.param(b'{"topicConfigSerializeWrapper":[]}', id="a list where topics belong"),
        pytest.param(
            b'{"topicConfigSerializeWrapper":{"topicConfigTable":{"t":{"topicName":"t","perm":"x"}}}}',
            id="a text where a number belongs",
        ),
        pytest.param(
            b'{"topicConfigSerializeWrapper":{"topicConfigTable":{"t":{"topicName":"t","readQueueNums":%d}}}}'
            % 2**40,
            id="a number that is too large",
        ),
        pytest.param(b"[" * MIB, id="deeply nested lists"),
        pytest.param(b'{"a":' * (MIB // 5), id="deeply nested objects"),
        pytest.param(b'{"filterServerList":["\xff\xfe"]}', id="broken UTF-8"),
        pytest.param(PACKED[:-4], id="truncated compression"),
        pytest.param(PACKED[:8] + b"\x00" * 20, id="broken compression"),
        pytest.param(b"\x78\x9c" + b"\xff" * 50, id="what only looks compressed"),
        pytest.param(PACKED + b"rest", id="something after the compressed part"),
        pytest.param(_packed(b"\x00" * (65 * MIB)), id="a compression bomb"),
        pytest.param(_packed(VERSION, pack(">i", 2**31 - 1)), id="an impossible number of topics"),
        pytest.param(_packed(VERSION, pack(">i", -1)), id="a negative number of topics"),
        pytest.param(_packed(pack(">i", -5), b"xxxx"), id="a negative length"),
        pytest.param(_packed(pack(">i", 2**30), b"xxxx"), id="a length beyond the end"),
        pytest.param(_packed(VERSION, pack(">i", 1), _sized(b"t 8")), id="half a topic"),
        pytest.param(_packed(VERSION, pack(">i", 1), _sized(b"t x y z SINGLE_TAG")), id="a topic of words"),
        pytest.param(_packed(VERSION, pack(">i", 1), TOPIC, pack(">i", 9)), id="no filter servers"),
        pytest.param(_packed(VERSION, pack(">i", 0), _sized(b"[]"), pack(">i", 7)), id="missing mappings"),
    ],
)
async def test_a_bad_registration_is_refused_and_changes_nothing(stranger: WireClient, body: bytes) -> None:
    answer = await stranger.call(_registration(body))
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert answer.remark


def _registration(body: bytes, **fields: Any) -> Frame:
    request = register_broker("bad", 0, ["bad"], **{"body": body, "body_crc32": 0, **fields})
    return encode_request(request, 1)


@pytest.mark.parametrize(
    "damage",
    [
        pytest.param({"brokerId": "-9999999999999999999999"}, id="an id beyond 64 bits"),
        pytest.param({"brokerId": "zero"}, id="an id of letters"),
        pytest.param({"bodyCrc32": str(2**40)}, id="a checksum beyond 32 bits"),
        pytest.param({"compressed": "perhaps"}, id="an unclear flag"),
        pytest.param({"brokerName": None}, id="no broker name"),
        pytest.param({"clusterName": None}, id="no cluster name"),
        pytest.param({"brokerAddr": None}, id="no address"),
        pytest.param({"heartbeatTimeoutMillis": "soon"}, id="a timeout of letters"),
    ],
)
async def test_a_bad_header_is_refused(stranger: WireClient, damage: dict[str, str | None]) -> None:
    frame = _registration(PLAIN)
    frame.ext = {key: value for key, value in {**frame.ext, **damage}.items() if value is not None}
    assert (await stranger.call(frame)).code == ResponseCode.SYSTEM_ERROR


@pytest.mark.parametrize("checksum", [1, -1, 2**31 - 1])
async def test_a_wrong_checksum_is_refused_before_the_body_is_read(
    stranger: WireClient, checksum: int
) -> None:
    answer = await stranger.call(_registration(b"[" * MIB, body_crc32=checksum))
    assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_ERROR, "crc32 not match")


@pytest.mark.parametrize(
    "frame",
    [
        pytest.param(Frame(322, ext={}), id="a data version query without fields"),
        pytest.param(
            Frame(
                322,
                ext={"brokerName": "a", "brokerAddr": "a", "clusterName": "c", "brokerId": "0"},
                body=b"[" * 100_000,
            ),
            id="a data version that is no version",
        ),
        pytest.param(Frame(105, ext={}), id="a route query without a topic"),
        pytest.param(Frame(100, ext={"namespace": "n"}), id="a put without a key"),
        pytest.param(Frame(217, ext={"topic": "x"}, body=b"\xff"), id="a topic with a broken body"),
        pytest.param(Frame(217, ext={"topic": "x"}, body=b'{"queueDatas":[{}]}'), id="queues of nobody"),
        pytest.param(Frame(318, body=b"\xff\xfe"), id="settings that are no text"),
        pytest.param(Frame(318, body=b"a=\\u12"), id="settings with half an escape"),
    ],
)
@pytest.mark.parametrize("form", HeaderForm)
async def test_other_bad_requests_are_refused(stranger: WireClient, frame: Frame, form: HeaderForm) -> None:
    answer = await stranger.call(Frame(frame.code, 9, ext=frame.ext, body=frame.body, form=form))
    assert (answer.code, answer.opaque) == (ResponseCode.SYSTEM_ERROR, 9)


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(pack(">i", -1) + b"\x00" * 20, id="a negative length"),
        pytest.param(pack(">i", 0) + b"\x00" * 20, id="no length"),
        pytest.param(pack(">i", 2**31 - 1), id="an impossible length"),
        pytest.param(pack(">i", 5 * MIB) + b"\x00" * 100, id="an oversized frame"),
        pytest.param(pack(">iI", 100, 200) + b"\x00" * 96, id="a header longer than its frame"),
        pytest.param(pack(">iI", 12, 8) + b"{nothing", id="a broken header"),
        pytest.param(pack(">iI", 12, 8 | 7 << 24) + b"\x00" * 8, id="an unknown header form"),
        pytest.param(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", id="another protocol"),
    ],
)
async def test_what_is_no_frame_is_hung_up_on(stranger: WireClient, data: bytes) -> None:
    stranger.write(data)
    assert await stranger.wait_closed() == []


async def test_a_broker_that_stops_making_sense_leaves_the_routes(
    server: NameServer, bystander: Peer
) -> None:
    broker = await WireClient.connect(server.address)
    assert (
        await broker.call(_registration(registration.encode_plain(registration_body(["t"]), 479)))
    ).code == 0
    await bystander.watch("t")
    broker.write(b"\xff" * 100)
    await broker.wait_closed()
    await broker.close()
    assert await bystander.wait_told() == ["t"]


async def test_half_a_frame_for_ever_costs_nobody_anything(server: NameServer, bystander: Peer) -> None:
    whole = encode_frame(_registration(PLAIN))
    waiting = [await WireClient.connect(server.address) for _ in range(50)]
    for client in waiting:
        client.write(whole[:-1])
    await bystander.call(GetRoute(topic="t"))
    for client in waiting:
        await client.close()
