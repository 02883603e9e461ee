"""Periodic work: the store flushes and cleans, statistics are sampled, expired locks are removed."""

import asyncio
import logging
from collections.abc import Callable

from pyromq.broker.flow.appending import Appending
from pyromq.broker.tables.queue_locks import QueueLocks
from pyromq.broker.tables.statistics import Statistics
from pyromq.clock import Clock, elapsed_ms
from pyromq.store.faults import Fault
from pyromq.store.message_store import MessageStore
from pyromq.store.retention import CleaningReport

_log = logging.getLogger(__name__)

_STORE_INTERVAL_S = 0.1
_SAMPLE_INTERVAL_S = 1.0
_LOCK_INTERVAL_S = 60.0


class Upkeep:
    def __init__(
        self,
        store: MessageStore,
        appending: Appending,
        statistics: Statistics,
        locks: QueueLocks,
        clock: Clock,
        cleaned: Callable[[CleaningReport], None],
    ) -> None:
        """`cleaned` is called after each round of cleaning."""
        self._store = store
        self._appending = appending
        self._statistics = statistics
        self._locks = locks
        self._clock = clock
        self._cleaned = cleaned
        self._faults = Fault.NONE
        self.keep_store: Callable[[], None] = self._keep_store
        self.sample: Callable[[], None] = statistics.sample
        """Whoever measures the periodic work may put something around it."""

    async def run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(_repeat(self.keep_store, _STORE_INTERVAL_S), name="store upkeep")
            tasks.create_task(_repeat(self.sample, _SAMPLE_INTERVAL_S), name="statistics")
            tasks.create_task(self._release_locks(), name="queue locks")

    def _keep_store(self) -> None:
        report = self._store.upkeep()
        if report is not None:
            self._cleaned(report)
        if report is not None and report.problem:
            _log.warning("expired files could not be removed: %s", report.problem)
        for remark in self._store.queues.mending_remarks():
            _log.warning("damage in the store: %s", remark)
        if self._store.has_dispatch_work:
            # A full disk may have stopped the dispatch, and nothing else would resume it.
            self._appending.dispatch_soon()
        self._appending.durability.expire()
        self._appending.resends.expire()
        self._tell_faults()
        for notice in self._store.time.take_notices():
            _log.warning("%s", notice)

    def _tell_faults(self) -> None:
        faults = self._store.faults
        if faults != self._faults:
            self._faults = faults
            if faults:
                reason = self._store.statistics().fault_reason
                _log.error("the store accepts no messages faults=%s: %s", faults.name, reason)
            else:
                _log.info("the store accepts messages again")

    async def _release_locks(self) -> None:
        while True:
            await asyncio.sleep(_LOCK_INTERVAL_S)
            self._locks.remove_expired(elapsed_ms(self._clock))


async def _repeat(work: Callable[[], None], interval_s: float) -> None:
    while True:
        work()
        await asyncio.sleep(interval_s)
