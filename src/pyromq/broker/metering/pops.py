"""Popped messages and the revive log."""

from collections.abc import Callable, Mapping
from typing import Any

from pyromq.broker.tables.pop_counts import PopCounts
from pyromq.metrics import Metrics


def register_pops(metrics: Metrics, counts: PopCounts) -> None:
    def offer(name: str, sentence: str, table: Mapping[Any, int], *more_labels: str) -> None:
        metrics.labelled_read_counter(
            f"rocketmq_pop_revive_{name}_total",
            sentence,
            lambda: table,
            ("consumer_group", "topic", *more_labels),
        )

    kind = "revive_message_type"
    offer("in_message", "Records written to the revive log.", counts.written, kind, "put_status")
    offer("out_message", "Records read from the revive log.", counts.read, kind, "queue_id")
    offer("retry_messages", "Popped messages put back.", counts.revived, "put_status")
    # java: checkpoints and offsets that wait in buffers; here they go into the log at once
    for name in ("offset", "checkpoint"):
        metrics.gauge(f"rocketmq_pop_{name}_buffer_size", f"Waiting {name}s of pops.", lambda: 0)


def register_revival(
    metrics: Metrics, behind: Callable[[], Mapping[int, tuple[int, int]]], held: Callable[[], int]
) -> None:
    """Tell how far the revive log is read: records left, and how late the first is."""

    def offer(name: str, sentence: str, which: int) -> None:
        metrics.labelled_gauge(
            f"rocketmq_pop_revive_{name}",
            sentence,
            lambda: {(str(queue_id),): each[which] for queue_id, each in behind().items()},
            ("queue_id",),
        )

    # java: the unit is in the name, although it is a number of records
    offer("lag_milliseconds", "Records of the revive log that are not finished.", 0)
    offer("latency_milliseconds", "How late the first of them is.", 1)
    metrics.gauge("pyromq_broker_held_pops", "Pops that wait for messages.", held)
