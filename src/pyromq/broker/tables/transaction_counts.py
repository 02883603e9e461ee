"""How many transactions are open, were committed and were rolled back, by topic.

The numbers of open ones are counted anew from the log at each start; the file is for tools and for Apache's
broker.
"""

from collections import Counter
from collections.abc import Callable

from pyromq.broker.tables.table_file import FiledTable, TableFile
from pyromq.clock import Clock
from pyromq.metrics import Histogram
from pyromq.protocol.body import DataVersion
from pyromq.protocol.config_tables import TransactionMetricsTable
from pyromq.protocol.requests.upkeep import Metric
from pyromq.store.json_table import JsonTable

_HOUR_S = 3600
_LATENCY_S = (5, 60, 600, _HOUR_S, 12 * _HOUR_S, 24 * _HOUR_S)


class TransactionCounts(FiledTable):
    def __init__(self, file: JsonTable, clock: Clock) -> None:
        loaded = file.load(TransactionMetricsTable) or TransactionMetricsTable()
        self._file = TableFile(file, self._content)
        self._clock = clock
        self._version: DataVersion = loaded.data_version
        self._changed_ms: dict[str, int] = {}
        self._is_dirty = False
        self.open: Counter[str] = Counter()
        self.oldest_age_ms: Callable[[], int] = lambda: 0
        """The age of the oldest half message; `flow/open_transactions.py`, which can read it, sets this."""
        self.committed: Counter[str] = Counter()
        self.rolled_back: Counter[str] = Counter()
        self.latency = Histogram(
            "rocketmq_finish_message_latency_milliseconds",
            "Seconds, in spite of the name, from sending a half message to its commit.",
            _LATENCY_S,
            ("topic",),
        )

    def __repr__(self) -> str:
        return f"<TransactionCounts open={self.open.total()} committed={self.committed.total()}>"

    def count(self, topic: str, change: int) -> None:
        """More or fewer transactions of a topic are open now."""
        self.open[topic] += change
        self._changed_ms[topic] = self._clock.now_ms()
        self._is_dirty = True

    def replace(self, open_by_topic: Counter[str]) -> None:
        for topic in self.open.keys() | open_by_topic.keys():
            self.count(topic, open_by_topic[topic] - self.open[topic])

    def ended(self, topic: str, born_timestamp: int, *, is_commit: bool) -> None:
        if is_commit:
            self.committed[topic] += 1
            self.latency.observe(max((self._clock.now_ms() - born_timestamp) // 1000, 0), (topic,))
        else:
            self.rolled_back[topic] += 1

    def forget(self, topic: str) -> None:
        """A topic was deleted."""
        self.committed.pop(topic, None)
        self.rolled_back.pop(topic, None)
        if not self.open[topic]:
            del self.open[topic]
            self._changed_ms.pop(topic, None)
            self._is_dirty = True

    def _content(self) -> TransactionMetricsTable:
        return TransactionMetricsTable(
            data_version=self._version,
            transaction_count={
                topic: Metric(count=count, time_stamp=self._changed_ms.get(topic, 0))
                for topic, count in self.open.items()
            },
        )

    def save(self) -> None:
        if self._is_dirty:
            self._is_dirty = False
            self._version = self._version.next(self._clock.now_ms())
            self._file.save_or_wait()
        else:
            self._file.retry()

    def persist(self) -> None:
        """Write what is not written yet, for the last time."""
        self.save()
        self._file.persist()
