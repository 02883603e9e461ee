"""Several messages in one request: each is acknowledged for itself."""

from contextlib import suppress

from tests.simulation.loads.load import SEND_TIMEOUT_S, RunningLoad

from pyromq import Message, PyroError

_GROUP = "batch-readers"


class BatchedLoad(RunningLoad):
    def start(self) -> None:
        self.reads(_GROUP)
        self.sender("producer", self._produce())
        self.member("member", lambda: self.consume(_GROUP))

    async def _produce(self) -> None:
        async with self.producer("p", retries=0) as producer:
            while not self.is_over:
                bodies = [self.next_body("p") for _ in range(self.chance.randint(2, 8))]
                began_s, results = self.recorder.now_s, []
                with suppress(PyroError):
                    messages = [Message(self.topic, body.encode()) for body in bodies]
                    results = await producer.send(messages, timeout_s=SEND_TIMEOUT_S)
                for place, body in enumerate(bodies):
                    # Messages of one batch are sent at the same time: they are told apart by their names.
                    self.sent(body, body, began_s, results[place] if place < len(results) else None)
                await self.pause(has_failed=not results)
