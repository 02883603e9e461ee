"""Every request of a name server, over real sockets, in both header forms."""

import asyncio
import re
import zlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.support.name_servers import Peer, name_server, register_broker, registration_body
from tests.support.wire_client import WireClient

import pyromq.protocol.requests  # noqa: F401  (fills the catalogue)
from pyromq.errors import Refused
from pyromq.nameserver.nameserver import NameServer
from pyromq.nameserver.settings import NameServerSettings
from pyromq.protocol import json_body, registration
from pyromq.protocol.body import DataVersion
from pyromq.protocol.catalogue import CATALOGUE, NAMESERVER, encode_request
from pyromq.protocol.codes import V4_9_4, ResponseCode
from pyromq.protocol.frame import Frame, HeaderForm
from pyromq.protocol.requests.brokers import (
    AddWritePermission,
    GetBrokerMemberGroup,
    QueryDataVersion,
    SendBrokerHeartbeat,
    UnregisterBroker,
    WipeWritePermission,
)
from pyromq.protocol.requests.kv import DeleteKvEntry, GetKvEntry, GetKvNamespace, PutKvEntry
from pyromq.protocol.requests.routes import (
    DeleteTopicFromNameServer,
    GetAllTopics,
    GetClusterInfo,
    GetRoute,
    GetSystemTopicsFromNameServer,
    GetTopicsOfCluster,
    GetUnitSubscribedSharedTopics,
    GetUnitSubscribedTopics,
    GetUnitTopics,
    QueueData,
    RegisterTopic,
    TopicRouteData,
)
from pyromq.protocol.requests.settings import GetNameServerConfig, UpdateNameServerConfig
from pyromq.protocol.requests.topics import TopicConfig


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[NameServer]:
    async with name_server(tmp_path) as running:
        yield running


@pytest.fixture(params=[HeaderForm.JSON, HeaderForm.BINARY], ids=["JSON header", "binary header"])
async def peer(server: NameServer, request: pytest.FixtureRequest) -> AsyncIterator[Peer]:
    async with Peer(server, request.param) as connected:
        yield connected


@pytest.fixture
async def wire(server: NameServer) -> AsyncIterator[WireClient]:
    client = await WireClient.connect(server.address)
    yield client
    await client.close()


async def _route(peer: Peer, topic: str, **fields: object) -> TopicRouteData:
    return (await peer.call(GetRoute(topic=topic, **fields))).body  # type: ignore[arg-type]


def test_every_request_to_a_name_server_is_handled_or_declined_with_a_reason(tmp_path: Path) -> None:
    served = name_server(tmp_path).routes
    assert served.missing() == []
    addressed = {code for code, declaration in CATALOGUE.items() if declaration.to & NAMESERVER}
    # java: what 5.x serves
    assert addressed >= {
        *(100, 101, 102, 103, 104, 105, 106, 205, 206, 216, 217, 219, 224, 304),
        *(311, 312, 313, 318, 319, 322, 327, 901, 904),
    }


async def test_a_registered_broker_is_in_the_route_of_its_topics(peer: Peer) -> None:
    answer = await peer.call(register_broker("a", 0, ["t", "u"]))
    assert (answer.master_addr, answer.ha_server_addr, answer.body) == (None, None, None)
    route = await _route(peer, "t")
    assert [each.broker_addrs for each in route.broker_datas] == [{0: "a0:10911"}]
    assert [(each.broker_name, each.read_queue_nums) for each in route.queue_datas] == [("a", 8)]
    assert route.order_topic_conf is None


async def test_a_replica_learns_its_master(peer: Peer) -> None:
    await peer.call(register_broker("a", 0))
    answer = await peer.call(register_broker("a", 1))
    assert (answer.master_addr, answer.ha_server_addr) == ("a0:10911", "a0:10912")


async def test_an_unknown_topic_is_answered_with_a_hint(peer: Peer) -> None:
    with pytest.raises(Refused) as refused:
        await _route(peer, "nowhere")
    assert refused.value.code == ResponseCode.TOPIC_NOT_EXIST
    assert refused.value.remark == (
        "No topic route info in name server for the topic: nowhere"
        "\nSee https://rocketmq.apache.org/docs/bestPractice/06FAQ for further details."
    )


@pytest.mark.parametrize("version", [479, 409, 0], ids=["5.3.3", "4.9.8", "before 3.0.11"])
async def test_bodies_of_every_age_are_read(peer: Peer, wire: WireClient, version: int) -> None:
    body = registration.encode_plain(registration_body(["t"]), version)
    await _register_as(wire, version, body, compressed=False)
    assert len((await _route(peer, "t")).queue_datas) == 1


@pytest.mark.parametrize("version", [479, 409], ids=["5.3.3", "4.9.8"])
@pytest.mark.parametrize("says_so", [True, False], ids=["compressed", "compressed without saying so"])
async def test_compressed_bodies_are_read(peer: Peer, wire: WireClient, version: int, says_so: bool) -> None:
    body = registration.encode_compressed(registration_body(["t"], filter_servers=["f:1"]), version)
    await _register_as(wire, version, body, compressed=says_so)
    route = await _route(peer, "t")
    assert len(route.queue_datas) == 1
    assert route.filter_server_table == {"a0:10911": ["f:1"]}


async def _register_as(broker: WireClient, version: int, body: bytes, *, compressed: bool) -> None:
    request = register_broker(
        body=body, body_crc32=zlib.crc32(body) & 0x7FFFFFFF, compressed=compressed, broker_addr="a0:10911"
    )
    answer = await broker.call(encode_request(request, 1, version=version))
    assert answer.code == ResponseCode.SUCCESS, answer.remark


async def test_an_empty_body_registers_a_broker_without_topics(peer: Peer) -> None:
    await peer.call(register_broker(body=b"", body_crc32=0))
    assert (await peer.call(GetClusterInfo())).body.cluster_addr_table == {"c": ["a"]}
    answer = await peer.call(_query(DataVersion()))
    assert answer.changed is False, "it stands for the version with zeros"


async def test_a_registration_may_be_oneway(peer: Peer) -> None:
    await peer.send_oneway(register_broker("a", 0, ["t"]))
    assert len((await _route(peer, "t")).queue_datas) == 1


async def test_a_wrong_checksum_is_refused(peer: Peer) -> None:
    with pytest.raises(Refused, match="crc32 not match"):
        await peer.call(register_broker(body_crc32=12345))
    assert (await peer.call(GetClusterInfo())).body.cluster_addr_table == {}


async def test_unregistering_is_done_when_it_is_answered(peer: Peer) -> None:
    await peer.call(register_broker("a", 0, ["t"]))
    await peer.call(UnregisterBroker(broker_name="a", broker_addr="a0:10911", cluster_name="c", broker_id=0))
    with pytest.raises(Refused):
        await _route(peer, "t")


def _query(version: DataVersion, address: str = "a0:10911") -> QueryDataVersion:
    return QueryDataVersion(broker_name="a", broker_addr=address, cluster_name="c", broker_id=0, body=version)


async def test_the_data_version_tells_brokers_whether_to_register(peer: Peer) -> None:
    unknown = await peer.call(_query(DataVersion(counter=1, timestamp=1)))
    assert (unknown.changed, unknown.body) == (True, None)
    await peer.call(register_broker("a", 0))
    same = await peer.call(_query(DataVersion(counter=1, timestamp=1)))
    assert (same.changed, same.body) == (False, DataVersion(counter=1, timestamp=1))
    newer = await peer.call(_query(DataVersion(counter=2, timestamp=1)))
    assert (newer.changed, newer.body) == (True, DataVersion(counter=1, timestamp=1))


async def test_heartbeats_are_answered_when_asked_as_a_call(peer: Peer) -> None:
    await peer.call(SendBrokerHeartbeat(cluster_name="c", broker_addr="a0:10911", broker_name="a"))
    await peer.send_oneway(SendBrokerHeartbeat(cluster_name="c", broker_addr="x:1", broker_name="a"))


async def test_cluster_info(peer: Peer) -> None:
    await peer.call(register_broker("a", 0, zone_name="z", enable_acting_master=True))
    await peer.call(register_broker("b", 0, cluster_name="d"))
    info = (await peer.call(GetClusterInfo())).body
    assert info.cluster_addr_table == {"c": ["a"], "d": ["b"]}
    assert info.broker_addr_table["a"].zone_name == "z"
    assert info.broker_addr_table["a"].enable_acting_master is True


async def test_member_group(peer: Peer) -> None:
    await peer.call(register_broker("a", 0))
    await peer.call(register_broker("a", 1))
    group = (await peer.call(GetBrokerMemberGroup(cluster_name="c", broker_name="a"))).body
    assert group.broker_member_group is not None
    assert group.broker_member_group.broker_addrs == {0: "a0:10911", 1: "a1:10911"}
    nobody = (await peer.call(GetBrokerMemberGroup(cluster_name="c", broker_name="x"))).body
    assert nobody.broker_member_group is not None
    assert nobody.broker_member_group.broker_addrs == {}


async def test_topic_lists(peer: Peer) -> None:
    topics = {f"t{flag}": TopicConfig(topic_name=f"t{flag}", topic_sys_flag=flag) for flag in range(4)}
    await peer.call(register_broker("a", 0, topics))
    everything = (await peer.call(GetAllTopics())).body
    assert sorted(everything.topic_list) == ["t0", "t1", "t2", "t3"]
    assert len((await peer.call(GetTopicsOfCluster(cluster="c"))).body.topic_list) == 4
    assert (await peer.call(GetTopicsOfCluster(cluster="d"))).body.topic_list == []
    system = (await peer.call(GetSystemTopicsFromNameServer())).body
    assert (sorted(system.topic_list), system.broker_addr) == (["a", "c"], "a0:10911")
    assert sorted((await peer.call(GetUnitTopics())).body.topic_list) == ["t1", "t3"]
    assert sorted((await peer.call(GetUnitSubscribedTopics())).body.topic_list) == ["t2", "t3"]
    assert (await peer.call(GetUnitSubscribedSharedTopics())).body.topic_list == ["t2"]


@pytest.mark.parametrize(
    ("key", "refused"),
    [
        ("enableAllTopicList", [GetAllTopics()]),
        (
            "enableTopicList",
            [
                GetTopicsOfCluster(cluster="c"),
                GetUnitTopics(),
                GetUnitSubscribedTopics(),
                GetUnitSubscribedSharedTopics(),
            ],
        ),
    ],
)
async def test_topic_lists_can_be_switched_off(peer: Peer, key: str, refused: list[GetAllTopics]) -> None:
    await peer.call(UpdateNameServerConfig(body=f"{key}=false"))
    for request in refused:
        with pytest.raises(Refused, match="disable"):
            await peer.call(request)
    await peer.call(GetSystemTopicsFromNameServer())


async def test_topics_come_and_go_by_hand(peer: Peer) -> None:
    await peer.call(register_broker("a", 0, ["t"]))
    body = TopicRouteData(
        queue_datas=[QueueData(broker_name="a", perm=6, read_queue_nums=3, write_queue_nums=3)]
    )
    await peer.call(RegisterTopic(topic="v", body=body))
    assert (await _route(peer, "v")).queue_datas[0].read_queue_nums == 3
    await peer.call(RegisterTopic(topic="w", body=TopicRouteData(queue_datas=[QueueData(broker_name="x")])))
    await peer.call(DeleteTopicFromNameServer(topic="t", cluster_name="c"))
    await peer.call(DeleteTopicFromNameServer(topic="v"))
    assert (await peer.call(GetAllTopics())).body.topic_list == []


async def test_write_permission_of_a_broker(peer: Peer) -> None:
    await peer.call(register_broker("a", 0, ["t", "u"]))
    assert (await peer.call(WipeWritePermission(broker_name="a"))).wipe_topic_count == 2
    assert (await _route(peer, "t")).queue_datas[0].perm == 4
    assert (await peer.call(AddWritePermission(broker_name="a"))).add_topic_count == 2
    assert (await _route(peer, "t")).queue_datas[0].perm == 6
    assert (await peer.call(WipeWritePermission(broker_name="x"))).wipe_topic_count == 0


async def test_kv_entries(peer: Peer) -> None:
    await peer.call(PutKvEntry(namespace="n", key="k", value="v ä"))
    await peer.call(PutKvEntry(namespace="n", key="l", value="w"))
    assert (await peer.call(GetKvEntry(namespace="n", key="k"))).value == "v ä"
    assert (await peer.call(GetKvNamespace(namespace="n"))).body.table == {"k": "v ä", "l": "w"}
    await peer.call(DeleteKvEntry(namespace="n", key="k"))
    await peer.call(DeleteKvEntry(namespace="n", key="l"))
    await peer.call(DeleteKvEntry(namespace="unknown", key="l"))
    assert (await peer.call(GetKvNamespace(namespace="n"))).body.table == {}, "an empty namespace remains"
    with pytest.raises(Refused, match="No config item, Namespace: n Key: k") as refused:
        await peer.call(GetKvEntry(namespace="n", key="k"))
    assert refused.value.code == ResponseCode.QUERY_NOT_FOUND
    with pytest.raises(Refused, match="No config item, Namespace: unknown"):
        await peer.call(GetKvNamespace(namespace="unknown"))


async def test_brokers_get_the_configuration_of_ordered_topics(peer: Peer) -> None:
    await peer.call(PutKvEntry(namespace="ORDER_TOPIC_CONFIG", key="t", value="a:8"))
    answer = await peer.call(register_broker("a", 0))
    assert answer.body is not None
    assert answer.body.table == {"t": "a:8"}
    await peer.call(UpdateNameServerConfig(body="returnOrderTopicConfigToBroker=false"))
    assert (await peer.call(register_broker("a", 0))).body is None


async def test_routes_tell_the_configuration_of_ordered_topics_if_switched_on(peer: Peer) -> None:
    await peer.call(PutKvEntry(namespace="ORDER_TOPIC_CONFIG", key="t", value="a:8"))
    await peer.call(register_broker("a", 0, ["t", "u"]))
    assert (await _route(peer, "t")).order_topic_conf is None
    await peer.call(UpdateNameServerConfig(body="orderMessageEnable=true"))
    assert (await _route(peer, "t")).order_topic_conf == "a:8"
    assert (await _route(peer, "u")).order_topic_conf is None


async def test_a_change_of_many_unknown_settings_is_refused_and_changes_nothing(peer: Peer) -> None:
    unknown = "".join(f"unknown{number}=1\n" for number in range(1000))
    with pytest.raises(Refused, match="1000 unknown settings"):
        await peer.call(UpdateNameServerConfig(body=f"orderMessageEnable=true\n{unknown}"))
    assert "orderMessageEnable=false" in (await peer.call(GetNameServerConfig())).body


async def test_acting_masters_are_told_if_switched_on(peer: Peer) -> None:
    await peer.call(register_broker("a", 1, ["t"], enable_acting_master=True))
    assert (await _route(peer, "t")).broker_datas[0].broker_addrs == {1: "a1:10911"}
    await peer.call(UpdateNameServerConfig(body="supportActingMaster=true"))
    assert (await _route(peer, "t")).broker_datas[0].broker_addrs == {0: "a1:10911"}


async def test_topics_missing_from_a_registration_go_if_switched_on(peer: Peer) -> None:
    await peer.call(UpdateNameServerConfig(body="deleteTopicWithBrokerRegistration=true"))
    await peer.call(register_broker("a", 0, ["t", "u"]))
    await peer.call(register_broker("a", 0, ["u"], counter=2))
    assert (await peer.call(GetAllTopics())).body.topic_list == ["u"]


async def test_zones_are_respected_on_request(peer: Peer) -> None:
    await peer.call(register_broker("a", 0, zone_name="east"))
    await peer.call(register_broker("b", 0, zone_name="west"))
    near = await _route(peer, "t", zone_mode=True, zone_name="EAST")
    assert [each.broker_name for each in near.broker_datas] == ["a"]
    for fields in ({"zone_name": "east"}, {"zone_mode": True}, {"zone_mode": True, "zone_name": " "}):
        assert len((await _route(peer, "t", **fields)).broker_datas) == 2


@pytest.mark.parametrize(
    ("version", "ext", "is_strict"),
    [
        pytest.param(V4_9_4, {}, True, id="strict from 4.9.4 on"),
        pytest.param(V4_9_4 - 1, {}, False, id="plain before"),
        pytest.param(100, {"acceptStandardJsonOnly": "true"}, True, id="strict on request"),
        pytest.param(100, {"acceptStandardJsonOnly": "false"}, False, id="plain if refused"),
    ],
)
@pytest.mark.parametrize("form", HeaderForm)
async def test_the_dialect_of_a_route(
    peer: Peer, wire: WireClient, version: int, ext: dict[str, str], is_strict: bool, form: HeaderForm
) -> None:
    await peer.call(register_broker("a", 0))
    answer = await wire.call(Frame(105, opaque=5, version=version, ext={"topic": "t", **ext}, form=form))
    assert (answer.opaque, answer.form, answer.code) == (5, form, 0)
    assert (b'{"0":"a0:10911"}' in answer.body) == is_strict
    assert (b'{0:"a0:10911"}' in answer.body) == (not is_strict)
    assert json_body.decode(answer.body, TopicRouteData).queue_datas[0].broker_name == "a"


async def test_settings_are_told_sorted(peer: Peer) -> None:
    lines = (await peer.call(GetNameServerConfig())).body.splitlines()
    keys = [line.partition("=")[0] for line in lines]
    assert keys == sorted(keys)
    assert "orderMessageEnable=false" in lines
    assert "listenPort=0" in lines


async def test_changed_settings_act_at_once_and_are_kept(
    peer: Peer, server: NameServer, tmp_path: Path
) -> None:
    await peer.call(UpdateNameServerConfig(body="orderMessageEnable=true\nunknownKey=1\n"))
    assert server.settings.order_message_enable is True
    assert "orderMessageEnable=true\n" in (await peer.call(GetNameServerConfig())).body
    assert "orderMessageEnable=true\n" in (tmp_path / "namesrv.properties").read_text()


@pytest.mark.parametrize("key", ["configBlackList", "configStorePath", "kvConfigPath", "rocketmqHome"])
async def test_some_settings_cannot_be_changed_over_the_network(peer: Peer, key: str) -> None:
    with pytest.raises(Refused, match="configBlackList forbids") as refused:
        await peer.call(UpdateNameServerConfig(body=f"orderMessageEnable=true\n{key}=/tmp/x"))
    assert refused.value.code == ResponseCode.NO_PERMISSION
    assert "orderMessageEnable=false\n" in (await peer.call(GetNameServerConfig())).body


async def test_no_local_setting_is_changed_over_the_network(peer: Peer) -> None:
    before = (await peer.call(GetNameServerConfig())).body
    keys = [each.key for each in NameServerSettings.all_settings() if each.is_local]
    assert len(keys) > 20
    for key in keys:
        with pytest.raises(Refused, match=re.escape(key)) as refused:
            await peer.call(UpdateNameServerConfig(body=f"orderMessageEnable=true\n{key}=1"))
        assert refused.value.code == ResponseCode.NO_PERMISSION
    assert (await peer.call(GetNameServerConfig())).body == before


async def test_the_list_of_unchangeable_settings_only_adds_to_those(tmp_path: Path) -> None:
    async with name_server(tmp_path, config_black_list="orderMessageEnable") as server, Peer(server) as peer:
        for key in ("orderMessageEnable", "kvConfigPath", "configBlackList"):
            with pytest.raises(Refused, match="configBlackList forbids"):
                await peer.call(UpdateNameServerConfig(body=f"{key}=true"))
        await peer.call(UpdateNameServerConfig(body="enableTopicList=true"))


async def test_a_bad_value_changes_nothing(peer: Peer) -> None:
    with pytest.raises(Refused, match="brokerExpiryMillis") as refused:
        await peer.call(UpdateNameServerConfig(body="orderMessageEnable=true\nbrokerExpiryMillis=soon"))
    assert refused.value.code == ResponseCode.SYSTEM_ERROR
    assert "orderMessageEnable=false\n" in (await peer.call(GetNameServerConfig())).body


async def test_an_update_without_content_is_fine(peer: Peer) -> None:
    await peer.call(UpdateNameServerConfig(body=""))


async def test_an_unknown_code_is_declined(wire: WireClient) -> None:
    answer = await wire.call(Frame(4242, opaque=3))
    assert answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
    assert answer.remark == " request type 4242 not supported"


async def test_many_puts_share_their_writes(tmp_path: Path) -> None:
    async with name_server(tmp_path) as server, Peer(server) as peer:
        await asyncio.gather(
            *(peer.call(PutKvEntry(namespace="n", key=str(key), value="v")) for key in range(200))
        )
        assert server.statistics().kv_entries == 200
        assert (tmp_path / "kvConfig.json").read_bytes().count(b'"v"') == 200
        assert server._kv_saving.writes < 200
