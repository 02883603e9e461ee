"""Messages that leave the disks for an object store, and a reader who reads all of them again and again.

Nothing is ever too old: so the reader gets all messages, each at its offset, wherever they are. Files of the
log are small. An operator has them deleted when every broker has on its disk what the store has: a broker
that was away while its master deleted what it lacks would have to be made anew.
"""

import asyncio
from contextlib import suppress

from tests.simulation.loads.load import RunningLoad

from pyromq import MessageQueue, PyroError, aio
from pyromq.broker.broker import Broker

_GROUP = "historians"
_PADDING = "-" + 1000 * "x"
"""A few messages fill a file."""
_LONGEST_S = 3.0


class TieredLoad(RunningLoad):
    def start(self) -> None:
        self.reads(_GROUP, commits=False)
        self._may_be_damaged = any(fault.kind == "damage" for fault in self.cluster.plan.faults)
        self.sender("producer", self.produce("p"))
        self.member("historian", self._read_again_and_again)
        if self.cluster.plan.removes_files:
            self._cleaning = asyncio.create_task(self.clean_now_and_then())

    def may_clean(self, broker: Broker) -> bool:
        flushed = min(each.store.flushes.offset for each in self.cluster.running())
        return broker.tiering is not None and (broker.store._retention.uploaded_to or 0) <= flushed

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
                if self._may_be_damaged and not message.body.endswith(_PADDING.encode()):
                    continue  # what its broker wrote lately comes from memory, and is not compared
                self.delivered(_GROUP, message)
                self.finished(_GROUP, message)
