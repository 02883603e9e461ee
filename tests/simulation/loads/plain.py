"""Plain sends of two producers to all queues, and a group of two members that gets everything.

Handlers take a moment, so that a member that is killed leaves unfinished messages.
"""

import asyncio

from tests.simulation.loads.load import RunningLoad

from pyromq import ReceivedMessage

_GROUP = "plain-readers"
_LONGEST_S = 0.5


class PlainLoad(RunningLoad):
    def start(self) -> None:
        self.reads(_GROUP)
        for number in (1, 2):
            self.sender(f"producer {number}", self.produce(f"p{number}"))
            self.member(f"member {number}", lambda: self.consume(_GROUP, self._work))

    async def _work(self, _: ReceivedMessage) -> None:
        await asyncio.sleep(self.chance.uniform(0.0, _LONGEST_S))
