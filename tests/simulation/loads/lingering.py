"""A producer that collects messages for a moment: those with one key stay in the order of their calls.

A burst has messages of several keys, with tags in turn, all within one linger time. The next one follows when
all are settled. Nothing is repeated, so what fails leaves no message behind a later one.
"""

import asyncio
from collections import defaultdict
from collections.abc import Iterator
from itertools import pairwise

from tests.simulation.contents import Contents
from tests.simulation.loads.load import RunningLoad

from pyromq import Message, PyroError, SendResult, aio

_GROUP = "linger-readers"
_KEYS, _TAGS = ("a", "b", "c"), ("red", "blue")
_LINGER_MS = 5
_IN_A_BURST = 12


class LingeringLoad(RunningLoad):
    def start(self) -> None:
        self.reads(_GROUP)
        self._order: dict[str, list[str]] = defaultdict(list)
        """By key: the bodies in the order of the calls."""
        self.sender("producer", self._produce())
        self.member("member", lambda: self.consume(_GROUP))

    async def _produce(self) -> None:
        async with self.producer("p", retries=0, linger_ms=_LINGER_MS) as producer:
            while not self.is_over:
                sends = [self._send(producer, number) for number in range(_IN_A_BURST)]
                results = await asyncio.gather(*sends)
                await self.pause(has_failed=not all(results))

    async def _send(self, producer: aio.Producer, number: int) -> bool:
        key, tag = self.chance.choice(_KEYS), _TAGS[number % len(_TAGS)]
        body, began_s = self.next_body(key), self.recorder.now_s
        self._order[key].append(body)
        result: SendResult | None = None
        try:
            message = Message(self.topic, body.encode(), tags=tag)
            result = await producer.send(message, sharding_key=key)
        except PyroError:
            pass
        self.sent(body, key, began_s, result)
        return result is not None and result.is_ok

    def judge(self, contents: list[Contents]) -> Iterator[tuple[str, str]]:
        yield from super().judge(contents)
        offsets = {sent.body: sent.offset for sent in self.history.sent if sent.offset is not None}
        for key, bodies in self._order.items():
            stored = [(body, offsets[body]) for body in bodies if body in offsets]
            for (earlier, low), (later, high) in pairwise(stored):
                if low >= high:
                    text = f"{earlier!r} is at {low}, and {later!r}, which was sent later, at {high}"
                    yield "out of order for a key", f"{key}: {text}"
