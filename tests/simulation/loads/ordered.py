"""Messages with a key, each sent after the one before was acknowledged, and a group that reads in order."""

import asyncio
from contextlib import suppress

from tests.simulation.loads.load import SEND_TIMEOUT_S, RunningLoad

from pyromq import Message, PyroError, aio

_GROUP = "ordered-readers"


class OrderedLoad(RunningLoad):
    def start(self) -> None:
        self.reads(_GROUP, in_order=True)
        self.sender("producer", self._produce())
        for number in (1, 2):
            self.member(f"member {number}", lambda: self.consume(_GROUP, ordered=True))

    async def _produce(self) -> None:
        async with self.producer("p") as producer:
            await asyncio.gather(*(self._send(producer, key) for key in ("a", "b", "c")))

    async def _send(self, producer: aio.Producer, key: str) -> None:
        while not self.is_over:
            body, began_s, result = self.next_body(key), self.recorder.now_s, None
            with suppress(PyroError):
                message = Message(self.topic, body.encode())
                result = await producer.send(message, sharding_key=key, timeout_s=SEND_TIMEOUT_S)
            self.sent(body, key, began_s, result)
            await self.pause(has_failed=result is None or not result.is_ok)
