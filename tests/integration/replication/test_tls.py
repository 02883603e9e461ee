"""With haTls, master and replica know each other by their certificates; nobody else gets the log."""

import asyncio
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.support.broker_cluster import BrokerClient
from tests.support.certificates import Authority
from tests.support.controlled_group import controlled_group
from tests.support.replicas import broker_group, caught_up, log_of, until

from pyromq.broker.broker import Broker
from pyromq.broker.settings import BrokerSettings
from pyromq.errors import ConfigError
from pyromq.protocol.replication import encode_report

Settings = dict[str, Any]


def tls_of(authority: Authority, name: str, **more: Any) -> Settings:
    issued = authority.issue(name)
    return {
        "ha_tls": True,
        "tls_cert_path": issued.certificate,
        "tls_key_path": issued.key,
        "tls_trust_cert_path": authority.trust,
        "tls_client_cert_path": issued.certificate,
        "tls_client_key_path": issued.key,
        "tls_client_trust_cert_path": authority.trust,
        **more,
    }


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


@pytest.fixture
def strangers(tmp_path: Path) -> Authority:
    (tmp_path / "strangers").mkdir()
    return Authority(tmp_path / "strangers")


async def send(broker: Broker, count: int) -> None:
    async with BrokerClient(broker.address) as client:
        await client.create_topic()
        for _ in range(count):
            await client.send(b"x" * 2000)


async def test_a_replica_with_a_trusted_certificate_copies_the_log(
    tmp_path: Path, authority: Authority
) -> None:
    settings = tls_of(authority, "broker-a", ha_tls_names="broker-a")
    async with broker_group(tmp_path) as group, group.master(**settings) as master:
        await send(master, 1000)
        async with group.replica(**settings) as replica:
            await caught_up(replica, master)
            assert log_of(replica.store) == log_of(master.store)
            assert master.replication.master.links[0].certificate_names[0] == "broker-a"


async def test_brokers_under_a_controller_replicate_over_tls(tmp_path: Path, authority: Authority) -> None:
    settings = tls_of(authority, "broker-a")
    async with controlled_group(tmp_path) as group:
        master, replica = [await group.start(each, **settings) for each in "ab"]
        await group.settled(2)
        await send(master, 10)
        await caught_up(replica, master)


async def test_a_peer_without_a_certificate_gets_nothing(tmp_path: Path, authority: Authority) -> None:
    settings = tls_of(authority, "broker-a")
    anonymous = ssl.create_default_context(cafile=authority.trust)
    anonymous.check_hostname = False
    async with broker_group(tmp_path) as group, group.master(**settings) as master:
        await send(master, 3)
        for tls in (None, anonymous):
            reader, writer = await asyncio.open_connection(*master.replication.master.address, ssl=tls)
            writer.write(encode_report(1))
            with pytest.raises((ssl.SSLError, asyncio.IncompleteReadError, ConnectionError)):
                await reader.readexactly(100)
            writer.close()
        assert master.replication.master.links == []


Other = Callable[[Authority, Authority], Settings]
OTHERS: dict[str, tuple[Other, str]] = {
    "an unknown authority": (lambda ours, theirs: tls_of(theirs, "broker-a"), "certificate verify failed"),
    "another name": (lambda ours, theirs: tls_of(ours, "client"), "the master closed the connection"),
    "no TLS": (lambda ours, theirs: {}, "the master closed the connection"),
}


@pytest.mark.parametrize("what", OTHERS)
async def test_a_replica_with_something_else_is_refused(
    what: str, tmp_path: Path, authority: Authority, strangers: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    other, problem = OTHERS[what]
    mine = tls_of(authority, "broker-a", ha_tls_names="broker-a,broker-b")
    async with broker_group(tmp_path) as group, group.master(**mine) as master:
        await send(master, 3)
        async with group.replica(**other(authority, strangers)) as replica:
            await until(lambda: problem in caplog.text)
            assert replica.store.log.end == 0
            assert master.replication.master.links == []


async def test_a_replica_that_wants_tls_takes_no_log_from_a_master_it_does_not_know(
    tmp_path: Path, authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    wanted = "the certificate of 127.0.0.1"
    mine = tls_of(authority, "somebody")
    async with broker_group(tmp_path) as group, group.master(**mine) as master:
        await send(master, 3)
        async with group.replica(**tls_of(authority, "broker-a", ha_tls_names="broker-a")) as replica:
            await until(lambda: wanted in caplog.text)
            assert replica.store.log.end == 0


def test_tls_without_the_files_that_it_needs_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"tls\.server\.certPath.*because haTls is true"):
        BrokerSettings(ha_tls=True)
