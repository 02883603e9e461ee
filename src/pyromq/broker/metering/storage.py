"""The store and its file system."""

import shutil
from collections.abc import Callable

from pyromq.broker.metering.ages import age_ms
from pyromq.broker.metering.labels import STORAGE, THIS_STORAGE
from pyromq.clock import Clock
from pyromq.metrics import Labels, Metrics
from pyromq.store.message_store import MessageStore

_PROCESSORS = (
    "send",
    "async_put",
    "pull",
    "ack",
    "query_message",
    "client_manager",
    "heartbeat",
    "lite_pull",
    "transaction",
    "consumer_manager",
    "admin",
    "reply",
)


def register_storage(metrics: Metrics, store: MessageStore, clock: Clock) -> None:
    def offer(name: str, sentence: str, read: Callable[[], float]) -> None:
        metrics.labelled_gauge(name, sentence, lambda: {THIS_STORAGE: read()}, STORAGE)

    offer(
        "rocketmq_storage_size_bytes",
        "Bytes used on the file system of the store.",
        lambda: shutil.disk_usage(store.paths.root).used,
    )
    metrics.gauge(
        "pyromq_broker_disk_used_ratio",
        "How full the disk of the store is, from 0 to 1.",
        lambda: store.disk_used_ratio,
    )
    offer(
        "rocketmq_storage_flush_behind_bytes",
        "Bytes of the log that are not on disk yet.",
        lambda: store.statistics().flush_behind_bytes,
    )
    offer(
        "rocketmq_storage_dispatch_behind_bytes",
        "Bytes of the log that consumers cannot see yet.",
        lambda: store.statistics().dispatch_behind_bytes,
    )
    offer(
        "rocketmq_storage_message_reserve_time_milliseconds",
        "Age of the oldest message.",
        lambda: age_ms(clock, store.log.earliest_time()),
    )
    nothing_waits: dict[Labels, float] = {(processor,): 0 for processor in _PROCESSORS}
    # There are no request queues here; an append may wait for its flush.
    metrics.labelled_gauge(
        "rocketmq_processor_watermark",
        "Waiting requests.",
        lambda: nothing_waits | {("async_put",): store.statistics().waiting_appends},
        ("processor",),
    )
