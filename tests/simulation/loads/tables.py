"""An operator at work: topics and groups made, changed, deleted and made again, offsets set.

What was answered holds on every broker in the end. After a change without an answer nobody knows which state
holds, and it may even come later: the load then takes another name.
"""

import asyncio
from collections.abc import Iterator
from typing import Any

from tests.simulation.cluster import BROKER_PORT
from tests.simulation.contents import Contents
from tests.simulation.loads.load import RunningLoad

from pyromq.admin import groups, topics
from pyromq.admin.cluster import Cluster
from pyromq.errors import PyroError
from pyromq.protocol.bodies.groups import SubscriptionGroupConfig
from pyromq.protocol.bodies.topics import TopicConfig
from pyromq.protocol.requests.topics import DeleteTopicFromBroker

_TIMEOUT_S = 2.0


class TablesLoad(RunningLoad):
    def start(self) -> None:
        self._answered: dict[tuple[str, str], Any] = {}
        """By kind and name: what the operator was told last; None means deleted."""
        self._names = 0
        self.sender("producer", self._operate())

    async def _operate(self) -> None:
        async with Cluster(self.cluster.name_server_address, timeout_s=_TIMEOUT_S) as cluster:
            names = {"topic": self._new_name("topic"), "group": self._new_name("group")}
            while not self.is_over:
                master = self.cluster.master()
                if master is not None:
                    address = f"{master.host.address}:{BROKER_PORT}"
                    kind = self.chance.choice(("topic", "group"))
                    if not await self._change(cluster, address, kind, names[kind]):
                        self._answered.pop((kind, names[kind]), None)
                        names[kind] = self._new_name(kind)
                await self.pause()

    def _new_name(self, kind: str) -> str:
        self._names += 1
        return f"Made{kind.title()}{self._names}"

    async def _change(self, cluster: Cluster, address: str, kind: str, name: str) -> bool:
        """Whether it was answered."""
        is_there = self._answered.get((kind, name)) is not None
        value = None if is_there and self.chance.random() < 0.3 else self.chance.randint(1, 8)
        try:
            async with asyncio.timeout(2 * _TIMEOUT_S):
                if kind == "topic":
                    await self._put_topic(cluster, address, name, value)
                else:
                    await self._put_group(cluster, address, name, value)
        except (PyroError, TimeoutError):
            self.recorder.totals.unacknowledged += 1
            return False
        self._answered[kind, name] = value
        self.recorder.acknowledged()
        return True

    async def _put_topic(self, cluster: Cluster, address: str, name: str, queues: int | None) -> None:
        if queues is None:
            await cluster.ask(address, DeleteTopicFromBroker(topic=name))
        else:
            wanted = TopicConfig(topic_name=name, read_queue_nums=queues, write_queue_nums=queues)
            await topics.put(cluster, [address], wanted)

    async def _put_group(self, cluster: Cluster, address: str, name: str, retries: int | None) -> None:
        if retries is None:
            await groups.delete(cluster, [address], name, with_offsets=True)
        else:
            wanted = SubscriptionGroupConfig(group_name=name, retry_max_times=retries)
            await groups.put(cluster, [address], wanted)

    @property
    def is_delivered(self) -> bool:
        return True

    def judge(self, contents: list[Contents]) -> Iterator[tuple[str, str]]:
        for (kind, name), wanted in self._answered.items():
            for server in self.cluster.brokers:
                broker = self.cluster.broker(server)
                if broker is None:
                    continue
                tables = broker._started.tables
                if kind == "topic":
                    config = tables.topics.get(name)
                    found = config.write_queue_nums if config is not None else None
                else:
                    group = tables.groups.get(name)
                    found = group.retry_max_times if group is not None else None
                if found != wanted:
                    yield (
                        "an answered change is gone",
                        f"{kind} {name} is {found} at {server.host.name}, the operator was told {wanted}",
                    )
