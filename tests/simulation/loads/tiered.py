"""Messages that leave the disks for an object store, and a reader who reads all of them again and again.

Nothing is ever too old: so the reader gets all messages, each at its offset, wherever they are. Files of the
log are small. An operator has them deleted when every broker has on its disk what the store has: a broker
that was away while its master deleted what it lacks would have to be made anew.
"""

import asyncio
from contextlib import suppress

from tests.simulation.cluster import Server
from tests.simulation.loads.load import RunningLoad

from pyromq import MessageQueue, PyroError, aio

_GROUP = "historians"
_PADDING = "-" + 1000 * "x"
"""A few messages fill a file."""
_LONGEST_S = 3.0


class TieredLoad(RunningLoad):
    def start(self) -> None:
        self.reads(_GROUP, commits=False)
        self.sender("producer", self.produce("p"))
        self.member("historian", self._read_again_and_again)
        if self.cluster.plan.removes_files:
            self._cleaning = asyncio.create_task(self._clean_now_and_then())

    async def _clean_now_and_then(self) -> None:
        while not self.is_over:
            await asyncio.sleep(self.chance.uniform(0.0, _LONGEST_S))
            for server in self.cluster.brokers:
                if server.process is not None and self.chance.random() < 0.7:
                    server.process.run(self._clean(server))

    async def _clean(self, server: Server) -> None:
        broker, brokers = self.cluster.broker(server), self.cluster.running()
        if broker is None or broker.tiering is None or not self.cluster.is_whole:
            return
        flushed = min(each.store.flushes.offset for each in brokers)
        if (broker.store._retention.uploaded_to or 0) <= flushed:
            broker.store.clean(on_demand=True)

    def next_body(self, producer: str) -> str:
        return super().next_body(producer) + _PADDING

    async def _read_again_and_again(self) -> None:
        async with aio.PullConsumer(
            _GROUP,
            self.cluster.name_server_address,
            start_from="first",
            auto_commit=False,
            **self.options(),
        ) as consumer:
            await self._assign(consumer)
            while True:
                with suppress(PyroError):
                    await consumer.seek_to_begin()
                    await self._read(consumer)
                await asyncio.sleep(self.chance.uniform(0.0, _LONGEST_S))

    async def _assign(self, consumer: aio.PullConsumer) -> None:
        while True:
            with suppress(PyroError):
                await consumer.assign(await consumer.queues(self.topic))
                return
            await self.pause(has_failed=True)

    async def _read(self, consumer: aio.PullConsumer) -> None:
        """Until nothing comes for a moment."""
        following: dict[MessageQueue, int] = {}
        while messages := await consumer.poll(_LONGEST_S):
            for message in messages:
                expected = following.get(message.queue, 0)
                if message.queue_offset != expected:
                    text = f"{message.queue_offset} of {message.queue} came instead of {expected}"
                    self.recorder.violation("a reader passed over messages", text)
                following[message.queue] = message.queue_offset + 1
                self.delivered(_GROUP, message)
                self.finished(_GROUP, message)
