"""The tables of a master, for its replicas: a replica asks for changes, and is answered when there are some.

Each table counts its changes. A replica repeats the counts of the last answer; the tables that have other
counts now are sent. Changed topics, groups, deletions, users and offsets that an operator reset are sent at
once, and not promised before the replicas in sync have them (`table_copies`); offsets of consumers and delays
are sent once a second. All are stamped with the end of the log (`stamped_tables`). Replicas of Apache do not
ask; they read whole tables with Apache's requests.
"""

import asyncio
from contextlib import suppress
from typing import Final

from pyromq.broker.replication.master import Master
from pyromq.broker.replication.table_copies import TableCopies
from pyromq.broker.settings import BrokerSettings
from pyromq.broker.tables.all_tables import Tables
from pyromq.chance import token
from pyromq.config.live import LiveSettings
from pyromq.errors import Refused
from pyromq.protocol.catalogue import RawAnswer
from pyromq.protocol.codes import ResponseCode
from pyromq.protocol.requests.offsets import ConsumerOffsetSerializeWrapper
from pyromq.protocol.requests.replication import DeletedTopic, ReplicatedTables, WatchTables
from pyromq.protocol.requests.topics import TopicConfig, TopicConfigSerializeWrapper
from pyromq.remoting.access.keeping import AccessRules
from pyromq.remoting.long_answers import written
from pyromq.remoting.routing import Caller, handles
from pyromq.remoting.slices import Slices
from pyromq.store.deletions import Deletion
from pyromq.store.message_store import MessageStore

_OFFSETS_S: Final = 1.0
_PAIRS_PER_S: Final = 5000
"""A larger table of offsets is sent less often."""
_MAX_WAIT_S: Final = 30.0
_TABLES: Final = 7
_PROMISED: Final = 5
"""The first of them: topics, groups, deletions, users, resets."""


class TableChanges:
    def __init__(
        self,
        live: LiveSettings[BrokerSettings],
        store: MessageStore,
        tables: Tables,
        slices: Slices,
        access: AccessRules,
        master: Master,
    ) -> None:
        self._store = store
        self._tables = tables
        self._slices = slices
        self._access = access
        self._boot = token(4)
        """Tells the counts of this process from those of an earlier one."""
        self._changed_topics: dict[str, int] = {}
        self._topics = self._groups = self._deletions = self._rules = 0
        self._topics_deleted = 0
        """The count of topics after the last deletion: replicas that are behind it need all of them."""
        self._waiting: dict[asyncio.Event, None] = {}
        self._is_stopping = False
        tables.topics.on_change(self._topics_changed)
        tables.groups.on_change(self._groups_changed)
        access.on_change(self._rules_changed)
        store.expiry.on_purge = store.erasing.on_change = self._purged
        self.copies = TableCopies(
            master, lambda: self._counts()[:_PROMISED], lambda: live.now.replica_timeout_ms
        )
        tables.topics.copied = tables.groups.copied = access.copied = self.copies.begin
        tables.topics.is_copied = self._is_topic_copied
        tables.offsets.at_replicas = self._offsets_at_replicas
        tables.role.on_change(lambda _: self._wake())

    def __repr__(self) -> str:
        return f"<TableChanges {self._token()} waiting={len(self._waiting)}>"

    def _topics_changed(self, configs: list[TopicConfig]) -> None:
        self._topics += 1
        for config in configs:
            self._changed_topics[config.topic_name] = self._topics
        if not configs:
            self._topics_deleted = self._topics
            self._changed_topics.clear()
            self._deletions += 1
        self._wake()

    def _is_topic_copied(self, topic: str) -> bool:
        return self.copies.has(0, self._changed_topics.get(topic, self._topics_deleted))

    def _purged(self) -> None:
        self._deletions += 1
        self._wake()

    def _groups_changed(self) -> None:
        self._groups += 1
        self._wake()

    def _rules_changed(self) -> None:
        self._rules += 1
        self._wake()

    async def _offsets_at_replicas(self) -> None:
        copied = self.copies.begin()
        self._wake()
        await copied()

    def release(self) -> None:
        """The broker stops: all waits end."""
        self._is_stopping = True
        self._wake()

    def _wake(self) -> None:
        for waiting in self._waiting:
            waiting.set()

    def _counts(self) -> tuple[int, ...]:
        tables = self._tables
        return (
            self._topics,
            self._groups,
            self._deletions,
            self._rules,
            tables.offsets.promises,
            tables.offsets.changes,
            tables.delay_offsets.changes,
        )

    def _token(self) -> str:
        return f"{self._boot}:{':'.join(map(str, self._counts()))}"

    def _seen(self, token: str) -> tuple[int, ...]:
        """The counts in a replica's token; all -1 if it has none of this process."""
        boot, *counts = token.split(":")
        if boot == self._boot and len(counts) == _TABLES:
            with suppress(ValueError):
                return tuple(map(int, counts))
        return (-1,) * _TABLES

    @handles(WatchTables)
    async def watch(self, request: WatchTables, caller: Caller) -> RawAnswer:
        self._require_master()
        seen = self._seen(request.seen or "")
        if request.broker_id is not None:
            self.copies.heard(request.broker_id, seen[:_PROMISED], caller.channel)
        await self._wait_for_change(seen, min(max(request.wait_millis / 1000, 0.0), _MAX_WAIT_S))
        self._require_master()
        token, now = self._token(), self._counts()
        topics, groups, deletions, rules, resets, offsets, delays = (
            a != b for a, b in zip(seen, now, strict=True)
        )
        tables = ReplicatedTables(has_all_topics=topics and not 0 <= self._topics_deleted <= seen[0])
        rows = 0
        if topics:
            tables.topics = self._topics_since(-1 if tables.has_all_topics else seen[0])
            tables.static_topics = self._tables.static_topics.snapshot()
            rows += len(tables.topics.topic_config_table) + len(self._tables.static_topics)
        if groups:
            tables.groups = self._tables.groups.snapshot()
            rows += len(tables.groups.subscription_group_table)
        if deletions:
            tables.deleted_topics = _told(self._store.topics.deletions())
            tables.purged_queues = _told(self._store.expiry.purges())
            tables.erased_keys = _told(self._store.erasing.all())
        if rules and self._access.keeps_users:
            tables.access = self._access.table()
        if delays:
            tables.delay_offsets = self._tables.delay_offsets.wrapper()
        if offsets or resets:
            tables.is_promised = resets
            tables.resets = self._tables.offsets.pending_resets()
            tables.consumer_offsets = await self._offsets()
            rows += len(tables.consumer_offsets.offset_table)
        log_end = self._store.log.end  # what the tables say depends on nothing behind this
        answer = await written(tables, rows)
        answer.ext = {"seen": token, "logEnd": str(log_end)}
        return answer

    def _require_master(self) -> None:
        """A former master that has just started may lack what the others were promised."""
        if not self._tables.role.now.is_master:
            raise Refused(ResponseCode.SERVICE_NOT_AVAILABLE, "only a master hands out its tables")

    async def _wait_for_change(self, seen: tuple[int, ...], wait_s: float) -> None:
        if seen[0] < 0:
            return
        woken = asyncio.Event()
        self._waiting[woken] = None
        loop = asyncio.get_running_loop()
        until = loop.time() + wait_s
        may_send_offsets = loop.time() + max(_OFFSETS_S, len(self._tables.offsets) / _PAIRS_PER_S)
        try:
            while (
                (now := loop.time()) < until
                and self._counts()[:_PROMISED] == seen[:_PROMISED]
                and self._tables.role.now.is_master
                and not self._is_stopping
            ):
                if now >= may_send_offsets and self._counts() != seen:
                    return
                woken.clear()  # the change may have been in the last answer already
                with suppress(TimeoutError):
                    async with asyncio.timeout(min(_OFFSETS_S, until - now)):
                        await woken.wait()
        finally:
            del self._waiting[woken]

    def _topics_since(self, count: int) -> TopicConfigSerializeWrapper:
        topics = self._tables.topics
        if count < 0:
            return topics.snapshot()
        changed = {name for name, at in self._changed_topics.items() if at > count}
        return TopicConfigSerializeWrapper(
            data_version=topics.data_version,
            topic_config_table={name: config for name in changed if (config := topics.get(name)) is not None},
        )

    async def _offsets(self) -> ConsumerOffsetSerializeWrapper:
        return await self._tables.offsets.copied(self._slices)


def _told(marks: list[Deletion]) -> list[DeletedTopic]:
    return [
        DeletedTopic(topic=each.topic, log_offset=each.log_offset, time_ms=each.time_ms) for each in marks
    ]
