"""Ordered members with slow handlers. They are killed, paused and suspended; locks divide the queues.

No two members handle messages of a queue at the same time, and its committed offset never goes back. There
are two limits. A member that stood still while it handled a message knows nothing of its lock. And a master
that has just begun knows no locks, while members trust their last one for `LOCK_VALID_S`.
"""

import asyncio
from dataclasses import dataclass

from tests.simulation.loads.load import RunningLoad
from tests.simulation.processes import Process

from pyromq import ReceivedMessage
from pyromq.broker.broker import Broker
from pyromq.client.consumer.reading.in_flight import LOCK_VALID_S

_GROUP = "locked-readers"
_LONG, _LONG_S, _SHORT_S = 0.05, 15.0, 0.3
"""How many messages take long, and how long the others do."""
_MEMBERS = 3
_PAUSE_S = 0.4
"""Between two messages at least: more would be too much for handlers that run one at a time."""


@dataclass(eq=False)
class _Handling:
    """A member handles a message."""

    process: Process
    began_s: float
    pauses: int


class LockedLoad(RunningLoad):
    def start(self) -> None:
        self.reads(_GROUP, in_order=True)
        self._master: Broker | None = None
        self._since_s = 0.0
        """Since when there is this master, at the latest."""
        self._offsets: dict[int, int] = {}
        self._running: dict[int, list[_Handling]] = {}
        """By queue."""
        self.sender("producer", self.produce("p"))
        for number in range(1, _MEMBERS + 1):
            # One handler at a time: the queues of a member wait for each other.
            self.member(
                f"member {number}", lambda: self.consume(_GROUP, self._work, ordered=True, concurrency=1)
            )

    async def _work(self, message: ReceivedMessage) -> None:
        process = self.cluster.loop.process
        assert process is not None
        handling = _Handling(process, self.recorder.now_s, process.pauses)
        running = self._running.setdefault(message.queue.queue_id, [])
        self._check_alone(message, running)
        running.append(handling)
        if not self.is_over:
            is_long = self.chance.random() < _LONG
            await asyncio.sleep(self.chance.uniform(0.0, _LONG_S if is_long else _SHORT_S))
        running.remove(handling)

    async def pause(self, *, has_failed: bool = False) -> None:
        await super().pause(has_failed=has_failed)
        await asyncio.sleep(max(0.0, _PAUSE_S - self.load.pause_s))

    def _check_alone(self, message: ReceivedMessage, running: list[_Handling]) -> None:
        for other in running:
            is_excused = other.process.is_dead or other.process.pauses > other.pauses
            if not is_excused and self._are_locks_known(other.began_s):
                self.recorder.violation(
                    "a queue handled by two",
                    f"{message.queue} by {other.process.name} since {other.began_s:.3f} s, at"
                    f" {message.queue_offset} by another one",
                )

    def _are_locks_known(self, at_s: float) -> bool:
        """Whether the master knows all locks that members trusted at this time."""
        return at_s > self._since_s + LOCK_VALID_S

    def look(self) -> None:
        super().look()
        broker = self.broker_of_master()
        if broker is not self._master:
            self._master, self._since_s, self._offsets = broker, self.recorder.now_s, {}
        if broker is None:
            return
        for queue, offset in broker._started.tables.offsets.queues(_GROUP, self.topic).items():
            if offset < self._offsets.get(queue, 0) and self._are_locks_known(self.recorder.now_s):
                self.recorder.violation(
                    "a committed offset went back", f"queue {queue}: {self._offsets[queue]}, now {offset}"
                )
            self._offsets[queue] = offset
