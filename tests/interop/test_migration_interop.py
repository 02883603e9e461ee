"""From a pair of Apache's brokers to ours without stopping, as docs/howto/high-availability.md tells it."""

from __future__ import annotations

import asyncio
import shutil
from collections import Counter
from pathlib import Path

import pytest
from tests.interop.test_replication_interop import address_of, apaches, copied, end_of, log_in
from tests.support.apache_releases import APACHE_5
from tests.support.broker_cluster import BROKER_NAME, GROUP, TOPIC, BrokerClient, running_broker
from tests.support.own_nameserver import OwnNameServer
from tests.support.replicas import until
from tests.support.small_stores import messages_in

from pyromq import Message, aio
from pyromq.admin.cluster import Cluster
from pyromq.admin.name_servers import wipe_write_permission
from pyromq.broker.broker import Broker
from pyromq.errors import PyroError
from pyromq.protocol.requests.groups import CreateOrUpdateGroup, SubscriptionGroupConfig
from pyromq.protocol.requests.offsets import QueryConsumerOffset, UpdateConsumerOffset
from pyromq.protocol.requests.replication import GetHaStatus

pytestmark = [pytest.mark.interop, pytest.mark.timeout(600)]

QUEUES = 2


class Load:
    """A producer that sends one message after the other, and remembers which were acknowledged."""

    def __init__(self, names: str) -> None:
        self._names = names
        self._task = asyncio.create_task(self._send())
        self.acknowledged: list[bytes] = []

    async def _send(self) -> None:
        number = 0
        async with aio.Producer("load", self._names, send_timeout_s=5) as producer:
            while True:
                body = b"%d " % number + b"x" * 500
                try:
                    if (await producer.send(Message(TOPIC, body))).is_ok:
                        self.acknowledged.append(body)
                except PyroError:
                    await asyncio.sleep(0.05)  # nobody takes messages at the moment
                number += 1
                await asyncio.sleep(0.005)

    async def more(self, count: int = 50) -> None:
        """Wait until so many more are acknowledged."""
        wanted = len(self.acknowledged) + count
        async with asyncio.timeout(120):
            while len(self.acknowledged) < wanted:  # noqa: ASYNC110
                await asyncio.sleep(0.05)

    async def stop(self) -> None:
        self._task.cancel()
        await asyncio.wait([self._task])


async def follows(client: BrokerClient) -> None:
    """Until the master has its replica: one that comes later gets only the newest file of the log."""
    async with asyncio.timeout(120):
        while not (await client.call(GetHaStatus())).body.ha_connection_info:  # noqa: ASYNC110
            await asyncio.sleep(0.1)


def bodies(broker: Broker) -> Counter[bytes]:
    found: Counter[bytes] = Counter()
    for queue_id in range(QUEUES):
        offset = broker.store.queues.min_offset(TOPIC, queue_id)
        while messages := messages_in(broker.store.read(TOPIC, queue_id, offset, 1000)):
            found.update(message.body for message in messages)
            offset = messages[-1].queue_offset + 1
    return found


async def test_apaches_pair_is_replaced_under_load_and_nothing_acknowledged_is_lost(tmp_path: Path) -> None:
    ours = tmp_path / "ours"
    with OwnNameServer() as name_server:
        names = name_server.address
        async with apaches(APACHE_5, names, tmp_path / "slave", 1) as slave:
            async with apaches(APACHE_5, names, tmp_path / "master", 0) as master:
                async with BrokerClient(address_of(master)) as client:
                    await client.create_topic(queues=QUEUES)
                    await client.call(CreateOrUpdateGroup(body=SubscriptionGroupConfig(group_name=GROUP)))
                    commit = UpdateConsumerOffset(
                        consumer_group=GROUP, topic=TOPIC, queue_id=0, commit_offset=3
                    )
                    await client.call(commit)
                    await follows(client)
                load = Load(names)
                await load.more()

                # 1. A copy of Apache's replica, which is stopped for that, becomes ours.
                await asyncio.to_thread(slave.terminate)
                shutil.copytree(tmp_path / "slave", ours)
                await asyncio.to_thread(slave.start)
                await load.more()
                async with (
                    running_broker(ours, namesrv_addr=names, broker_role="SLAVE", broker_id=2) as replica,
                    BrokerClient(address_of(master)) as client,
                ):
                    await load.more()
                    # 2. Nobody writes any more.
                    async with Cluster(names) as cluster:
                        assert sum((await wipe_write_permission(cluster, BROKER_NAME)).values())
                    end = -1
                    while end != (end := await end_of(client)):  # noqa: ASYNC110
                        await asyncio.sleep(1)
                    # 3. The replica has everything.
                    await until(lambda: replica.store.log.end == end)
                    await copied(replica)
            # 4. Apache's master is gone, ours takes its place. 5. Apache's replica follows it.
            async with (
                running_broker(
                    ours, namesrv_addr=names, broker_role="SYNC_MASTER", in_sync_replicas=2
                ) as promoted,
                BrokerClient(promoted.address) as client,
            ):
                await load.more()
                await load.stop()
                found = bodies(promoted)
                assert not set(load.acknowledged) - found.keys()
                query = QueryConsumerOffset(consumer_group=GROUP, topic=TOPIC, queue_id=0)
                assert (await client.call(query)).offset == 3
                end = promoted.store.log.end
                await until(lambda: promoted.replication.master.links[0].acknowledged == end)
                theirs, mine = log_in(tmp_path / "slave", end), log_in(ours, end)
                assert theirs.keys() <= mine.keys()
                assert theirs == {name: mine[name] for name in theirs}
