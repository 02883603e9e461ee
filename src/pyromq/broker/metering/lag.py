"""How far groups are behind."""

from collections.abc import Callable, Iterator

from pyromq.broker.consumer_lag import ConsumerLag, LiteLag, find_lite_lags, lags
from pyromq.broker.metering.ages import age_ms
from pyromq.broker.metering.labels import is_system, word
from pyromq.broker.settings import BrokerSettings
from pyromq.broker.tables.all_tables import Tables
from pyromq.clock import Clock
from pyromq.config.live import LiveSettings
from pyromq.metrics import Labels, Metrics
from pyromq.store.message_store import MessageStore

_LAG = ("consumer_group", "topic", "is_retry", "is_system", "online")


class LagFigures:
    """Read as a whole before the metrics are written."""

    def __init__(
        self,
        metrics: Metrics,
        live: LiveSettings[BrokerSettings],
        store: MessageStore,
        tables: Tables,
        clock: Clock,
    ) -> None:
        self._live = live
        self._store = store
        self._tables = tables
        self._clock = clock
        self._lags: list[ConsumerLag] = []
        self._lite: list[LiteLag] = []
        self._register(metrics)

    def read(self) -> Iterator[None]:
        """In steps: others get their turn in between. Replicas report none, or sums would count them
        twice."""
        tables, settings, found = self._tables, self._live.now, []
        if not tables.role.now.is_master:
            self._lags, self._lite = [], []
            return
        for lag in lags(self._store, tables.topics, tables.offsets, tables.consumers, tables.groups):
            found.append(lag)
            yield
        self._lags = found
        lite: dict[tuple[str, str], LiteLag] = {}
        if settings.lite_lag_counts or settings.lite_lag_latencies:
            yield from find_lite_lags(
                lite,
                self._store,
                tables.offsets,
                tables.consumers,
                tables.groups,
                has_places=settings.lite_lag_latencies,
            )
        self._lite = list(lite.values())

    def _register(self, metrics: Metrics) -> None:
        for name, sentence, read, read_lite in (
            (
                "lag_messages",
                "Messages a group has not consumed yet.",
                lambda lag: lag.unconsumed,
                self._unread,
            ),
            (
                "lag_latency_milliseconds",
                "Age of the oldest message a group has not consumed yet.",
                lambda lag: age_ms(self._clock, lag.unconsumed_since_ms),
                self._latency_ms,
            ),
            (
                "inflight_messages",
                "Messages a group has pulled and not consumed yet.",
                lambda lag: lag.in_flight,
                _none,
            ),
            (
                "queueing_latency_milliseconds",
                "Age of the oldest message a group has not pulled yet.",
                lambda lag: age_ms(self._clock, lag.unpulled_since_ms),
                _none,
            ),
            (
                "ready_messages",
                "Messages a group has not pulled yet.",
                lambda lag: lag.unpulled,
                self._unread,
            ),
        ):
            self._register_one(metrics, f"rocketmq_consumer_{name}", sentence, read, read_lite)

    def _register_one(
        self,
        metrics: Metrics,
        name: str,
        sentence: str,
        read: Callable[[ConsumerLag], int],
        read_lite: Callable[[LiteLag], int | None],
    ) -> None:
        def figures() -> dict[Labels, float]:
            told: dict[Labels, float] = {self._labels(lag): read(lag) for lag in self._lags}
            for lag in self._lite:
                if (value := read_lite(lag)) is not None:
                    told[self._labels(lag)] = value
            return told

        metrics.labelled_gauge(name, sentence, figures, _LAG)

    def _labels(self, lag: ConsumerLag | LiteLag) -> Labels:
        system = is_system(self._tables.topics, lag.topic, lag.group)
        return lag.group, lag.topic, "false", system, word(lag.is_online)

    def _unread(self, lag: LiteLag) -> int | None:
        return lag.unread if self._live.now.lite_lag_counts else None

    def _latency_ms(self, lag: LiteLag) -> int | None:
        if not self._live.now.lite_lag_latencies:
            return None
        return age_ms(self._clock, self._store.log.store_time(lag.first_place) or 0) if lag.unread else 0


def _none(_: LiteLag) -> None:
    return None
