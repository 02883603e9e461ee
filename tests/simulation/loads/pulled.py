"""Consumers to which queues are assigned by hand; they commit when they have finished with messages."""

import asyncio
from contextlib import suppress

from tests.simulation.loads.load import RunningLoad

from pyromq import PyroError, aio

_GROUP = "pullers"
_MEMBERS = 2
_LONGEST_S = 0.3


class PulledLoad(RunningLoad):
    def start(self) -> None:
        self.reads(_GROUP, in_order=True)
        self.sender("producer", self.produce("p"))
        self.member("member 0", lambda: self._pull(0))
        self.member("member 1", lambda: self._pull(1))

    async def _pull(self, number: int) -> None:
        async with aio.PullConsumer(
            _GROUP,
            self.cluster.name_server_address,
            start_from="first",
            auto_commit=False,
            **self.options(),
        ) as consumer:
            await self._assign(consumer, number)
            while True:
                for message in await consumer.poll(5.0, max_messages=4):
                    self.delivered(_GROUP, message)
                    await asyncio.sleep(self.chance.uniform(0.0, _LONGEST_S) * (not self.is_over))
                    self.finished(_GROUP, message)
                with suppress(PyroError):
                    await consumer.commit()

    async def _assign(self, consumer: aio.PullConsumer, number: int) -> None:
        while True:
            with suppress(PyroError):
                queues = await consumer.queues(self.topic)
                await consumer.assign([each for each in queues if each.queue_id % _MEMBERS == number])
                return
            await self.pause(has_failed=True)
