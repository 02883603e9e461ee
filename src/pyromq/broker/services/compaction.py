"""Compaction in the background: one queue at a time, in slices, and threads wait for the disk."""

import asyncio
import logging

from pyromq.disk_steps import DiskSteps
from pyromq.errors import StoreError
from pyromq.store.message_store import MessageStore

_log = logging.getLogger(__name__)

_LOOK_S = 1.0
_AFTER_FAILURE_S = 60.0


class Compaction:
    def __init__(self, store: MessageStore) -> None:
        self._store = store

    async def run(self) -> None:
        while True:
            await asyncio.sleep(_LOOK_S)
            for topic, queue_id in self._store.compacting.due():
                try:
                    await self._round(topic, queue_id)
                except (OSError, StoreError) as problem:
                    _log.error("queue not compacted topic=%s queue=%d: %s", topic, queue_id, problem)
                    await asyncio.sleep(_AFTER_FAILURE_S)

    async def _round(self, topic: str, queue_id: int) -> None:
        compacting = self._store.compacting
        steps = DiskSteps(compacting.round(topic, queue_id))
        while (wait := steps.next()) is not None:
            await asyncio.to_thread(wait)
        remarks, compacting.remarks = compacting.remarks, []
        for remark in remarks:
            _log.warning("%s", remark)
        made = compacting.snapshots.find(topic, queue_id)
        if steps.result and made is not None:
            _log.info(
                "queue compacted topic=%s queue=%d messages=%d bytes=%d end=%d",
                *(topic, queue_id, made.count, made.size_bytes, made.end.queue_offset),
            )
