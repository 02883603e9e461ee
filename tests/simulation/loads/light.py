"""Messages that enter light queues besides the queue of their topic: each is in all that it names."""

from collections.abc import Iterator
from contextlib import suppress
from itertools import takewhile

from tests.simulation.contents import Contents
from tests.simulation.loads.load import RunningLoad
from tests.support.small_stores import bodies_of

from pyromq import Message, PyroError
from pyromq.protocol.properties import INNER_MULTI_DISPATCH

_NAMES = tuple(f"%LMQ%device-{number}" for number in range(5))


class LightLoad(RunningLoad):
    def start(self) -> None:
        self._named: dict[str, list[str]] = {}
        """By body: the light queues of a message."""
        self.sender("producer", self._produce())

    async def _produce(self) -> None:
        async with self.producer("p") as producer:
            while not self.is_over:
                body, began_s, result = self.next_body("p"), self.recorder.now_s, None
                names = self._named[body] = self.chance.sample(_NAMES, self.chance.randint(1, 3))
                properties = {INNER_MULTI_DISPATCH: ",".join(names)}
                with suppress(PyroError):
                    result = await producer.send(Message(self.topic, body.encode(), properties=properties))
                self.sent(body, "p", began_s, result)
                await self.pause(has_failed=result is None or not result.is_ok)

    def judge(self, contents: list[Contents]) -> Iterator[tuple[str, str]]:
        yield from super().judge(contents)
        for each in contents:
            stored = [message.body.decode() for message in each.messages(self.topic)]
            for name in _NAMES:
                wanted = [body for body in stored if name in self._named[body]]
                found = [body.decode() for body in bodies_of(each.store, name)]
                if found != wanted:
                    same = takewhile(lambda pair: pair[0] == pair[1], zip(found, wanted, strict=False))
                    at = len(list(same))
                    text = f"{name} at {each.broker} has {found[at:][:3]} at {at}, expected {wanted[at:][:3]}"
                    yield "a light queue differs from its log", text
