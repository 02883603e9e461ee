"""Plain sends of two producers to all queues, and a group of two members that gets everything."""

import asyncio
from contextlib import suppress

from tests.simulation.loads.load import SEND_TIMEOUT_S, RunningLoad

from pyromq import Message, PyroError, ReceivedMessage, aio

_GROUP = "plain-readers"


class PlainLoad(RunningLoad):
    def start(self) -> None:
        self.reads(_GROUP)
        for number in (1, 2):
            self.client(f"producer {number}", self._produce(f"p{number}"))
            self.client(f"member {number}", self._consume())

    async def _produce(self, name: str) -> None:
        async with aio.Producer(
            "plain", self.cluster.name_server_address, retries=1, **self.options()
        ) as producer:
            while not self.is_over:
                body, began_s, result = self.next_body(name), self.recorder.now_s, None
                with suppress(PyroError):
                    result = await producer.send(Message(self.topic, body.encode()), timeout_s=SEND_TIMEOUT_S)
                self.sent(body, name, began_s, result)
                await self.pause(has_failed=result is None or not result.is_ok)

    async def _consume(self) -> None:
        async with aio.PushConsumer(
            _GROUP,
            self.cluster.name_server_address,
            start_from="first",
            commit_interval_s=1.0,
            rebalance_interval_s=2.0,
            **self.options(),
        ) as consumer:
            consumer.subscribe(self.topic, "*", self._take)
            await asyncio.Event().wait()

    async def _take(self, message: ReceivedMessage) -> None:
        self.delivered(_GROUP, message)
