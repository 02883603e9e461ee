"""Puts the metrics of a broker together.

Nearly all of them are read from existing tables and counters on request.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from pyromq.broker.flow.quotas import Quotas
from pyromq.broker.metering.clients import register_clients
from pyromq.broker.metering.labels import common_labels
from pyromq.broker.metering.lag import LagFigures
from pyromq.broker.metering.messages import MessageCounts
from pyromq.broker.metering.pops import register_pops, register_revival
from pyromq.broker.metering.quotas import register_quotas
from pyromq.broker.metering.replication import register_replication
from pyromq.broker.metering.requests import RequestTimes
from pyromq.broker.metering.stalls import Stalls
from pyromq.broker.metering.storage import register_storage
from pyromq.broker.metering.tier import register_tier
from pyromq.broker.metering.timers import register_timers
from pyromq.broker.metering.traffic import register_traffic
from pyromq.broker.metering.transactions import register_transactions
from pyromq.broker.replication.assembly import Replication
from pyromq.broker.services.tiering import Tiering
from pyromq.broker.settings import BrokerSettings
from pyromq.broker.tables.all_tables import Tables
from pyromq.clock import Clock
from pyromq.config.live import LiveSettings
from pyromq.metrics import Metrics
from pyromq.remoting.security_metrics import register_security
from pyromq.remoting.server import ServerStatistics
from pyromq.store.message_store import MessageStore

if TYPE_CHECKING:
    from prometheus_client.core import Metric


class BrokerMetering:
    def __init__(
        self,
        live: LiveSettings[BrokerSettings],
        store: MessageStore,
        tables: Tables,
        held_pulls: Callable[[], int],
        traffic: Callable[[], Iterable[ServerStatistics]],
        clock: Clock,
        quotas: Quotas,
    ) -> None:
        self._store = store
        self._role = tables.role
        self._metrics = metrics = Metrics(common_labels(live.now))
        self.stalls = Stalls(metrics, clock, lambda: store.log.end // store.settings.log_segment_bytes)
        self.requests = RequestTimes(metrics, clock, self.stalls)
        self._messages = MessageCounts(metrics, store, tables)
        _register_tables(metrics, live, tables)
        register_transactions(metrics, tables.transaction_counts)
        if store.settings.timer_wheel:
            register_timers(metrics, store, tables.timer_counts, clock)
        register_pops(metrics, tables.pop_counts)
        register_clients(metrics, tables)
        register_quotas(metrics, quotas)
        self._lag = LagFigures(metrics, live, store, tables, clock)
        register_storage(metrics, store, clock)
        register_traffic(metrics, traffic, held_pulls)

    def __repr__(self) -> str:
        return f"<BrokerMetering {self._metrics!r} requests={len(self.requests)}>"

    def watch_pops(
        self, behind: Callable[[], Mapping[int, tuple[int, int]]], held: Callable[[], int]
    ) -> None:
        """Also report how far the revive log is read."""
        register_revival(self._metrics, behind, held)

    def watch_replication(self, replication: Replication) -> None:
        """Also report the state of replication."""
        register_replication(self._metrics, self._store, self._role, replication)

    def watch_tier(self, tiering: Tiering) -> None:
        """Also report what the lake tier has, and what it lacks."""
        register_tier(self._metrics, tiering)

    def watch_security(self, refused: Callable[[], int], certificate: Path | None) -> None:
        register_security(self._metrics, refused, certificate)

    def families(self) -> "Iterator[Metric | None]":
        """All metrics in parts; None while the lag is read."""
        for _ in self._lag.read():
            yield None
        self._messages.sample_sizes()
        yield from self._metrics.families()


def _register_tables(metrics: Metrics, live: LiveSettings[BrokerSettings], tables: Tables) -> None:
    metrics.gauge(
        "rocketmq_broker_permission",
        "What the broker allows: 4 reading, 2 writing, 6 both.",
        lambda: live.now.broker_permission,
    )
    metrics.gauge("rocketmq_topic_number", "Topics.", lambda: len(tables.topics))
    metrics.gauge("rocketmq_consumer_group_number", "Consumer groups.", lambda: len(tables.groups))
