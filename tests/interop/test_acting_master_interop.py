"""Slave acting master in a group of Apache's brokers and ours: offsets committed meanwhile come back."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from tests.interop.test_replication_interop import address_of, apaches, copied, end_of
from tests.support.apache_releases import APACHE_5, APACHE_NEWEST, Release
from tests.support.broker_cluster import GROUP, TOPIC, BrokerClient, running_broker
from tests.support.own_nameserver import OwnNameServer
from tests.support.replicas import until

from pyromq.errors import PyroError, Refused
from pyromq.protocol.requests.groups import CreateOrUpdateGroup, SubscriptionGroupConfig
from pyromq.protocol.requests.offsets import QueryConsumerOffset, UpdateConsumerOffset
from pyromq.protocol.requests.routes import GetRoute, TopicRouteData
from pyromq.remoting.dialer import Dialer

pytestmark = [pytest.mark.interop, pytest.mark.timeout(600)]

OURS: dict[str, Any] = {"slave_acting_master": True, "total_replicas": 2}
APACHES = {"enableSlaveActingMaster": "true", "totalReplicas": "2"}
COMMITTED = 3


async def route(names: str) -> TopicRouteData:
    dialer = Dialer()
    try:
        found = (await dialer.call(names, GetRoute(topic=TOPIC), 60)).body
    except Refused:
        found = None
    finally:
        await dialer.close()
    return found or TopicRouteData()


async def shown_as_master(names: str, address: str, *, perm: int) -> None:
    async with asyncio.timeout(240):
        while True:
            found = await route(names)
            masters = [data.broker_addrs.get(0) for data in found.broker_datas]
            if masters == [address] and [data.perm for data in found.queue_datas] == [perm]:
                return
            await asyncio.sleep(0.2)


async def commit(client: BrokerClient, offset: int) -> None:
    request = UpdateConsumerOffset(consumer_group=GROUP, topic=TOPIC, queue_id=0, commit_offset=offset)
    await client.call(request)


async def committed(client: BrokerClient) -> int:
    return (await client.call(QueryConsumerOffset(consumer_group=GROUP, topic=TOPIC, queue_id=0))).offset


async def prepare(client: BrokerClient) -> None:
    await client.create_topic(queues=1)
    await client.call(CreateOrUpdateGroup(body=SubscriptionGroupConfig(group_name=GROUP)))
    for number in range(COMMITTED + 1):
        await client.send(b"%d" % number)
    await commit(client, 1)


@pytest.mark.parametrize("release", [APACHE_5, APACHE_NEWEST], ids=str)
async def test_our_replica_stands_in_for_apaches_master(release: Release, tmp_path: Path) -> None:
    with OwnNameServer({"supportActingMaster": "true"}) as name_server:
        names = name_server.address
        async with (
            apaches(release, names, tmp_path / "m", 0, **APACHES) as master,
            running_broker(
                tmp_path / "r", namesrv_addr=names, broker_role="SLAVE", broker_id=1, **OURS
            ) as replica,
            BrokerClient(replica.address) as reader,
        ):
            async with BrokerClient(address_of(master)) as client:
                await prepare(client)
                end = await end_of(client)
            await until(lambda: replica.store.log.end == end)
            await copied(replica)
            await asyncio.to_thread(master.kill)
            await until(lambda: replica.replication.acting_master.is_acting)
            await shown_as_master(names, replica.advertised_address, perm=4)
            await commit(reader, COMMITTED)
            await asyncio.to_thread(master.start)
            await shown_as_master(names, master.address, perm=6)
            await until(lambda: not replica.replication.acting_master.is_acting)
            async with BrokerClient(address_of(master)) as client:
                assert await committed(client) == COMMITTED
                await until(lambda: replica.replication.replica.is_connected)
                await client.send(b"again")
                end = await end_of(client)
            await until(lambda: replica.store.log.end == end)


async def test_apaches_replica_stands_in_for_our_master(tmp_path: Path) -> None:
    with OwnNameServer({"supportActingMaster": "true"}) as name_server:
        names = name_server.address
        async with apaches(APACHE_5, names, tmp_path / "r", 1, **APACHES) as replica:
            async with (
                running_broker(tmp_path / "m", namesrv_addr=names, **OURS) as master,
                BrokerClient(master.address) as client,
            ):
                await prepare(client)
                await until(lambda: len(master.replication.master.links) == 1)
                end = master.store.log.end
                await until(lambda: master.replication.master.links[0].acknowledged == end)
                async with BrokerClient(address_of(replica)) as reader, asyncio.timeout(240):
                    while True:  # 5.x copies nothing in its first minute
                        try:
                            if await committed(reader) == 1:
                                await commit(reader, 1)  # refused until it has copied the group
                                break
                        except PyroError:
                            pass
                        await asyncio.sleep(1)
            await shown_as_master(names, replica.address, perm=4)
            async with BrokerClient(address_of(replica)) as reader:
                await commit(reader, COMMITTED)
            async with (
                running_broker(tmp_path / "m", namesrv_addr=names, **OURS) as master,
                BrokerClient(master.address) as client,
            ):
                await shown_as_master(names, master.advertised_address, perm=6)
                assert await committed(client) == COMMITTED
                await until(lambda: len(master.replication.master.links) == 1)
