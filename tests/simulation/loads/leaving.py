"""A broker of another name loses power for good: its producer forgets it, and sends as quickly as before.

A producer avoids a broker that has failed, and sends more slowly meanwhile. Messages of the lost broker are
gone with it, and not judged.
"""

import asyncio
from collections.abc import Iterator
from contextlib import suppress

from tests.simulation.cluster import BROKER_PORT
from tests.simulation.contents import Contents
from tests.simulation.loads.load import RunningLoad

from pyromq import Message, PyroError, aio
from pyromq.admin import topics
from pyromq.admin.cluster import Cluster
from pyromq.protocol.requests.topics import TopicConfig

_STAYS_S = 4.0
_AVOIDED_S = 180
"""Longer than any broker is avoided; before that, the name server has to notice that it is gone."""


class LeavingLoad(RunningLoad):
    def start(self) -> None:
        self._leaver = self.cluster.lone_broker("leaver")
        self._leaver.start()
        self.cluster.loop.call_later(_STAYS_S, self._leaver.lose_power)
        self.sender("producer", self._produce())

    @property
    def is_delivered(self) -> bool:
        return True

    def judge(self, contents: list[Contents]) -> Iterator[tuple[str, str]]:
        return iter(())

    async def _produce(self) -> None:
        await self._make_topic()
        async with self.producer("p") as producer:
            while not self.is_over:
                await self._send(producer)
                await self.pause()
            for _ in range(_AVOIDED_S):
                await self._send(producer)
                await asyncio.sleep(1.0)
            parts = producer._parts
            assert parts is not None
            if parts.sender.faults:
                self.recorder.violation("a lost broker is avoided for ever", str(parts.sender))

    async def _make_topic(self) -> None:
        """On both brokers, unless the other one has left already."""
        wanted = TopicConfig(topic_name=self.topic, read_queue_nums=4, write_queue_nums=4)
        async with Cluster(
            self.cluster.name_server_address, timeout_s=1.0, clock=self.cluster.loop.clock
        ) as cluster:
            for _ in range(int(_STAYS_S)):
                if (master := self.cluster.master()) is not None:
                    addresses = [f"{each.host.address}:{BROKER_PORT}" for each in (self._leaver, master)]
                    with suppress(PyroError):
                        await topics.put(cluster, addresses, wanted)
                        return
                await asyncio.sleep(0.5)

    async def _send(self, producer: aio.Producer) -> None:
        with suppress(PyroError):
            if (await producer.send(Message(self.topic, self.next_body("p").encode()))).is_ok:
                self.recorder.acknowledged()
