"""A topic that keeps little, and an operator who purges its queues.

A purge that was answered holds, whoever is master. Nothing else is gone unless it is too old, or newer
messages take the room of its queue.
"""

import asyncio
from collections.abc import Iterator
from contextlib import suppress

from tests.simulation.cluster import BROKER_PORT, Server
from tests.simulation.contents import Contents
from tests.simulation.loads.load import RunningLoad

from pyromq.admin import topics
from pyromq.admin.cluster import Cluster
from pyromq.broker.broker import Broker
from pyromq.errors import PyroError
from pyromq.protocol.requests.offsets import GetMinOffset
from pyromq.protocol.requests.topics import PurgeQueue, TopicConfig

_TIMEOUT_S = 2.0
_QUEUES = 2
_TTL_S = 15
_KEPT_BYTES = 20_000
_ANY = 1 << 62
_LIMITS = f"+message.ttl={_TTL_S},+reserve.bytes={_KEPT_BYTES}"


class PurgedLoad(RunningLoad):
    def start(self) -> None:
        self._answered = [0] * _QUEUES
        """By queue: no reader gets a message before this one."""
        self._asked = [0] * _QUEUES
        """No purge has taken a message from here on."""
        self.sender("producer", self._make_and_produce())
        self.sender("operator", self._operate())

    def _operator(self) -> Cluster:
        return Cluster(self.cluster.name_server_address, timeout_s=_TIMEOUT_S, clock=self.cluster.loop.clock)

    async def _make_and_produce(self) -> None:
        wanted = TopicConfig(topic_name=self.topic, read_queue_nums=_QUEUES, write_queue_nums=_QUEUES)
        async with self._operator() as cluster:
            while not self.is_over:
                if (master := self.cluster.master()) is not None:
                    with suppress(PyroError):
                        await topics.put(cluster, [_address(master)], wanted, _LIMITS)
                        break
                await self.pause(has_failed=True)
        await self.produce("p")

    async def _operate(self) -> None:
        async with self._operator() as cluster:
            while not self.is_over:
                master, queue = self.cluster.master(), self.chance.randrange(_QUEUES)
                if master is not None:
                    with suppress(PyroError, TimeoutError):
                        async with asyncio.timeout(2 * _TIMEOUT_S):
                            # Whoever asks for the beginning, or reads there, lets the limits take effect.
                            asked = GetMinOffset(topic=self.topic, queue_id=queue)
                            await cluster.ask(_address(master), asked)
                            if self.chance.random() < 0.3:
                                await self._purge(cluster, master, queue)
                await asyncio.sleep(self.chance.uniform(0.0, 1.0))

    async def _purge(self, cluster: Cluster, master: Server, queue: int) -> None:
        broker = self.cluster.broker(master)
        if broker is None:
            return
        end = broker.store.queues.max_offset(self.topic, queue)
        offset = self.chance.choice((-1, end, end - 1))
        before = self._asked[queue]
        # Without an answer, it may take whatever has come when it is carried out.
        self._asked[queue] = _ANY if offset < 0 else max(before, offset)
        wanted = PurgeQueue(topic=self.topic, queue_id=queue, offset=offset)
        answer = await cluster.change(_address(master), wanted)
        self._answered[queue] = max(self._answered[queue], answer.offset)
        self._asked[queue] = max(before, answer.offset)
        self.acknowledged("operator")
        self.look()

    def look(self) -> None:
        group = self.cluster.recorded_group()
        for server in self.cluster.candidates(group) if group is not None else ():
            broker = self.cluster.broker(server)
            for invariant, text in self._wrong(broker) if broker is not None else ():
                self.recorder.violation(invariant, f"{server.host.name}: {text}")

    def _wrong(self, broker: Broker) -> Iterator[tuple[str, str]]:
        """As it stands: `min_offset` of the store itself would let the limits take effect."""
        store = broker.store
        for number in range(_QUEUES):
            queue = store.queues.find(self.topic, number)
            if queue is None:
                continue
            first = queue.min_offset(store.log.start)
            if first < min(self._answered[number], queue.end_offset):
                text = f"queue {number} begins at {first}, and was purged up to {self._answered[number]}"
                yield "an answered purge was undone", text
            if not self._asked[number] < first <= queue.end_offset:
                continue
            age_ms = store.time.now_ms() - store.queues.store_time(self.topic, number, first - 1)
            kept_bytes = sum(queue.unit(offset)[1] for offset in range(first - 1, queue.end_offset))
            if age_ms < _TTL_S * 1000 and kept_bytes <= _KEPT_BYTES:
                text = f"{first - 1} of queue {number} after {age_ms} ms, {kept_bytes} bytes from there on"
                yield "gone before its time", text

    def judge(self, contents: list[Contents]) -> Iterator[tuple[str, str]]:
        yield from super().judge(contents)
        for broker in self.cluster.running():
            yield from self._wrong(broker)


def _address(server: Server) -> str:
    return f"{server.host.address}:{BROKER_PORT}"
