"""An operator who sets a group back in its queues: once that is answered, its members go there.

They do so also if the master, or the member that reads the queue, is killed before it has heard of it. If the
next reset of a queue comes before that, only the last one counts.
"""

import asyncio
from collections.abc import Iterator
from typing import NamedTuple

from tests.simulation.cluster import BROKER_PORT
from tests.simulation.contents import Contents
from tests.simulation.loads.load import RunningLoad

from pyromq.admin.cluster import Cluster
from pyromq.broker.broker import Broker
from pyromq.errors import PyroError
from pyromq.protocol.requests.offsets import ResetOffset

_GROUP = "reset-readers"
_TIMEOUT_S = 2.0
_PAUSE_S = 2.0


class _Reset(NamedTuple):
    queue: int
    offset: int
    began_s: float
    is_answered: bool


class ResetsLoad(RunningLoad):
    def start(self) -> None:
        self.reads(_GROUP)
        self._resets: list[_Reset] = []
        self.sender("producer", self.produce("p"))
        self.sender("operator", self._operate())
        for number in (1, 2):
            self.member(f"member {number}", lambda: self.consume(_GROUP))

    async def _operate(self) -> None:
        async with Cluster(
            self.cluster.name_server_address, timeout_s=_TIMEOUT_S, clock=self.cluster.loop.clock
        ) as cluster:
            while not self.is_over:
                master, broker = self.cluster.master(), self.broker_of_master()
                if master is not None and broker is not None:
                    address = f"{master.host.address}:{BROKER_PORT}"
                    # Only back: whatever was acknowledged still comes to the group.
                    standing = broker._started.tables.offsets.queues(_GROUP, self.topic)
                    if moved := [(queue, offset) for queue, offset in standing.items() if offset > 0]:
                        queue, offset = self.chance.choice(moved)
                        await self._reset(cluster, address, queue, self.chance.randrange(offset))
                await asyncio.sleep(self.chance.uniform(0.0, _PAUSE_S))

    async def _reset(self, cluster: Cluster, address: str, queue: int, offset: int) -> None:
        began_s, is_answered = self.recorder.now_s, False
        try:
            async with asyncio.timeout(2 * _TIMEOUT_S):
                await cluster.ask(
                    address,
                    ResetOffset(
                        group=_GROUP,
                        topic=self.topic,
                        queue_id=queue,
                        offset=offset,
                        timestamp=0,
                        is_force=True,
                    ),
                )
            is_answered = True
            self._check_copies(queue, offset)
        except (PyroError, TimeoutError):
            self.recorder.totals.unacknowledged += 1
        self._resets.append(_Reset(queue, offset, began_s, is_answered))

    def _check_copies(self, queue: int, offset: int) -> None:
        """Whoever may be the next master has a reset that was answered, unless the group has seen it."""
        broker, group = self.broker_of_master(), self.cluster.recorded_group()
        if broker is None or group is None or self._pending(broker, queue) != offset:
            return
        for server in self.cluster.candidates(group):
            other = self.cluster.broker(server)
            if other is not None and self._pending(other, queue) != offset:
                text = f"queue {queue} to {offset} at {server.host.name}"
                self.recorder.violation("an answered reset is not in sync", text)

    def _pending(self, broker: Broker, queue: int) -> int | None:
        return broker._started.tables.offsets.pending_reset(_GROUP, self.topic, queue)

    def _missed(self) -> Iterator[_Reset]:
        """The last reset of each queue, if it was answered and no member has read from there since."""
        for reset in {reset.queue: reset for reset in self._resets}.values():
            if reset.is_answered and not any(
                each.at >= reset.began_s and (each.queue, each.offset) == (reset.queue, reset.offset)
                for each in reversed(self.history.delivered)
            ):
                yield reset

    @property
    def is_delivered(self) -> bool:
        return super().is_delivered and not any(self._missed())

    def judge(self, contents: list[Contents]) -> Iterator[tuple[str, str]]:
        yield from super().judge(contents)
        for reset in self._missed():
            text = f"queue {reset.queue} to {reset.offset} at {reset.began_s:.3f} s"
            yield "an answered reset had no effect", text
