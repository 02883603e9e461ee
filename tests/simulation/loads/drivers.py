"""Two drivers of Spark with one checkpoint: each batch is decided by one of them, once.

They write to one directory, as two queries do that an operator has started by mistake. A driver that finds a
batch held by the other one fails, and is started again.
"""

import asyncio
from collections import defaultdict
from collections.abc import Iterator
from functools import partial

from tests.simulation.contents import Contents
from tests.simulation.loads.load import RunningLoad

from pyromq.spark.batch_journal import BatchHeld, BatchJournal, StoredHalf
from pyromq.spark.queues import Queue

_CHECKPOINT = "checkpoint"
_LONGEST_S = 0.5
_RESTART_S = 1.0


class DriversLoad(RunningLoad):
    def start(self) -> None:
        self._decided: dict[int, list[str]] = defaultdict(list)
        """By batch: the drivers that were told that they decided it."""
        for number in (1, 2):
            name = f"driver {number}"
            self.member(name, partial(self._drive, name))

    @property
    def is_delivered(self) -> bool:
        return True

    async def _drive(self, name: str) -> None:
        journal = BatchJournal(_CHECKPOINT)
        while not self.is_over:
            batch = await asyncio.to_thread(journal.last_decided)
            if batch < 0 or await asyncio.to_thread(journal.unended, batch) == []:
                batch += 1
                # Its executors write half messages.
                await asyncio.sleep(self.chance.uniform(0.0, _LONGEST_S))
                half = StoredHalf(Queue(self.topic, "group", 0), name, batch, batch)
                try:
                    await asyncio.to_thread(journal.decide, batch, [half], self.topic)
                except BatchHeld:
                    await asyncio.sleep(_RESTART_S)
                    continue
                self._decided[batch].append(name)
            await asyncio.sleep(self.chance.uniform(0.0, _LONGEST_S))
            await asyncio.to_thread(journal.end, batch)
            await self.pause()

    def judge(self, contents: list[Contents]) -> Iterator[tuple[str, str]]:
        for batch, names in self._decided.items():
            if len(names) > 1:
                yield "decided twice", f"batch {batch} by {' and '.join(names)}"
        journal = BatchJournal(_CHECKPOINT)
        if self._decided and journal.last_decided() < max(self._decided):
            yield "a decision is gone", f"{max(self._decided)}; the last is {journal.last_decided()}"
