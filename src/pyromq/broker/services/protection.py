"""Protection: groups that read from the depths of the log may be stopped, so that others keep the memory.

A group that was stopped consumes again when an operator says so, and not before.
"""

import asyncio
import logging

from msgspec.structs import replace

from pyromq.broker.settings import BrokerSettings
from pyromq.broker.tables.all_tables import Tables
from pyromq.config.live import LiveSettings
from pyromq.errors import StoreError
from pyromq.store.message_store import MessageStore

_log = logging.getLogger(__name__)

LOOK_INTERVAL_S = 180.0


class Protection:
    def __init__(
        self,
        live: LiveSettings[BrokerSettings],
        store: MessageStore,
        tables: Tables,
    ) -> None:
        self._live = live
        self._store = store
        self._groups = tables.groups
        self._offsets = tables.offsets
        self._consumers = tables.consumers

    def stop_slow_groups(self) -> None:
        """Stop the groups that are too far behind, if that is wanted."""
        settings = self._live.now
        if not settings.stop_slow_groups:
            return
        for name, behind_bytes in self._behind_bytes().items():
            group = self._groups.get(name)
            if behind_bytes > settings.slow_group_bytes and group is not None and group.consume_enable:
                self._groups.update(replace(group, consume_enable=False))
                _log.warning(
                    "group stopped because it reads too slowly group=%s behind=%d", name, behind_bytes
                )

    def _behind_bytes(self) -> dict[str, int]:
        """How far behind the end of the log each group reads; nobody is behind at the end of its queues."""
        log_end = self._store.statistics().log_end_offset
        behind: dict[str, int] = {}
        for topic, group, queues in self._offsets.all_pulled():
            if self._consumers.group(group) is None:
                continue  # whoever is away reads nothing
            for queue_id, offset in queues.items():
                queue = self._store.find_queue(topic, queue_id)
                if queue is not None and offset < queue.end_offset:
                    # What is cleaned away by now is not read any more.
                    first = max(offset, self._store.min_offset(topic, queue_id))
                    log_offset = self._store.log_offset(topic, queue_id, first)
                    if log_offset is not None:
                        behind[group] = max(behind.get(group, 0), log_end - log_offset)
        return behind

    async def run(self) -> None:
        while True:
            await asyncio.sleep(LOOK_INTERVAL_S)
            try:
                self.stop_slow_groups()
            except (StoreError, OSError) as problem:
                _log.error("slow groups not stopped, tried again next time: %s", problem)
