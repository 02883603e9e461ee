"""The tables of a replica: copies of its master's, so that it can serve readers and take over.

A master of ours is asked for changes and answers when there are some (`table_changes`). A master of Apache
is asked for whole tables every ten seconds. Either way a table is replaced as one value: readers see the old
one or the new one. What was copied from a master of ours is on this replica's disk before it asks again: the
master may have promised it (`table_copies`). Offsets that consumers committed here while the master was away
are newer than the master's: they are kept, and handed back to it.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from typing import Any, Final, TypeVar

from pyromq.broker.replication.replica import Replica
from pyromq.broker.tables.all_tables import Tables
from pyromq.broker.tables.role import Role
from pyromq.broker.topic_attributes import topics_of_batches
from pyromq.clock import Clock
from pyromq.errors import PyroError, Refused
from pyromq.protocol import json_body
from pyromq.protocol.bodies.groups import SubscriptionGroupWrapper
from pyromq.protocol.bodies.offsets import ConsumerOffsetSerializeWrapper, DelayOffsetSerializeWrapper
from pyromq.protocol.bodies.replicated_tables import ReplicatedTables
from pyromq.protocol.bodies.topic_tables import TopicConfigSerializeWrapper
from pyromq.protocol.codes import ResponseCode
from pyromq.protocol.requests.groups import GetAllGroupConfigs
from pyromq.protocol.requests.offsets import GetAllConsumerOffsets, GetAllDelayOffsets, UpdateConsumerOffset
from pyromq.protocol.requests.popping import GetMessageRequestModes
from pyromq.protocol.requests.replication import WatchTables
from pyromq.protocol.requests.topics import GetAllTopicConfigs
from pyromq.remoting.access.keeping import AccessRules
from pyromq.remoting.dialer import Dialer
from pyromq.store.deletions import Deletion
from pyromq.store.message_store import MessageStore

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
        store: MessageStore,
        tables: Tables,
        access: AccessRules,
        replica: Replica,
        dialer: Dialer,
        clock: Clock,
    ) -> None:
        self._store = store
        self._tables = tables
        self._access = access
        self._replica = replica
        self._dialer = dialer
        self._clock = clock
        self._woken = asyncio.Event()
        self._role = tables.role.now
        self._master: str | None = None
        self._seen = ""
        self._is_polling = False
        self._has_copy = asyncio.Event()
        self._masters = 0
        """How many there were: what was copied from a former one says nothing about the present one."""
        self._copied_topics: frozenset[str] = frozenset()
        self._told = ""
        self._told_batches: set[str] = set()
        self._modes_due = 0.0
        self.copies = 0
        """How many times all tables were up to date."""
        replica.on_master(self._master_connected)
        replica.before_log(self._first_copy)
        tables.role.on_change(self._role_changed)

    def __repr__(self) -> str:
        return f"<TableSync from {self._replica.master} copies={self.copies}>"

    def _master_connected(self) -> None:
        if self._replica.master != self._master:
            self._master_changed()
        else:
            self._is_polling = False  # it may be a broker of ours now

    def _master_changed(self) -> None:
        self._master = self._replica.master
        self._seen, self._is_polling, self._modes_due = "", False, 0.0
        self._masters += 1
        self._has_copy.clear()
        self._woken.set()

    async def _first_copy(self) -> None:
        """A replica that has the whole log of its master may become master: it needs the tables, too."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_FIRST_COPY_S):
                await self._has_copy.wait()

    def _role_changed(self, role: Role) -> None:
        self._role = role
        self._tables.offsets.note_own(not role.is_master)
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
            request = WatchTables(seen=self._seen, wait_millis=_WAIT_MS, broker_id=self._role.broker_id)
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
                await self._take(master, answer.body)
                seen = answer.seen
        if self._is_polling:
            await self._poll(master)
            pause_s = _POLL_S
        await self._copy_modes(master)
        if self._masters == masters:
            self._seen = seen
            self.copies += 1
            self._has_copy.set()
        return pause_s

    async def _unless_woken(self, call: Coroutine[Any, Any, A]) -> A | None:
        """What a call brings; None if there is another master meanwhile. A master that hangs answers late."""
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

    async def _take(self, master: str, tables: ReplicatedTables) -> None:
        for each in tables.deleted_topics or ():
            await self._delete(Deletion(each.topic, each.log_offset, each.time_ms))
        if tables.topics is not None:
            self._take_topics(tables.topics, is_complete=tables.has_all_topics)
        if tables.groups is not None:
            self._take_groups(tables.groups)
        if tables.consumer_offsets is not None:
            await self._take_offsets(master, tables.consumer_offsets)
        if tables.access is not None and not self._role.is_master:
            await self._access.copy(tables.access)
        if tables.delay_offsets is not None:
            self._take_delays(tables.delay_offsets)
        await self._tables.topics.saved()
        await self._tables.groups.saved()

    async def _poll(self, master: str) -> None:
        end = self._store.log_end  # before the question: later records may be of topics made since
        topics = await self._all_topics(master)
        missing = self._copied_topics - topics.topic_config_table.keys()
        for topic in missing:
            await self._delete(Deletion(topic, end, self._clock.now_ms()))
        self._take_topics(topics, is_complete=True)
        self._copied_topics = frozenset(topics.topic_config_table)
        self._take_groups(await self._all_groups(master))
        offsets = await self._dialer.call(master, GetAllConsumerOffsets(), _TIMEOUT_S)
        await self._take_offsets(master, offsets.body)
        self._take_delays((await self._dialer.call(master, GetAllDelayOffsets(), _TIMEOUT_S)).body)

    # java: releases that know pages send at most 2,000 topics at once; earlier ones send all

    async def _all_topics(self, master: str) -> TopicConfigSerializeWrapper:
        async def ask(start: int, version: str | None) -> tuple[TopicConfigSerializeWrapper, int | None]:
            request = GetAllTopicConfigs(topic_seq=start, max_topic_num=_PAGE, data_version=version)
            answer = await self._dialer.call(master, request, _TIMEOUT_S)
            page = TopicConfigSerializeWrapper(
                data_version=answer.body.data_version, topic_config_table=answer.body.topic_config_table
            )
            return page, answer.total_topic_num

        def add(found: TopicConfigSerializeWrapper, page: TopicConfigSerializeWrapper) -> None:
            found.topic_config_table |= page.topic_config_table

        return await _all_pages(ask, add, lambda page: len(page.topic_config_table))

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
        self._tables.offsets.remove_topic(deletion.topic)
        await asyncio.to_thread(self._store.finish_deletion, deletion.topic)
        _log.info("topic deleted as by the master topic=%s", deletion.topic)

    def _take_topics(self, topics: TopicConfigSerializeWrapper, *, is_complete: bool) -> None:
        if not self._role.is_master:
            self._tell_of_batches(topics_of_batches(topics.topic_config_table))
            self._tables.topics.copy(topics.topic_config_table, topics.data_version, is_complete=is_complete)

    def _tell_of_batches(self, topics: list[str]) -> None:
        if not self._told_batches.issuperset(topics):
            self._told_batches.update(topics)
            _log.error(
                "this replica cannot take over: queues of batches (queue.type=BatchCQ) are not supported, and"
                " its master has them topics=%s",
                ",".join(topics),
            )

    def _take_groups(self, groups: SubscriptionGroupWrapper) -> None:
        if not self._role.is_master:
            for group in self._tables.groups.copy(groups):
                self._tables.offsets.remove_group(group)

    async def _take_offsets(self, master: str, offsets: ConsumerOffsetSerializeWrapper) -> None:
        if self._role.is_master:
            return
        for topic, group, queue_id, offset in self._tables.offsets.copy(offsets):
            commit = UpdateConsumerOffset(
                consumer_group=group, topic=topic, queue_id=queue_id, commit_offset=offset
            )
            with suppress(Refused):  # the group or the topic is gone
                await self._dialer.call(master, commit, _TIMEOUT_S)
            self._tables.offsets.forget_own(group, topic, queue_id)

    def _take_delays(self, delays: DelayOffsetSerializeWrapper) -> None:
        if not self._role.is_master:
            self._tables.delay_offsets.copy(delays)


async def _all_pages(
    ask: Callable[[int, str | None], Awaitable[tuple[P, int | None]]],
    add: Callable[[P, P], None],
    rows: Callable[[P], int],
) -> P:
    """A whole table, page by page, all of one version.

    `ask` brings the page that begins with a row, and how many rows there are, `add` adds a page to those
    before it, `rows` tells how many rows it has.
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
