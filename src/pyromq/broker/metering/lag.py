"""How far groups are behind."""

from collections.abc import Callable, Iterator

from pyromq.broker.consumer_lag import ConsumerLag, lags
from pyromq.broker.metering.ages import age_ms
from pyromq.broker.metering.labels import is_system, word
from pyromq.broker.tables.all_tables import Tables
from pyromq.clock import Clock
from pyromq.metrics import Labels, Metrics
from pyromq.store.message_store import MessageStore

_LAG = ("consumer_group", "topic", "is_retry", "is_system", "online")


class LagFigures:
    """Read as a whole before the metrics are written."""

    def __init__(self, metrics: Metrics, store: MessageStore, tables: Tables, clock: Clock) -> None:
        self._store = store
        self._tables = tables
        self._clock = clock
        self._lags: list[ConsumerLag] = []
        self._register(metrics)

    def read(self) -> Iterator[None]:
        """In steps: others get their turn in between. Replicas report none, or sums would count them
        twice."""
        tables, found = self._tables, []
        if not tables.role.now.is_master:
            self._lags = []
            return
        for lag in lags(self._store, tables.topics, tables.offsets, tables.consumers, tables.groups):
            found.append(lag)
            yield
        self._lags = found

    def _register(self, metrics: Metrics) -> None:
        for name, sentence, read in (
            ("lag_messages", "Messages a group has not consumed yet.", lambda lag: lag.unconsumed),
            (
                "lag_latency_milliseconds",
                "Age of the oldest message a group has not consumed yet.",
                lambda lag: age_ms(self._clock, lag.unconsumed_since_ms),
            ),
            (
                "inflight_messages",
                "Messages a group has pulled and not consumed yet.",
                lambda lag: lag.in_flight,
            ),
            (
                "queueing_latency_milliseconds",
                "Age of the oldest message a group has not pulled yet.",
                lambda lag: age_ms(self._clock, lag.unpulled_since_ms),
            ),
            ("ready_messages", "Messages a group has not pulled yet.", lambda lag: lag.unpulled),
        ):
            self._register_one(metrics, f"rocketmq_consumer_{name}", sentence, read)

    def _register_one(
        self, metrics: Metrics, name: str, sentence: str, read: Callable[[ConsumerLag], int]
    ) -> None:
        def figures() -> dict[Labels, float]:
            return {
                (
                    lag.group,
                    lag.topic,
                    "false",
                    is_system(self._tables.topics, lag.topic, lag.group),
                    word(lag.is_online),
                ): read(lag)
                for lag in self._lags
            }

        metrics.labelled_gauge(name, sentence, figures, _LAG)
