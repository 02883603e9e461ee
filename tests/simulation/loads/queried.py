"""Someone who looks for messages by key and by place, and asks where queues end.

No answer tells of a message that a broker in sync lacks: if that one is the next master, nobody has sent it.
"""

import asyncio
from contextlib import suppress

from tests.simulation.cluster import BROKER_PORT, Server
from tests.simulation.loads.load import RunningLoad

from pyromq import Message, PyroError
from pyromq.admin.cluster import Cluster
from pyromq.protocol.requests.offsets import GetMaxOffset, SearchOffset
from pyromq.protocol.requests.pulling import QueryMessage, ViewMessage

_TIMEOUT_S = 3.0
_QUEUES = 4
_KEY = "k"


class QueriedLoad(RunningLoad):
    def start(self) -> None:
        self.sender("producer", self._produce())
        self.sender("searcher", self._search())

    async def _produce(self) -> None:
        async with self.producer("p") as producer:
            while not self.is_over:
                body, began_s, result = self.next_body("p"), self.recorder.now_s, None
                with suppress(PyroError):
                    result = await producer.send(Message(self.topic, body.encode(), keys=[_KEY]))
                self.sent(body, "p", began_s, result)
                await self.pause(has_failed=result is None or not result.is_ok)

    async def _search(self) -> None:
        async with Cluster(
            self.cluster.name_server_address, timeout_s=_TIMEOUT_S, clock=self.cluster.loop.clock
        ) as cluster:
            while not self.is_over:
                # Any broker: a client may not know yet who is master.
                for server in self.cluster.brokers:
                    with suppress(PyroError, TimeoutError):
                        async with asyncio.timeout(_TIMEOUT_S):
                            await self._ask(cluster, server)
                await asyncio.sleep(self.chance.uniform(0.0, 0.1))

    async def _ask(self, cluster: Cluster, server: Server) -> None:
        """Records in the answers are looked at by the rules of all readers; ends are looked at here."""
        address, broker = f"{server.host.address}:{BROKER_PORT}", self.cluster.broker(server)
        if broker is None:
            return
        await cluster.ask(
            address,
            QueryMessage(topic=self.topic, key=_KEY, max_num=4, begin_timestamp=0, end_timestamp=1 << 62),
        )
        queue_id = self.chance.randrange(_QUEUES)
        end = await cluster.ask(address, GetMaxOffset(topic=self.topic, queue_id=queue_id))
        self._check_end(server, queue_id, end.offset)
        late = SearchOffset(topic=self.topic, queue_id=queue_id, timestamp=1 << 50)
        self._check_end(server, queue_id, (await cluster.ask(address, late)).offset)
        if end.offset and (place := broker.store.queues.log_offset(self.topic, queue_id, end.offset - 1)):
            await cluster.ask(address, ViewMessage(topic=self.topic, offset=place))

    def _check_end(self, server: Server, queue_id: int, end: int) -> None:
        """Every broker that may be the next master has the messages before an end that was told."""
        broker, group = self.cluster.broker(server), self.cluster.recorded_group()
        if broker is None or group is None or not end or self.cluster.plan.acknowledges_alone:
            return
        place = broker.store.queues.log_offset(self.topic, queue_id, end - 1)
        for candidate in self.cluster.candidates(group):
            other = self.cluster.broker(candidate)
            if place is not None and other is not None and other.store.log.end <= place:
                text = f"{server.host.name}: queue {queue_id} ends at {end}, not at {candidate.host.name}"
                self.recorder.violation("an end that is not in sync", text)
