"""Messages that brokers hold back: for a delay level, or until a time."""

from collections.abc import Iterator
from contextlib import suppress

from tests.simulation.contents import Contents
from tests.simulation.loads.decided import DecidedLoad

from pyromq import Message, PyroError

_LEVELS_MS = {1: 1000, 2: 5000, 3: 10_000}


class HeldLoad(DecidedLoad):
    """Delayed, or timed: `_message` makes the difference."""

    def start(self) -> None:
        self._due_ms: dict[str, int] = {}
        group = f"{self.load.kind}-readers"
        self.reads(group)
        producer = self.sender("producer", self._produce())
        self._clock = producer.host.clock
        self.member("member", lambda: self.consume(group))

    def _message(self, body: str) -> Message:
        raise NotImplementedError

    async def _produce(self) -> None:
        async with self.producer("p", send_timeout_s=1.5) as producer:
            while not self.is_over:
                body, result = self.next_body("timed"), None
                with suppress(PyroError):
                    result = await producer.send(self._message(body))
                self.decided(body, result)
                await self.pause(has_failed=result is None or not result.is_ok)

    def judge(self, contents: list[Contents]) -> Iterator[tuple[str, str]]:
        yield from super().judge(contents)
        if any(fault.kind == "clock" for fault in self.cluster.plan.faults):
            return  # too early by whose clock?
        for each in contents:
            for message in each.messages(self.topic):
                due_ms = self._due_ms.get(message.body.decode(), 0)
                if message.store_timestamp < due_ms:
                    early_ms = due_ms - message.store_timestamp
                    yield f"too early ({self.load.kind})", f"{message.body!r} by {early_ms} ms"


class DelayedLoad(HeldLoad):
    def _message(self, body: str) -> Message:
        level = self.chance.choice(list(_LEVELS_MS))
        # The time counts from the moment at which the broker gets it.
        self._due_ms[body] = self._clock.now_ms() + _LEVELS_MS[level]
        return Message(self.topic, body.encode(), delay_level=level)


class TimedLoad(HeldLoad):
    def _message(self, body: str) -> Message:
        due_ms = self._clock.now_ms() + self.chance.randrange(300, 10_000)
        self._due_ms[body] = due_ms
        return Message(self.topic, body.encode(), deliver_at_ms=due_ms)
