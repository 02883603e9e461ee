"""The way to a cluster: fail-over, names that are not there, several servers at once, signatures."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from pyromq.admin import kv, name_servers, topics
from pyromq.admin.cluster import Cluster
from pyromq.admin.failures import NotFound, PartlyFailed
from pyromq.errors import ConnectFailed
from pyromq.nameserver.nameserver import NameServer
from pyromq.nameserver.settings import NameServerSettings
from pyromq.protocol.frame import Frame
from pyromq.protocol.requests.kv import GetKvEntry
from pyromq.protocol.requests.topics import TopicConfig
from pyromq.remoting.addresses import format_address
from pyromq.remoting.connection_group import ConnectionTerms
from pyromq.remoting.dialer import Dialer
from pyromq.security.signature import Credentials, is_signed
from pyromq.standalone import Standalone, StandaloneSettings

NOBODY = "127.0.0.1:1"


@pytest.fixture
async def running(tmp_path: Path) -> AsyncIterator[Standalone]:
    settings = StandaloneSettings(
        store=tmp_path / "store",
        namesrv_port=0,
        broker_port=0,
        store_settings={"log_segment_bytes": 1 << 20, "index_slots": 100, "index_units": 400},
    )
    async with Standalone(settings) as cluster:
        yield cluster


@pytest.fixture
async def cluster(running: Standalone) -> AsyncIterator[Cluster]:
    async with Cluster(running.namesrv, timeout_s=60) as opened:
        yield opened


async def test_a_dead_name_server_is_passed_over(running: Standalone) -> None:
    async with Cluster([NOBODY, running.namesrv]) as cluster:
        assert "broker-a" in await topics.names(cluster)
        assert "DefaultCluster" in (await cluster.info()).cluster_addr_table


async def test_without_a_living_name_server_the_failure_says_what_to_try() -> None:
    async with Cluster(NOBODY) as cluster:
        with pytest.raises(ConnectFailed, match=r"no name server answers: 127\.0\.0\.1:1: .*-n host:port"):
            await topics.names(cluster)
    async with Cluster("") as cluster:
        with pytest.raises(ConnectFailed, match="no name server given; set -n host:port"):
            await topics.names(cluster)


async def test_writes_go_to_every_name_server(running: Standalone, tmp_path: Path) -> None:
    settings = NameServerSettings(
        bind_address="127.0.0.1", listen_port=0, kv_config_path=tmp_path / "kv.json", log_dir=None
    )
    async with NameServer(settings) as other:
        second = format_address(*other.address)
        async with Cluster([running.namesrv, second]) as both:
            await kv.put(both, "ns", "key", "value")
            for address in (running.namesrv, second):
                assert (await both.ask(address, GetKvEntry(namespace="ns", key="key"))).value == "value"
            assert list(await name_servers.config(both)) == [running.namesrv, second]


async def test_what_failed_on_one_of_several_servers_is_told_with_what_was_done(running: Standalone) -> None:
    async with Cluster([running.namesrv, NOBODY]) as cluster:
        with pytest.raises(
            PartlyFailed, match=rf"failed at {NOBODY}: .*; done at {running.namesrv}"
        ) as failure:
            await kv.put(cluster, "ns", "key", "value")
    assert failure.value.done == (running.namesrv,)


async def test_a_topic_that_is_not_there_is_answered_with_the_nearest(cluster: Cluster) -> None:
    masters = [member.address for member in await cluster.masters()]
    await topics.put(cluster, masters, TopicConfig(topic_name="orders"))
    with pytest.raises(NotFound, match="there is no topic ordres; did you mean orders"):
        await cluster.route("ordres")
    with pytest.raises(NotFound, match="`mqadmin topicList` lists all"):
        await cluster.route("zzz")


@pytest.mark.parametrize("question", ["members", "masters"])
async def test_a_cluster_that_is_not_there_is_answered_with_those_that_are(
    cluster: Cluster, question: str
) -> None:
    with pytest.raises(NotFound, match="there is no cluster Defualt; known: DefaultCluster"):
        await getattr(cluster, question)("Defualt")


async def test_brokers_are_found_by_name_and_by_address(cluster: Cluster, running: Standalone) -> None:
    address = running.broker.advertised_address
    assert await cluster.broker_address("broker-a") == address
    assert await cluster.broker_name(address) == "broker-a"
    with pytest.raises(NotFound, match="there is no broker broker-b; did you mean broker-a"):
        await cluster.broker_address("broker-b")
    with pytest.raises(NotFound, match="no broker is registered at h:1"):
        await cluster.broker_name("h:1")


async def test_requests_are_signed_with_the_credentials(
    running: Standalone, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[Frame] = []
    made = Dialer.__init__

    def spying(self: Dialer, terms: ConnectionTerms | None = None, **options: object) -> None:
        new_signer = options["new_signer"]
        assert callable(new_signer)
        sign = new_signer()

        def spied(frame: Frame) -> None:
            sign(frame)
            sent.append(frame)

        made(self, terms, **options | {"new_signer": lambda: spied})  # type: ignore[arg-type]

    monkeypatch.setattr(Dialer, "__init__", spying)
    async with Cluster(running.namesrv, credentials=Credentials("me", "secret")) as cluster:
        await kv.put(cluster, "ns", "key", "value")
    (frame,) = sent
    assert frame.ext["AccessKey"] == "me"
    assert is_signed(frame.ext, frame.body, "secret")
