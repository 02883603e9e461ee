"""The tables of a replica: copies of its master's, so that it can serve readers and take over.

A master of ours is asked for changes and answers when there are some (`table_changes`). A master of Apache
is asked for whole tables every ten seconds. Either way a table is replaced as one value: readers see the old
one or the new one. What depends on the log waits for it (`stamped_tables`). What was copied from a master of
ours is on this replica's disk before it asks again: the master may have promised it (`table_copies`). Offsets
that consumers committed here while the master was away are newer than the master's: they are kept, and handed
back to it.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from typing import Any, Final, TypeVar

from pyromq.broker.context import Context
from pyromq.broker.flow.appending import Appending
from pyromq.broker.replication.replica import Replica
from pyromq.broker.replication.stamped_tables import StampedTables, WaitingTables
from pyromq.broker.tables.role import Role
from pyromq.broker.topic_attributes import topics_of_batches
from pyromq.errors import PyroError, Refused, RemoteProtocolError
from pyromq.protocol import json_body
from pyromq.protocol.codes import ResponseCode
from pyromq.protocol.requests.groups import GetAllGroupConfigs, SubscriptionGroupWrapper
from pyromq.protocol.requests.inspection import GetBrokerRuntimeInfo
from pyromq.protocol.requests.offsets import GetAllConsumerOffsets, GetAllDelayOffsets, UpdateConsumerOffset
from pyromq.protocol.requests.popping import GetMessageRequestModes
from pyromq.protocol.requests.replication import DeletedTopic, ReplicatedTables, WatchTables
from pyromq.protocol.requests.topics import (
    GetAllTopicConfigs,
    TopicConfigSerializeWrapper,
    TopicQueueMappingSerializeWrapper,
)
from pyromq.remoting.access.keeping import AccessRules
from pyromq.remoting.dialer import Dialer
from pyromq.store.deletions import Deletion

_log = logging.getLogger(__name__)

A = TypeVar("A")
P = TypeVar("P", TopicConfigSerializeWrapper, SubscriptionGroupWrapper)

_POLL_S: Final = 10.0
_RETRY_S: Final = 0.1
_MAX_RETRY_S: Final = 5.0
_WAIT_MS: Final = 15_000
_TIMEOUT_S: Final = 30.0
_PAGE: Final = 2000
_FIRST_COPY_S: Final = 5.0


class TableSync:
    def __init__(
        self,
        context: Context,
        access: AccessRules,
        appending: Appending,
        replica: Replica,
        dialer: Dialer,
    ) -> None:
        tables = context.tables
        self._store = context.store
        self._tables = tables
        self._access = access
        self._replica = replica
        self._dialer = dialer
        self._slices = context.slices
        self._clock = context.clock
        self._woken = asyncio.Event()
        self._role = tables.role.now
        self._master: str | None = None
        self._seen = ""
        self._is_polling = False
        self._has_copy = asyncio.Event()
        self._masters = 0
        """How many there were: what was copied from a former one says nothing about the present one."""
        self._waiting = WaitingTables(lambda: replica.agreed_end, self._use)
        self._ahead: list[tuple[str, str, int, int]] = []
        """Offsets to be handed back: topic, group, queue id, offset."""
        self._log_grew = asyncio.Event()
        self._told = ""
        self._told_batches: set[str] = set()
        self._modes_due = 0.0
        self.copies = 0
        """How many times all tables were up to date."""
        replica.on_master(self._master_connected)
        replica.before_log(self._first_copy)
        appending.at_turn_end(self._look_at_log)
        tables.role.on_change(self._role_changed)
        if access.control is not None:
            access.control.lack = self._lack

    def _lack(self) -> str:
        is_early = self._access.is_new and not self._role.is_master
        return "this replica has not copied the users of its master yet" if is_early else ""

    def __repr__(self) -> str:
        return f"<TableSync from {self._replica.master} copies={self.copies}>"

    def _master_connected(self) -> None:
        if self._replica.master != self._master:
            self._master_changed()
        else:
            self._is_polling = False  # it may be a broker of ours now
        self._look_at_log()

    def _look_at_log(self) -> None:
        self._waiting.use()
        self._log_grew.set()

    def _master_changed(self) -> None:
        self._master = self._replica.master
        self._seen, self._is_polling, self._modes_due = "", False, 0.0
        self._masters += 1
        self._waiting.drop()
        self._ahead.clear()
        self._has_copy.clear()
        self._woken.set()

    async def _first_copy(self) -> bool:
        """A replica that has the whole log of its master may become master: it needs the tables, too. It asks
        before every connection, for the master may have started again since. It does not wait for ever: the
        log is worth having without them."""
        self._has_copy.clear()
        self._masters += 1
        self._woken.set()
        with suppress(TimeoutError):
            async with asyncio.timeout(_FIRST_COPY_S):
                await self._has_copy.wait()
        return self._has_copy.is_set()

    def _copied(self, masters: int) -> None:
        if masters == self._masters:
            self._has_copy.set()
            self._replica.tables_came()

    def _role_changed(self, role: Role) -> None:
        self._role = role
        self._tables.offsets.note_own(not role.is_master)
        self._tables.offsets.is_copy = role.is_mirror
        self._master_changed()

    async def run(self) -> None:
        retry_s = _RETRY_S
        while True:
            self._woken.clear()
            pause_s: float | None = None
            master = self._replica.master
            if master is not None and not self._role.is_master:
                try:
                    pause_s = await self._copy(master)
                    self._told, retry_s = "", _RETRY_S
                except (PyroError, OSError) as problem:
                    pause_s, retry_s = retry_s, min(2 * retry_s, _MAX_RETRY_S)
                    if self._told != str(problem):
                        self._told = str(problem)
                        _log.warning("tables of the master not copied address=%s: %s", master, problem)
            with suppress(TimeoutError):
                async with asyncio.timeout(pause_s):
                    await self._woken.wait()

    async def _copy(self, master: str) -> float:
        """Copy what has changed; returns the seconds until the next time."""
        masters, seen, pause_s = self._masters, "", 0.0
        if not self._is_polling:
            wait_ms = _WAIT_MS if self._has_copy.is_set() else 0
            request = WatchTables(seen=self._seen, wait_millis=wait_ms, broker_id=self._role.broker_id)
            watch = self._dialer.call(master, request, _TIMEOUT_S + _WAIT_MS / 1000)
            try:
                answer = await self._unless_woken(watch)
            except Refused as refused:
                if refused.code != ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
                    raise
                self._is_polling = True
            else:
                if answer is None:
                    return pause_s
                log_end = answer.log_end if answer.log_end is not None else await self._log_end_of(master)
                if not await self._take(master, masters, answer.body, log_end):
                    return pause_s  # ask again for the same
                seen = answer.seen
        if self._is_polling:
            await self._poll(master, masters)
            pause_s = _POLL_S
        await self._copy_modes(master)
        if self._masters == masters:
            self._seen = seen
            self.copies += 1
            self._copied(masters)
        return pause_s

    async def _unless_woken(self, call: Coroutine[Any, Any, A]) -> A | None:
        """The answer; None if there is another master meanwhile. A master that hangs answers late."""
        calling, woken = asyncio.ensure_future(call), asyncio.ensure_future(self._woken.wait())
        try:
            await asyncio.wait((calling, woken), return_when=asyncio.FIRST_COMPLETED)
            return calling.result() if calling.done() else None
        finally:
            calling.cancel()
            woken.cancel()

    async def _copy_modes(self, master: str) -> None:
        """Operators seldom change which groups pop, so this table is asked for from time to time."""
        now = self._clock.monotonic()
        if now < self._modes_due:
            return
        self._modes_due = now + _POLL_S
        with suppress(Refused):  # brokers of 4.x have none
            answer = await self._dialer.call(master, GetMessageRequestModes(), _TIMEOUT_S)
            if not self._role.is_master:
                self._tables.request_modes.copy(answer.body)

    async def _take(self, master: str, masters: int, tables: ReplicatedTables, log_end: int) -> bool:
        """Whether all of it is on disk; not if the log does not come, or if there is another master."""
        if tables.groups is not None:
            self._take_groups(tables.groups)
        if tables.access is not None and not self._role.is_master:
            await self._access.copy(tables.access)
        deletions = [each for each in _marks(tables.deleted_topics) if self._store.copying.lacks(each)]
        purges = [each for each in _marks(tables.purged_queues) if self._store.expiry.lacks(each)]
        erasures = [each for each in _marks(tables.erased_keys) if self._store.erasing.lacks(each)]
        if marks := deletions + purges + erasures:
            self._copied(masters)  # or the log would not come
            if not await self._log_reaches(max(each.log_offset for each in marks)):
                return False
        for each in deletions:
            await self._delete(each)
        if masters != self._masters:
            return False
        if not self._role.is_master:
            self._store.expiry.copy(purges)
            self._store.erasing.copy(erasures)
        stamped = StampedTables(log_end, tables.consumer_offsets, tables.delay_offsets, tables.resets)
        self._waiting.add(stamped)
        if tables.static_topics is not None:
            self._take_static_topics(tables.static_topics)
        if tables.topics is not None:
            self._take_topics(tables.topics, is_complete=tables.has_all_topics)
        await self._tables.topics.saved()
        await self._tables.groups.saved()
        if tables.is_promised:
            self._copied(masters)  # or the log would not come
            if not await self._log_reaches(log_end):
                return False
            await self._tables.offsets.persist_in_thread(self._slices)
        await self._hand_back(master)
        return masters == self._masters

    async def _log_reaches(self, offset: int) -> bool:
        """Wait until this replica has its master's log up to an offset; False if that takes long, or if there
        is another master."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_POLL_S):
                while self._replica.agreed_end < offset:
                    self._log_grew.clear()
                    if await self._unless_woken(self._log_grew.wait()) is None:
                        return False
                return True
        return False

    async def _poll(self, master: str, masters: int) -> None:
        # A topic that is missing may be missing by mistake: its queues stay.
        topics, static_topics = await self._all_topics(master)
        self._take_static_topics(static_topics)
        self._take_topics(topics, is_complete=True)
        self._take_groups(await self._all_groups(master))
        offsets = await self._dialer.call(master, GetAllConsumerOffsets(), _TIMEOUT_S)
        delays = await self._dialer.call(master, GetAllDelayOffsets(), _TIMEOUT_S)
        log_end = await self._log_end_of(master)
        if masters == self._masters:
            self._waiting.add(StampedTables(log_end, offsets.body, delays.body, is_complete=False))
            await self._hand_back(master)

    async def _log_end_of(self, master: str) -> int:
        """Asked after its tables, of a master that does not stamp them."""
        info = await self._dialer.call(master, GetBrokerRuntimeInfo(), _TIMEOUT_S)
        try:
            return int(info.body.table["commitLogMaxOffset"])
        except (KeyError, ValueError):
            raise RemoteProtocolError(f"the master {master} does not say where its log ends") from None

    # java: releases that know pages send at most 2,000 topics at once; earlier ones send all

    async def _all_topics(
        self, master: str
    ) -> tuple[TopicConfigSerializeWrapper, TopicQueueMappingSerializeWrapper]:
        static_topics = TopicQueueMappingSerializeWrapper()

        async def ask(start: int, version: str | None) -> tuple[TopicConfigSerializeWrapper, int | None]:
            request = GetAllTopicConfigs(topic_seq=start, max_topic_num=_PAGE, data_version=version)
            answer = await self._dialer.call(master, request, _TIMEOUT_S)
            static_topics.data_version = answer.body.mapping_data_version
            static_topics.topic_queue_mapping_info_map |= answer.body.topic_queue_mapping_detail_map
            page = TopicConfigSerializeWrapper(
                data_version=answer.body.data_version, topic_config_table=answer.body.topic_config_table
            )
            return page, answer.total_topic_num

        def add(found: TopicConfigSerializeWrapper, page: TopicConfigSerializeWrapper) -> None:
            found.topic_config_table |= page.topic_config_table

        topics = await _all_pages(ask, add, lambda page: len(page.topic_config_table))
        return topics, static_topics

    async def _all_groups(self, master: str) -> SubscriptionGroupWrapper:
        async def ask(start: int, version: str | None) -> tuple[SubscriptionGroupWrapper, int | None]:
            request = GetAllGroupConfigs(group_seq=start, max_group_num=_PAGE, data_version=version)
            answer = await self._dialer.call(master, request, _TIMEOUT_S)
            return answer.body, answer.total_group_num

        def add(found: SubscriptionGroupWrapper, page: SubscriptionGroupWrapper) -> None:
            found.subscription_group_table |= page.subscription_group_table
            found.forbidden_table |= page.forbidden_table

        return await _all_pages(ask, add, lambda page: len(page.subscription_group_table))

    # What was copied

    async def _delete(self, deletion: Deletion) -> None:
        if self._role.is_master or not self._store.copying.delete_topic(deletion):
            return
        deleted = {deletion.topic}
        async for queue in self._slices.spread(self._store.copying.lite_queues_of(deletion)):
            if self._store.copying.delete_lite_queue(queue, deletion):
                deleted.add(queue)
        self._tables.offsets.remove_topics(deleted)
        self._tables.pop_orders.remove_topic(deletion.topic)
        await self._tables.offsets.persist_in_thread(self._slices)
        await asyncio.to_thread(self._store.topics.finish_deletion, deletion.topic)
        _log.info("topic deleted as by the master topic=%s", deletion.topic)

    def _take_topics(self, topics: TopicConfigSerializeWrapper, *, is_complete: bool) -> None:
        if not self._role.is_master:
            self._tell_of_batches(topics_of_batches(topics.topic_config_table))
            self._tables.topics.copy(topics.topic_config_table, topics.data_version, is_complete=is_complete)

    def _take_static_topics(self, table: TopicQueueMappingSerializeWrapper) -> None:
        if not self._role.is_master:
            self._tables.static_topics.copy(table)

    def _tell_of_batches(self, topics: list[str]) -> None:
        if not self._told_batches.issuperset(topics):
            self._told_batches.update(topics)
            _log.error(
                "this replica cannot take over: queues of batches (queue.type=BatchCQ) are not supported, and"
                " its master has them topics=%s",
                ",".join(topics),
            )

    def _take_groups(self, groups: SubscriptionGroupWrapper) -> None:
        """A group that was deleted may have left its offsets behind."""
        if not self._role.is_master:
            self._tables.groups.copy(groups)

    def _use(self, tables: StampedTables) -> None:
        """The log has what these tables say."""
        if self._role.is_master:
            return
        if tables.offsets is not None:
            self._ahead = self._tables.offsets.copy(tables.offsets, is_complete=tables.is_complete)
        if tables.resets is not None:
            self._tables.offsets.copy_resets(tables.resets)
        if tables.delays is not None:
            self._tables.delay_offsets.copy(tables.delays)

    async def _hand_back(self, master: str) -> None:
        while self._ahead:
            topic, group, queue_id, offset = self._ahead[-1]
            commit = UpdateConsumerOffset(
                consumer_group=group, topic=topic, queue_id=queue_id, commit_offset=offset
            )
            with suppress(Refused):  # the group or the topic is gone
                await self._dialer.call(master, commit, _TIMEOUT_S)
            if (topic, group, queue_id, offset) in self._ahead:
                self._ahead.remove((topic, group, queue_id, offset))
                self._tables.offsets.forget_own(group, topic, queue_id)


async def _all_pages(
    ask: Callable[[int, str | None], Awaitable[tuple[P, int | None]]],
    add: Callable[[P, P], None],
    rows: Callable[[P], int],
) -> P:
    """A whole table, page by page, all of one version.

    `ask` brings the page that begins with a row, and how many rows there are, `add` adds a page to those
    before it, `rows` is the number of its rows.
    """
    page, total = await ask(0, None)
    found = page
    while total is not None and rows(page) and rows(found) < total:
        page, total = await ask(rows(found), json_body.encode(found.data_version).decode())
        if page.data_version == found.data_version:
            add(found, page)
        else:  # the table has changed: this is the first page of the new one
            found = page
    return found


def _marks(told: list[DeletedTopic] | None) -> list[Deletion]:
    return [Deletion(each.topic, each.log_offset, each.time_ms) for each in told or ()]
