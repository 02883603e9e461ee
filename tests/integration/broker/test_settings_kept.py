"""Settings that were once accepted and forgotten do what they say."""

from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from tests.support.broker_cluster import TOPIC, Bench, message, topic_creation
from tests.support.certificates import Authority
from tests.support.front import user
from tests.support.front_user import Resource
from tests.support.name_servers import Peer, name_server, register_broker

from pyromq.broker.replication.replica_link import ReplicaLink
from pyromq.protocol.codes import ResponseCode
from pyromq.protocol.frame import HeaderForm
from pyromq.protocol.record import decode_records
from pyromq.protocol.requests.pulling import QueryMessage
from pyromq.protocol.requests.routes import GetRoute
from pyromq.protocol.requests.settings import UpdateBrokerConfig
from pyromq.protocol.requests.topics import GetTopicConfig
from pyromq.proxy.proxy import Proxy
from pyromq.proxy.settings import ProxySettings
from pyromq.remoting.addresses import format_address
from pyromq.remoting.tls import TlsOptions


@pytest.fixture
async def bench(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[Bench]:
    settings: dict[str, Any] = getattr(request, "param", {})
    async with Bench(tmp_path / "store", HeaderForm.JSON, **settings) as bench:
        yield bench


async def change(bench: Bench, text: str) -> str | None:
    return (await bench.client.call(UpdateBrokerConfig(body=text))).remark


async def queues_of_new_topic(bench: Bench, topic: str) -> int:
    await bench.client.call(message(topic=topic, default_topic_queue_nums=100))
    return (await bench.client.call(GetTopicConfig(topic=topic))).body.write_queue_nums


async def test_another_number_of_queues_acts_on_the_next_topic_that_a_send_creates(bench: Bench) -> None:
    assert await queues_of_new_topic(bench, "Before") == 8
    assert await change(bench, "defaultTopicQueueNums=3") is None
    assert await queues_of_new_topic(bench, "After") == 3
    await bench.restart()
    assert await queues_of_new_topic(bench, "Later") == 3


@pytest.mark.parametrize("bench", [{"auto_create_topics": False}], indirect=True)
async def test_sends_create_topics_as_soon_as_they_may(bench: Bench) -> None:
    refused = await bench.client.refusal(message(topic="New"))
    assert refused.code == ResponseCode.TOPIC_NOT_EXIST
    assert await change(bench, "autoCreateTopicEnable=true") is None
    assert await queues_of_new_topic(bench, "New") == 8


async def test_queries_by_unique_key_find_as_many_as_the_setting_says(bench: Bench) -> None:
    for number in range(3):
        await bench.client.send(b"%d" % number, properties={"UNIQ_KEY": "same"})
    query = QueryMessage(
        topic=TOPIC, key="same", max_num=64, begin_timestamp=0, end_timestamp=2**62, is_unique_key=True
    )
    assert len(decode_records((await bench.client.call(query)).body)) == 3
    await change(bench, "defaultQueryMaxNum=2")
    assert len(decode_records((await bench.client.call(query)).body)) == 2


async def test_the_smaller_of_two_limits_decides_which_replicas_are_in_sync(bench: Bench) -> None:
    await bench.client.send(b"x" * 1000)
    master = bench.broker.replication.master
    link = cast(ReplicaLink, SimpleNamespace(acknowledged=bench.broker.store.log.end - 100))
    for limits, is_near in (
        ("haSlaveFallbehindMax=101\nhaMaxGapNotInSync=101", True),
        ("haSlaveFallbehindMax=100\nhaMaxGapNotInSync=101", False),
        ("haSlaveFallbehindMax=101\nhaMaxGapNotInSync=100", False),
    ):
        await change(bench, limits)
        assert master.is_in_sync(link) is is_near


@pytest.mark.parametrize(
    ("attribute", "reason"),
    [
        ("cleanup.policy=COMPACT", "expected one of DELETE, COMPACTION"),
        ("queue.type=BatchCQ", "expected SimpleCQ, because queues of batches are not supported"),
        ("reserve.time=1d", "expected a whole number of hours; -1 and 0 set no limit"),
    ],
)
async def test_a_topic_promises_nothing_that_is_not_there(bench: Bench, attribute: str, reason: str) -> None:
    refusal = await bench.client.refusal(topic_creation("Promising", attributes=f"+{attribute}"))
    assert (refusal.code, refusal.remark) == (ResponseCode.SYSTEM_ERROR, f"attribute {attribute}: {reason}")


async def test_a_name_server_asks_another_environment_over_tls(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    files = authority.issue("server", host="127.0.0.1")
    (tmp_path / "there").mkdir()
    secured: dict[str, Any] = {
        "tls_cert_path": files.certificate,
        "tls_key_path": files.key,
    }
    tls = TlsOptions(trust_path=authority.trust, verify=True)
    async with (
        name_server(tmp_path / "there", tls_mode="enforcing", **secured) as there,
        Peer(there, tls=tls) as broker,
    ):
        await broker.call(register_broker("far", 0, ["t"]))
        here = name_server(
            tmp_path,
            cluster_test=True,
            cluster_test_namesrv_addr=broker.address,
            tls_enable=True,
            tls_client_trust_cert_path=authority.trust,
            tls_client_auth_server=True,
        )
        async with here, Peer(here) as client:
            route = (await client.call(GetRoute(topic="t"))).body
            assert [each.broker_name for each in route.broker_datas] == ["far"]


async def test_the_grpc_front_asks_name_servers_over_tls(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    files = authority.issue("server", host="127.0.0.1")
    secured: dict[str, Any] = {"tls_cert_path": files.certificate, "tls_key_path": files.key}
    async with name_server(tmp_path, tls_mode="enforcing", **secured) as there:
        settings = ProxySettings(
            bind_address="127.0.0.1",
            listen_port=0,
            log_dir=None,
            namesrv_addr=format_address(*there.address),
            tls_enable=True,
            tls_client_trust_cert_path=authority.trust,
            tls_client_auth_server=True,
        )
        async with Proxy(settings) as proxy, user(format_address(*proxy.address)) as client:
            assert await client.code("QueryRoute", topic=Resource(name="Missing")) == "TOPIC_NOT_FOUND"
