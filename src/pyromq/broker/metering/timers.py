"""Timed messages: in the wheel, before it, and delivered."""

from collections.abc import Callable, Mapping
from itertools import pairwise

from pyromq.broker.metering.ages import age_ms
from pyromq.broker.metering.labels import STORAGE, THIS_STORAGE
from pyromq.broker.tables.timer_counts import TimerCounts
from pyromq.clock import Clock
from pyromq.metrics import Labels, Metrics
from pyromq.protocol import names
from pyromq.store.message_store import MessageStore

_TIMER_BOUNDS_S = (5, 60, 300, 900, 3600, 14_400, 28_800, 86_400)


def register_timers(metrics: Metrics, store: MessageStore, counts: TimerCounts, clock: Clock) -> None:
    def offer(name: str, sentence: str, read: Callable[[], float]) -> None:
        metrics.labelled_gauge(f"rocketmq_timer_{name}", sentence, lambda: {THIS_STORAGE: read()}, STORAGE)

    timers = store.timers
    offer("enqueue_lag", "Timed messages that are not in the wheel yet.", lambda: _not_taken(store))
    offer(
        "enqueue_latency_milliseconds",
        "Age of the oldest of them.",
        lambda: age_ms(clock, _not_taken_since(store)),
    )
    offer("dequeue_lag", "Timed messages in the wheel.", lambda: timers.counts.total)
    offer(
        "dequeue_latency_milliseconds",
        "Age of the slot that is being delivered.",
        lambda: age_ms(clock, timers.read_number * timers.precision_ms),
    )
    topic = ("topic", *STORAGE)

    def by_topic(table: Callable[[], Mapping[str, int]]) -> Callable[[], Mapping[Labels, int]]:
        return lambda: {(name, *THIS_STORAGE): count for name, count in table().items()}

    metrics.labelled_gauge("rocketmq_timing_messages", "Waiting timed messages.", by_topic(counts.all), topic)
    for name, sentence, table in (
        ("enqueue", "Timed messages put into the wheel.", counts.taken.copy),
        ("dequeue", "Timed messages delivered.", counts.delivered.copy),
    ):
        metrics.labelled_read_counter(f"rocketmq_timer_{name}_total", sentence, by_topic(table), topic)
    metrics.labelled_gauge(
        "rocketmq_timer_message_snapshot",
        "Waiting timed messages by the seconds until their delivery.",
        lambda: _by_distance(store),
        ("timer_bound_s", *STORAGE),
    )
    metrics.offer(counts.delays)


def _not_taken(store: MessageStore) -> int:
    return max(store.queues.max_offset(names.TIMER_TOPIC, 0) - store.timers.queue_offset, 0)


def _not_taken_since(store: MessageStore) -> int:
    return store.queues.store_time(names.TIMER_TOPIC, 0, store.timers.queue_offset)


def _by_distance(store: MessageStore) -> dict[Labels, float]:
    timers = store.timers
    now, slots_per_s = store.time.now_ms() // timers.precision_ms, 1000 / timers.precision_ms
    bounds = [(seconds, now + int(seconds * slots_per_s)) for seconds in (0, *_TIMER_BOUNDS_S)]
    return {
        (str(seconds), *THIS_STORAGE): timers.counts.between(first, end, timers.count_at)
        for (_, first), (seconds, end) in pairwise(bounds)
    }
