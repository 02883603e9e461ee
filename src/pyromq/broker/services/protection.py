"""Protection: stops groups that read far behind the end of the log, because they fill the page cache.

A stopped group stays stopped until an operator enables it again.
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
        """Stop the groups that are too far behind, if the settings ask for it."""
        settings = self._live.now
        if not settings.stop_slow_groups:
            return
        for name, behind_bytes in self._behind_bytes().items():
            group = self._groups.get(name)
            if behind_bytes > settings.slow_group_bytes and group is not None and group.consume_enable:
                self._groups.update(replace(group, consume_enable=False))
                _log.warning(
                    "group stopped, it reads too far behind group=%s behind_bytes=%d", name, behind_bytes
                )

    def _behind_bytes(self) -> dict[str, int]:
        """How far behind the end of the log each group reads; queues read to their end do not count."""
        log_end = self._store.statistics().log_end_offset
        behind: dict[str, int] = {}
        for topic, group, queues in self._offsets.all_pulled():
            if self._consumers.group(group) is None:
                continue  # the group has no members
            for queue_id, offset in queues.items():
                queue = self._store.queues.find(topic, queue_id)
                if queue is not None and offset < queue.end_offset:
                    # Deleted messages are not read any more.
                    first = max(offset, self._store.queues.min_offset(topic, queue_id))
                    log_offset = self._store.queues.log_offset(topic, queue_id, first)
                    if log_offset is not None:
                        behind[group] = max(behind.get(group, 0), log_end - log_offset)
        return behind

    async def run(self) -> None:
        while True:
            await asyncio.sleep(LOOK_INTERVAL_S)
            try:
                self.stop_slow_groups()
                await self._groups.written()
            except (StoreError, OSError) as problem:
                _log.error("slow groups could not be stopped, trying again next time: %s", problem)
