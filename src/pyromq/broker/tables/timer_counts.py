"""How many messages of each topic wait for their time, and how many came and went.

The numbers of waiting ones are for people: after a crash they may be a little off, and are right again when
nothing waits.
"""

from collections import Counter

from pyromq.broker.tables.table_file import FiledTable, TableFile
from pyromq.clock import Clock
from pyromq.metrics import Histogram
from pyromq.protocol.requests.upkeep import Metric, TimerMetricsTable
from pyromq.store.json_table import JsonTable

_HOUR_S = 3600
_DELAYS_S = (60, 600, _HOUR_S, 12 * _HOUR_S, 24 * _HOUR_S, 72 * _HOUR_S)


class TimerCounts(FiledTable):
    def __init__(self, file: JsonTable, clock: Clock) -> None:
        self._file = TableFile(file, self.table)
        self._clock = clock
        loaded = file.load(TimerMetricsTable) or TimerMetricsTable()
        self._counts = loaded.timing_count
        self.data_version = loaded.data_version
        self._is_dirty = False
        self.taken: Counter[str] = Counter()
        """Messages put into the timer wheel since the start."""
        self.delivered: Counter[str] = Counter()
        self.delays = Histogram(
            "rocketmq_delay_message_latency_seconds",
            "Seconds from storing a message to its time of delivery.",
            _DELAYS_S,
            ("topic", "storage_type", "storage_medium"),
        )

    def __repr__(self) -> str:
        return f"<TimerCounts topics={len(self._counts)}>"

    def get(self, topic: str) -> int:
        metric = self._counts.get(topic)
        return 0 if metric is None else metric.count

    def all(self) -> dict[str, int]:
        return {topic: metric.count for topic, metric in self._counts.items()}

    def add(self, topic: str, change: int) -> None:
        now_ms = self._clock.now_ms()
        metric = self._counts.get(topic)
        if metric is None:
            metric = self._counts[topic] = Metric()
        metric.count += change
        metric.time_stamp = now_ms
        self._is_dirty = True

    def forget(self, topic: str) -> None:
        if self._counts.pop(topic, None) is not None:
            self._is_dirty = True

    def reset(self) -> None:
        """Nothing waits."""
        for metric in self._counts.values():
            self._is_dirty |= metric.count != 0
            metric.count = 0

    def table(self) -> TimerMetricsTable:
        counts = {
            topic: Metric(count=each.count, time_stamp=each.time_stamp)
            for topic, each in self._counts.items()
        }
        return TimerMetricsTable(data_version=self.data_version, timing_count=counts)

    def save(self) -> None:
        """Write the counts if they changed; under a loop a thread does so. A failure is logged."""
        if self._is_dirty:
            self._is_dirty = False
            self.data_version = self.data_version.next(self._clock.now_ms())
            self._file.save_or_wait()
        else:
            self._file.retry()

    def save_now(self) -> None:
        """Write the counts here; raises OSError."""
        if self._is_dirty:
            self._is_dirty = False
            self._file.save_now()
