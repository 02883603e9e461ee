"""Many sends at once, and patient producers: whatever breaks, some are stored and not answered. They are
repeated, and stored once."""

import asyncio
from contextlib import suppress

from tests.simulation.loads.load import RunningLoad

from pyromq import Message, PyroError, aio

_GROUP = "repeated-readers"
_AT_ONCE = 12
_TIMEOUT_S = 6.0


class RepeatedLoad(RunningLoad):
    def start(self) -> None:
        self.reads(_GROUP)
        self.sender("producer", self._produce())
        self.member("member", lambda: self.consume(_GROUP))

    async def _produce(self) -> None:
        async with self.producer("r", retries=9, send_timeout_s=_TIMEOUT_S) as producer:
            await asyncio.gather(*(self._send(producer, f"r{number}") for number in range(_AT_ONCE)))

    async def _send(self, producer: aio.Producer, name: str) -> None:
        while not self.is_over:
            body, began_s, result = self.next_body(name), self.recorder.now_s, None
            with suppress(PyroError):
                result = await producer.send(Message(self.topic, body.encode()))
            self.sent(body, name, began_s, result)
            await self.pause(has_failed=result is None or not result.is_ok)
