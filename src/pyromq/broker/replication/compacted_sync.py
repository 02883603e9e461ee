"""The compacted topics of a replica: it asks its master for messages that were before the log that it copies.

The master's log has lost them, but its snapshots have them. Until the replica has them, too, it does not
count as in sync: a fail-over would lose them. Every broker compacts its own log by itself.
"""

import asyncio
import logging
from typing import Final

from pyromq.broker.replication.replica import Replica
from pyromq.broker.tables.all_tables import Tables
from pyromq.disk_steps import DiskSteps
from pyromq.errors import PyroError
from pyromq.protocol.codes import ResponseCode
from pyromq.protocol.names import TOOLS_GROUP
from pyromq.protocol.requests.pulling import PullMessage
from pyromq.remoting.dialer import Dialer
from pyromq.store.compacted_copying import SnapshotCopy
from pyromq.store.message_store import MessageStore

_log = logging.getLogger(__name__)

_INTERVAL_S: Final = 1.0
_TIMEOUT_S: Final = 10.0
_PAGE: Final = 32
_WITH_SUBSCRIPTION: Final = 4
_GOES_ON: Final = (ResponseCode.SUCCESS, ResponseCode.PULL_RETRY_IMMEDIATELY, ResponseCode.PULL_OFFSET_MOVED)


class CompactedSync:
    def __init__(self, store: MessageStore, tables: Tables, replica: Replica, dialer: Dialer) -> None:
        self._store = store
        self._role = tables.role
        self._topics = tables.topics
        self._replica = replica
        self._dialer = dialer
        self._was_lacking = False
        self._trouble = ""
        replica.lacks_compacted = self.is_lacking

    def __repr__(self) -> str:
        return f"<CompactedSync lacks {len(self._lacking())} queues>"

    def is_lacking(self) -> bool:
        self._was_lacking = bool(self._lacking())
        return self._was_lacking

    def _lacking(self) -> list[tuple[str, int]]:
        if self._role.now.is_master:
            return []
        lacks = self._store.compacting.lacks
        return [
            (topic, queue_id)
            for topic in sorted(self._store.compacting.topics)
            if (config := self._topics.get(topic)) is not None
            for queue_id in range(max(config.write_queue_nums, config.read_queue_nums))
            if lacks(topic, queue_id)
        ]

    async def run(self) -> None:
        while True:
            await asyncio.sleep(_INTERVAL_S)
            was_lacking = self._was_lacking
            master = self._replica.master
            if master is not None and self._store.log.end and self._replica.agreed_end >= 0:
                await self._copy_all(master)
            if was_lacking != self.is_lacking():
                self._replica.greet_again()

    async def _copy_all(self, master: str) -> None:
        for topic, queue_id in self._lacking():
            try:
                await self._copy(master, topic, queue_id)
                self._trouble = ""
            except (PyroError, OSError) as problem:
                if self._trouble != str(problem):
                    self._trouble = str(problem)
                    _log.warning(
                        "compacted queue not copied yet topic=%s queue=%d address=%s: %s",
                        *(topic, queue_id, master, problem),
                    )
                return

    async def _copy(self, master: str, topic: str, queue_id: int) -> None:
        copy = self._store.copy_compacted(topic, queue_id)
        try:
            end = await self._pull(copy, master, topic, queue_id)
            steps = DiskSteps(copy.finish(end))
            while (wait := steps.next()) is not None:
                await asyncio.to_thread(wait)
        finally:
            copy.close()
        if steps.result:
            _log.info("compacted queue copied from the master topic=%s queue=%d", topic, queue_id)

    async def _pull(self, copy: SnapshotCopy, master: str, topic: str, queue_id: int) -> int:
        """Take over what the master has before this replica's log; where its queue ends."""
        offset = end = 0
        while copy.wants(offset):
            request = PullMessage(
                consumer_group=TOOLS_GROUP,
                topic=topic,
                queue_id=queue_id,
                queue_offset=offset,
                max_msg_nums=_PAGE,
                sys_flag=_WITH_SUBSCRIPTION,
                commit_offset=0,
                suspend_timeout_millis=0,
                subscription="*",
                sub_version=0,
            )
            answer = await self._dialer.call(master, request, _TIMEOUT_S)
            end = answer.max_offset
            if answer.code == ResponseCode.SUCCESS:
                await asyncio.to_thread(copy.add(answer.body))
            if answer.code not in _GOES_ON or answer.next_begin_offset <= offset:
                break
            offset = answer.next_begin_offset
        return end
