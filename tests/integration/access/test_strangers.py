"""What a stranger could once do to a cluster, line by line: refused without rights, or for everyone."""

from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from tests.support.access import ROOT, SECURE, client, is_refused
from tests.support.broker_cluster import TOPIC, message, running_broker, topic_creation
from tests.support.name_servers import name_server, registration_body
from tests.support.wire_client import WireClient

from pyromq.broker.replication.replica_link import ReplicaLink
from pyromq.errors import Refused
from pyromq.protocol import json_body
from pyromq.protocol.catalogue import encode_request
from pyromq.protocol.codes import ResponseCode
from pyromq.protocol.requests.brokers import RegisterBroker, UnregisterBroker
from pyromq.protocol.requests.settings import UpdateBrokerConfig, UpdateNameServerConfig
from pyromq.protocol.requests.topics import DeleteTopicFromBroker

DANGEROUS = [
    "storePathCommitLog=/tmp/elsewhere",
    "storePathRootDir=/tmp/elsewhere",
    "logDir=/tmp/elsewhere",
    "tls.server.mode=disabled",
    "tls.server.certPath=/tmp/own.pem",
    "namesrvAddr=10.6.6.6:9876",
    "bindAddress=0.0.0.0",
    "listenPort=1",
    "denyByDefault=false",
    "authenticationEnabled=false",
    "authorizationEnabled=false",
    "aclEnable=false",
    "aclFile=/tmp/own.yml",
    "authConfigPath=/tmp/own",
    "certificateUsers=*",
    "proxyProtocolTrustedAddresses=0.0.0.0/0",
    'initAuthenticationUser={"username":"me","password":"mine"}',
]


async def test_dangerous_settings_are_refused_over_the_network_for_everyone(tmp_path: Path) -> None:
    async with (
        running_broker(tmp_path, **SECURE) as broker,
        client(broker.address, ROOT) as root,
        client(broker.address) as stranger,
    ):
        for change in DANGEROUS:
            assert await is_refused(stranger, UpdateBrokerConfig(body=change)), change
            with pytest.raises(Refused) as refused:
                await root.call(UpdateBrokerConfig(body=change))
            assert refused.value.code == ResponseCode.NO_PERMISSION, change


async def test_dangerous_settings_of_a_name_server_are_refused_for_everyone(tmp_path: Path) -> None:
    async with (
        name_server(tmp_path, **SECURE) as names,
        client(names.address, ROOT) as root,
        client(names.address) as stranger,
    ):
        for change in (
            "logDir=/tmp/elsewhere",
            "kvConfigPath=/tmp/x",
            "tls.server.mode=disabled",
            *DANGEROUS[8:],
        ):
            assert await is_refused(stranger, UpdateNameServerConfig(body=change)), change
            with pytest.raises(Refused) as refused:
                await root.call(UpdateNameServerConfig(body=change))
            assert refused.value.code == ResponseCode.NO_PERMISSION, change


def registration(address: str = "10.6.6.6:10911") -> RegisterBroker:
    return RegisterBroker(
        broker_name="broker-a",
        broker_addr=address,
        cluster_name="DefaultCluster",
        ha_server_addr="10.6.6.6:10912",
        broker_id=0,
        body=json_body.encode(registration_body()),
    )


async def test_a_stranger_neither_registers_nor_unregisters_a_broker(tmp_path: Path) -> None:
    async with (
        name_server(tmp_path, **SECURE) as names,
        client(names.address, ROOT) as root,
        client(names.address) as stranger,
    ):
        await root.call(registration("127.0.0.1:10911"))
        leaving = UnregisterBroker(
            broker_name="broker-a",
            broker_addr="127.0.0.1:10911",
            cluster_name="DefaultCluster",
            broker_id=0,
        )
        assert await is_refused(stranger, leaving)
        assert await is_refused(stranger, registration())
        assert names.statistics().tables.live_brokers == 1


async def test_a_stranger_creates_and_deletes_no_topic(tmp_path: Path) -> None:
    async with (
        running_broker(tmp_path, **SECURE, auto_create_topics=True) as broker,
        client(broker.address, ROOT) as root,
        client(broker.address) as stranger,
    ):
        await root.create_topic()
        assert await is_refused(stranger, topic_creation("Huge", 2_000_000_000))
        assert await is_refused(stranger, DeleteTopicFromBroker(topic=TOPIC))
        assert await is_refused(stranger, message(topic="AutoCreated"))
        with pytest.raises(Refused):
            await root.call(topic_creation("Huge", 2_000_000_000))
        await root.send()


async def test_a_born_host_is_not_forged_by_a_preamble(tmp_path: Path) -> None:
    async with (
        running_broker(tmp_path, **SECURE) as broker,
        await WireClient.connect(broker.address) as wire,
    ):
        wire.write(b"PROXY TCP4 6.6.6.6 127.0.0.1 1 2\r\n")
        wire.send(encode_request(message(), 1))
        assert await wire.wait_closed() == []


@pytest.mark.parametrize(
    ("settings", "is_refused"),
    [({}, False), (SECURE, True), ({**SECURE, "ha_allowed_networks": "10.0.0.0/8"}, False)],
)
async def test_a_stranger_does_not_get_the_log_over_the_ha_port(
    tmp_path: Path, settings: Mapping[str, Any], is_refused: bool
) -> None:
    async with running_broker(tmp_path, **settings) as broker:
        stranger = SimpleNamespace(address="10.6.6.6:4000", certificate_names=())
        refusal = broker.replication.master.opened(cast(ReplicaLink, stranger))
        assert bool(refusal) == is_refused
        neighbour = SimpleNamespace(address="127.0.0.1:4000", certificate_names=())
        refusal = broker.replication.master.opened(cast(ReplicaLink, neighbour))
        assert bool(refusal) == ("ha_allowed_networks" in settings)
        broker.replication.master._links.clear()
