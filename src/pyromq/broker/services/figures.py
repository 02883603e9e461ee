"""Figures in bulk, for consoles: all topics, queues and groups, of which only the changes are sent.

The broker counts at most once a second, in slices, however many ask. It remembers of every entry the version
in which it last changed; an asker gets the entries that changed after the version it has seen. Nothing is
counted while messages are sent and read.
"""

import asyncio
from collections.abc import Callable, Iterator
from typing import Final

from pyromq.broker.tables.all_tables import Tables
from pyromq.broker.tables.topics import TopicTable
from pyromq.chance import token
from pyromq.clock import Clock
from pyromq.protocol.catalogue import RawAnswer
from pyromq.protocol.requests.inspection import Figures, GetFigures, StoreFigures
from pyromq.protocol.requests.topics import TopicConfig
from pyromq.remoting.long_answers import written
from pyromq.remoting.routing import Caller, handles
from pyromq.remoting.slices import Slices
from pyromq.store.message_store import MessageStore
from pyromq.store.recovery import RecoveryReport

_MIN_AGE_S: Final = 1.0
_MAX_GONE: Final = 10_000
_TYPE: Final = "message.type"

Numbers = list[int]


class Entries:
    """Numbers by name, each with the version of its last change; the newest changes are at the end."""

    def __init__(self) -> None:
        self._entries: dict[str, tuple[int, Numbers]] = {}
        self.gone = 0

    def __len__(self) -> int:
        return len(self._entries) - self.gone

    def get(self, name: str) -> Numbers:
        """Empty if there is no such entry."""
        found = self._entries.get(name)
        return found[1] if found is not None else []

    def put(self, name: str, numbers: Numbers, version: int) -> None:
        """Change an entry; without numbers it is gone."""
        found = self._entries.get(name)
        if found is None:
            if not numbers:
                return
        elif found[1] == numbers:
            return
        else:
            del self._entries[name]
            self.gone += bool(found[1]) - bool(numbers)
        self._entries[name] = version, numbers

    def names(self) -> list[str]:
        return [name for name, (_, numbers) in self._entries.items() if numbers]

    def since(self, version: int) -> Iterator[tuple[str, Numbers]]:
        for name, (changed, numbers) in reversed(self._entries.items()):
            if changed <= version:
                return
            yield name, numbers

    def forget_gone(self) -> None:
        self._entries = {name: entry for name, entry in self._entries.items() if entry[1]}
        self.gone = 0


class FiguresInBulk:
    def __init__(
        self,
        store: MessageStore,
        tables: Tables,
        clock: Clock,
        slices: Slices,
        repaired: Callable[[], str] = lambda: "",
    ) -> None:
        """`repaired` says what was repaired in the log since the start."""
        self._store = store
        self._repaired = repaired
        self._tables = tables
        self._clock = clock
        self._slices = slices
        self._boot = token(4)
        """Tells the versions of this process from those of an earlier one."""
        self._version = 0
        self._complete_since = 0
        """Askers that have seen less need everything: gone entries have been forgotten."""
        self._counted_at: float | None = None
        self._counted_ms = 0
        self._counting = asyncio.Lock()
        self._changed_topics: set[str] = set()
        self._are_topics_deleted = True
        self._log_start = -1
        self._topics, self._queues, self._stored = Entries(), Entries(), Entries()
        self._lags, self._groups = Entries(), Entries()
        self._all = (self._topics, self._queues, self._stored, self._lags, self._groups)
        self._oldest: dict[tuple[str, str], dict[int, tuple[int, int]]] = {}
        """Topic and group → queue → an offset, and when its message was stored: to read that takes long."""
        tables.topics.on_change(self._topics_changed)

    def __repr__(self) -> str:
        return f"<FiguresInBulk version={self._version} topics={len(self._topics)} lags={len(self._lags)}>"

    def _topics_changed(self, configs: list[TopicConfig]) -> None:
        self._changed_topics.update(config.topic_name for config in configs)
        self._are_topics_deleted |= not configs

    @handles(GetFigures)
    async def get(self, request: GetFigures, caller: Caller) -> RawAnswer:
        async with self._counting:
            if self._counted_at is None or self._clock.monotonic() - self._counted_at >= _MIN_AGE_S:
                await self._count()
            seen = self._seen(request.since or "")
            figures = Figures(at=self._counted_ms, has_all=seen < 0, store=self._store_figures())
            rows = 0
            for entries, told in (
                (self._topics, figures.topics),
                (self._queues, figures.queues),
                (self._stored, figures.stored),
                (self._lags, figures.lags),
                (self._groups, figures.groups),
            ):
                # The lock keeps the entries as they are, also between slices.
                async for name, numbers in self._slices.spread(entries.since(seen)):
                    if numbers or seen >= 0:
                        told[name] = numbers
                rows += len(told)
            self._add_types(figures)
            version = self._version
        answer = await written(figures, rows)
        answer.ext = {"version": f"{self._boot}:{version}"}
        return answer

    def _seen(self, version: str) -> int:
        """The number in an asker's version; -1 if it has none of this process, or one that is too old."""
        boot, _, number = version.partition(":")
        if boot != self._boot or not number.isdecimal() or len(number) > 18:
            return -1
        return int(number) if self._complete_since <= int(number) <= self._version else -1

    def _add_types(self, figures: Figures) -> None:
        for name in figures.topics:
            config = self._tables.topics.get(name)
            if config is not None and _TYPE in config.attributes:
                figures.types[name] = config.attributes[_TYPE]

    def _store_figures(self) -> StoreFigures:
        store, settings = self._store.statistics(), self._store.settings
        return StoreFigures(
            clean_at_percent=settings.disk_max_used_percent,
            clean_early_at_percent=settings.disk_clean_forcibly_percent if settings.clean_forcibly else 0,
            fault=store.fault_reason,
            index_files=store.index_files,
            queues=store.queues,
            recovered="; ".join(filter(None, (_recovered(self._store.recovery), self._repaired()))),
            refuse_at_percent=settings.disk_warning_percent,
            retention_hours=settings.file_reserved_hours,
            segments=store.segments,
        )

    # Counting

    async def _count(self) -> None:
        self._version += 1
        if sum(entries.gone for entries in self._all) > _MAX_GONE:
            for entries in self._all:
                entries.forget_gone()
            self._complete_since = self._version
        self._counted_ms = self._clock.now_ms()
        await self._count_topics()
        await self._count_queues()
        await self._count_groups()
        self._counted_at = self._clock.monotonic()

    async def _count_topics(self) -> None:
        topics: TopicTable = self._tables.topics
        changed, self._changed_topics = self._changed_topics, set()
        if self._are_topics_deleted:
            # Also the first time: all of them are new.
            self._are_topics_deleted = False
            changed.update(topics.all())
            changed.update(self._topics.names())
        async for name in self._slices.spread(changed):
            config = topics.get(name)
            numbers = [] if config is None else _shape(config)
            self._topics.put(name, numbers, self._version)
            if not numbers:
                self._queues.put(name, [], self._version)
                self._stored.put(name, [], self._version)

    async def _count_queues(self) -> None:
        store, log_start = self._store, self._store.log.start
        have_starts_moved, self._log_start = log_start != self._log_start, log_start
        async for topic in self._slices.spread(self._topics.names()):
            ends = store.queues.ends(topic, max(self._topics.get(topic)[:2]))
            known = self._queues.get(topic)
            if ends == known[1::2] and not have_starts_moved:
                continue
            numbers = [0] * (2 * len(ends))
            numbers[1::2] = ends
            for queue_id in range(len(ends)):
                numbers[2 * queue_id] = store.queues.min_offset(topic, queue_id)
            self._queues.put(topic, numbers, self._version)
            self._stored.put(topic, list(self._tables.statistics.stored(topic)), self._version)

    async def _count_groups(self) -> None:
        tables, version = self._tables, self._version
        async for name in self._slices.spread(set(tables.groups.all()) | set(self._groups.names())):
            members = tables.consumers.group(name)
            if members is not None:
                numbers = [len(members.members), int(members.is_broadcasting)]
            else:
                numbers = [0, -1] if tables.groups.get(name) is not None else []
            self._groups.put(name, numbers, version)
        pairs = tables.offsets.ordinary_pairs()
        async for topic, group in self._slices.spread(pairs):
            numbers = self._lag(topic, group) if topic in tables.topics else []
            self._lags.put(f"{topic}@{group}", numbers, version)
        known = {f"{topic}@{group}" for topic, group in pairs}
        for gone in [name for name in self._lags.names() if name not in known]:
            self._lags.put(gone, [], version)
        if len(self._oldest) > len(pairs):
            kept = set(pairs)
            self._oldest = {pair: times for pair, times in self._oldest.items() if pair in kept}

    def _lag(self, topic: str, group: str) -> Numbers:
        """Lag, time of the oldest unread message, messages read, messages deleted unread."""
        ends = self._queues.get(topic)
        lag = oldest_ms = lost = 0
        for queue_id in self._tables.offsets.queues(group, topic):
            if 2 * queue_id + 1 >= len(ends) or queue_id < 0:
                continue
            first, end = ends[2 * queue_id : 2 * queue_id + 2]
            offset = self._tables.offsets.query(group, topic, queue_id)
            if offset < end:
                lag += end - offset
                lost += max(0, first - offset)
                stored_ms = self._stored_ms(topic, group, queue_id, max(first, offset))
                if stored_ms > 0 and (not oldest_ms or stored_ms < oldest_ms):
                    oldest_ms = stored_ms
        return [lag, oldest_ms, self._tables.statistics.read(group, topic), lost]

    def _stored_ms(self, topic: str, group: str, queue_id: int, offset: int) -> int:
        times = self._oldest.setdefault((topic, group), {})
        known = times.get(queue_id)
        if known is None or known[0] != offset:
            known = times[queue_id] = offset, self._store.queues.store_time(topic, queue_id, offset)
        return known[1]


def _shape(config: TopicConfig) -> Numbers:
    return [config.read_queue_nums, config.write_queue_nums, config.perm, int(config.order)]


def _recovered(report: RecoveryReport) -> str:
    """The findings of the last start; empty after a clean stop."""
    if report.was_clean and not report.damage:
        return ""
    return (
        f"{report.records_checked} records checked, {len(report.damage)} damaged ranges,"
        f" {report.messages_missing} messages missing, {len(report.queues_rebuilt)} queues rebuilt"
    )
