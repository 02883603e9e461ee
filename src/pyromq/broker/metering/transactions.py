"""Open and ended transactions."""

from collections.abc import Callable, Mapping

from pyromq.broker.tables.transaction_counts import TransactionCounts
from pyromq.metrics import Labels, Metrics


def register_transactions(metrics: Metrics, counts: TransactionCounts) -> None:
    def by_topic(table: Mapping[str, int]) -> Callable[[], Mapping[Labels, int]]:
        return lambda: {(topic,): count for topic, count in table.items()}

    labels = ("topic",)
    metrics.labelled_gauge(
        "rocketmq_half_messages", "Messages of open transactions.", by_topic(counts.open), labels
    )
    for name, sentence, table in (
        ("commit", "Messages committed by their transactions.", counts.committed),
        ("rollback", "Messages rolled back by their transactions.", counts.rolled_back),
    ):
        metrics.labelled_read_counter(f"rocketmq_{name}_messages_total", sentence, by_topic(table), labels)
    metrics.offer(counts.latency)
    metrics.gauge(
        "pyromq_broker_oldest_half_message_milliseconds",
        "Age of the oldest message of an open transaction.",
        lambda: counts.oldest_age_ms(),
    )
