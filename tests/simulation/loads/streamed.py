"""A group that reads with `async for`. The body raises now and then; the loop is entered again.

A message at which the body raised is not finished: it comes again.
"""

import asyncio
from contextlib import suppress

from tests.simulation.loads.load import RunningLoad

_GROUP = "stream-readers"
_FAILING = 0.2
_LONGEST_S = 0.2


class _Failed(Exception):
    pass


class StreamedLoad(RunningLoad):
    def start(self) -> None:
        self.reads(_GROUP)
        self._tried: set[str] = set()
        self.sender("producer", self.produce("p"))
        for number in (1, 2):
            self.member(f"member {number}", self._read)

    async def _read(self) -> None:
        async with self.consumer(_GROUP) as consumer:
            stream = consumer.subscribe(self.topic)
            while True:
                with suppress(_Failed):
                    async for message in stream:
                        self.delivered(_GROUP, message)
                        await asyncio.sleep(self.chance.uniform(0.0, _LONGEST_S))
                        body = message.body.decode()
                        if body not in self._tried and self.chance.random() < _FAILING:
                            self._tried.add(body)
                            self.settled(_GROUP, message)
                            raise _Failed
                        self.finished(_GROUP, message)
