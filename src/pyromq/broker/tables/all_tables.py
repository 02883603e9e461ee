"""The state of a broker as one value: data only, made once and passed to the services."""

from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Self

from pyromq.broker.settings import BrokerSettings
from pyromq.broker.tables.clients import ConsumerTable, ProducerTable
from pyromq.broker.tables.delay_offsets import DelayOffsetTable
from pyromq.broker.tables.filters import FilterTable
from pyromq.broker.tables.groups import GroupTable
from pyromq.broker.tables.offsets import OffsetTable
from pyromq.broker.tables.pop_counts import PopCounts
from pyromq.broker.tables.pop_orders import PopOrderTable
from pyromq.broker.tables.queue_locks import QueueLocks
from pyromq.broker.tables.request_modes import RequestModeTable
from pyromq.broker.tables.role import NOT_ELECTED, Role, RoleTable
from pyromq.broker.tables.static_topics import StaticTopicTable
from pyromq.broker.tables.statistics import Statistics
from pyromq.broker.tables.table_file import FiledTable
from pyromq.broker.tables.timer_counts import TimerCounts
from pyromq.broker.tables.topics import TopicTable, auto_create_topic, system_topics
from pyromq.broker.tables.transaction_counts import TransactionCounts
from pyromq.clock import Clock
from pyromq.config.live import LiveSettings
from pyromq.protocol.names import AUTO_CREATE_TOPIC
from pyromq.store.json_table import JsonTable
from pyromq.store.message_store import MessageStore


@dataclass(frozen=True, slots=True, eq=False)
class Tables:
    role: RoleTable
    topics: TopicTable
    static_topics: StaticTopicTable
    groups: GroupTable
    offsets: OffsetTable
    delay_offsets: DelayOffsetTable
    transaction_counts: TransactionCounts
    timer_counts: TimerCounts
    filters: FilterTable
    pop_orders: PopOrderTable
    request_modes: RequestModeTable
    pop_counts: PopCounts
    consumers: ConsumerTable
    producers: ProducerTable
    locks: QueueLocks
    statistics: Statistics
    files: tuple[JsonTable, ...]
    """The files that keep these tables."""

    def write_in_threads(self) -> None:
        """From now on threads write the files; there must be a running loop."""
        for table in self._filed():
            table.write_in_threads()

    def abandon(self) -> None:
        """From now on no thread writes any more."""
        for table in self._filed():
            table.abandon()
        self.offsets.abandon()

    def _filed(self) -> Iterator[FiledTable]:
        tables = (getattr(self, each.name) for each in fields(self))
        return (table for table in tables if isinstance(table, FiledTable))

    @classmethod
    def open(cls, live: LiveSettings[BrokerSettings], store: MessageStore, clock: Clock) -> Self:
        """Load the tables from the store's `config/`; raises StoreError if one cannot be read."""
        settings = live.now
        files: list[JsonTable] = []

        def file(name: str) -> JsonTable:
            files.append(store.table(name))
            return files[-1]

        topics = TopicTable(
            file("topics.json"),
            clock,
            system_topics(settings, has_timers=store.settings.timer_wheel),
            has_light_queues=store.light is not None,
        )
        _follow_settings(topics, live)
        return cls(
            role=RoleTable(NOT_ELECTED if settings.controller_mode else Role(settings.broker_id)),
            topics=topics,
            static_topics=StaticTopicTable(file("topicQueueMapping.json"), clock),
            groups=GroupTable(file("subscriptionGroup.json"), clock, lambda: live.now.auto_create_groups),
            offsets=OffsetTable(
                file("consumerOffset.json"),
                clock,
                store,
                commits_per_version=settings.commits_per_version,
                server_side_reset=settings.server_side_reset,
            ),
            delay_offsets=DelayOffsetTable(
                file("delayOffset.json"), clock, deliveries_per_version=settings.deliveries_per_version
            ),
            transaction_counts=TransactionCounts(file("transactionMetrics"), clock),
            timer_counts=TimerCounts(file("timermetrics"), clock),
            filters=FilterTable(
                file("consumerFilter.json"),
                clock,
                lambda: live.now.dead_filter_ms,
                lambda: live.now.filter_retries,
            ),
            pop_orders=PopOrderTable(file("consumerOrderInfo.json")),
            request_modes=RequestModeTable(file("messageRequestMode.json")),
            pop_counts=PopCounts(),
            consumers=ConsumerTable(),
            producers=ProducerTable(),
            locks=QueueLocks(settings.queue_lock_expiry_ms),
            statistics=Statistics(clock, is_system=topics.is_system),
            files=tuple(files),
        )


def _follow_settings(topics: TopicTable, live: LiveSettings[BrokerSettings]) -> None:
    """Changed settings about topics that sends create act at once on the topic that these inherit from."""
    known = live.now

    def apply_settings(settings: BrokerSettings) -> None:
        nonlocal known
        has_changed = settings.default_topic_queues != known.default_topic_queues
        known = settings
        if settings.auto_create_topics and (has_changed or AUTO_CREATE_TOPIC not in topics):
            topics.update(auto_create_topic(settings.default_topic_queues))

    live.on_change(apply_settings)
