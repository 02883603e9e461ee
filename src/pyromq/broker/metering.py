"""The metrics of a broker for Prometheus, under Apache's names and labels.

Nearly all of them are read from existing tables and counters on request. Only the latency of requests is
recorded while they are handled.
"""

import shutil
from bisect import bisect_left
from collections import Counter as Tally
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import pairwise
from typing import Any

from pyromq.broker.consumer_lag import Lag, lags
from pyromq.broker.fast_path import FastPath as BrokerFastPath
from pyromq.broker.message_sizes import MessageSizes
from pyromq.broker.replication.assembly import Replication
from pyromq.broker.replication.in_sync_master import InSyncMaster
from pyromq.broker.settings import BrokerSettings
from pyromq.broker.tables.all_tables import Tables
from pyromq.broker.tables.pop_counts import PopCounts
from pyromq.broker.tables.statistics import SENT_TO_DEAD_LETTERS
from pyromq.clock import Clock
from pyromq.config.live import LiveSettings
from pyromq.errors import ConfigError
from pyromq.metrics import Distribution, Histogram, Labels, Metrics
from pyromq.protocol import names
from pyromq.protocol.bodies.heartbeat import ConsumeType
from pyromq.protocol.catalogue import Declaration, declaration_of
from pyromq.protocol.codes import Language, ResponseCode, version_name
from pyromq.protocol.requests.groups import CreateOrUpdateGroup, CreateOrUpdateGroups
from pyromq.protocol.requests.popping import AckMessage
from pyromq.protocol.requests.pulling import LitePullMessage, PullMessage
from pyromq.protocol.requests.sending import SendMessageV2
from pyromq.protocol.requests.topics import CreateOrUpdateTopic, CreateOrUpdateTopics
from pyromq.protocol.requests.transactions import EndTransaction
from pyromq.remoting.connection import Connection
from pyromq.remoting.connection_group import FastPath
from pyromq.remoting.server import ServerStatistics
from pyromq.store.message_store import MessageStore

_KIB = 1024
_MESSAGE_BYTES = (_KIB, 4 * _KIB, 512 * _KIB, 1024 * _KIB, 2048 * _KIB, 4096 * _KIB)
_RPC_MS = (1, 3, 5, 7, 10, 100, 1000, 2000, 3000)
_RPC_SECONDS = tuple(bound / 1000 for bound in _RPC_MS)

_SEND = declaration_of(SendMessageV2)
_CREATION_MS = (10, 100, 1000, 3000, 5000)
_TOPIC_CREATIONS = [declaration_of(each).code for each in (CreateOrUpdateTopic, CreateOrUpdateTopics)]
_GROUP_CREATIONS = [declaration_of(each).code for each in (CreateOrUpdateGroup, CreateOrUpdateGroups)]
_PULL = declaration_of(PullMessage)
_END = declaration_of(EndTransaction)
_ACK = declaration_of(AckMessage)
_PULLS = (_PULL.code, declaration_of(LitePullMessage).code)

_IN = ("topic", "message_type", "is_system")
_OUT = ("topic", "consumer_group", "is_retry", "is_system")
_LAG = ("consumer_group", "topic", "is_retry", "is_system", "online")
_STORAGE = ("storage_type", "storage_medium")
_THIS_STORAGE = ("local", "disk")
_REMOTING = "remoting"
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
_UNKNOWN = "unknown"
_TIMER_BOUNDS_S = (5, 60, 300, 900, 3600, 14_400, 28_800, 86_400)

# java: the values of Apache's label consume_mode
_CONSUME_MODES = {
    ConsumeType.CONSUME_ACTIVELY: "pull",
    ConsumeType.CONSUME_PASSIVELY: "push",
    ConsumeType.CONSUME_POP: "pop",
}


class Metering:
    """Observes every request; reads everything else on request."""

    def __init__(
        self,
        live: LiveSettings[BrokerSettings],
        store: MessageStore,
        tables: Tables,
        held_pulls: Callable[[], int],
        traffic: Callable[[], Iterable[ServerStatistics]],
        clock: Clock,
    ) -> None:
        self._live = live
        self._store = store
        self._topics = tables.topics
        self._groups = tables.groups
        self._offsets = tables.offsets
        self._consumers = tables.consumers
        self._producers = tables.producers
        self._statistics = tables.statistics
        self._transactions = tables.transaction_counts
        self._timer_counts = tables.timer_counts
        self._clock = clock
        self._lags: list[Lag] = []
        self._requests: dict[tuple[int, int, bool], Distribution] = {}

        self._metrics = metrics = Metrics(_common_labels(live.now))
        self._latency = metrics.histogram(
            "rocketmq_rpc_latency_milliseconds",
            "Time from reading a request to its answer.",
            ("protocol_type", "request_code", "response_code", "is_long_polling", "result"),
            _RPC_MS,
        )
        status = ("invocation_status",)
        topic_creations = metrics.histogram(
            "rocketmq_topic_create_execution_time_milliseconds",
            "Time to create or change topics.",
            (*status, "is_system"),
            _CREATION_MS,
        )
        group_creations = metrics.histogram(
            "rocketmq_consumer_group_create_execution_time_milliseconds",
            "Time to create or change consumer groups.",
            status,
            _CREATION_MS,
        )
        # System topics are never created by request.
        self._creations: dict[int, tuple[Histogram, Labels]] = {
            **dict.fromkeys(_TOPIC_CREATIONS, (topic_creations, ("false",))),
            **dict.fromkeys(_GROUP_CREATIONS, (group_creations, ())),
        }
        sizes = metrics.histogram("rocketmq_message_size", "Sizes of stored messages.", _IN, _MESSAGE_BYTES)
        self._sizes = MessageSizes(store, sizes, self._labels_in)
        self._register_tables(metrics)
        self._register_messages(metrics)
        self._register_transactions(metrics)
        if store.settings.timer_wheel:
            self._register_timers(metrics)
        self._register_pops(metrics, tables.pop_counts)
        self._register_clients(metrics)
        self._register_lag(metrics)
        self._register_storage(metrics)
        _register_traffic(metrics, traffic, held_pulls)

    def __repr__(self) -> str:
        return f"<Metering {self._metrics!r} requests={len(self._requests)}>"

    def pieces(self) -> Iterator[bytes]:
        """The text of all metrics in pieces, the first of them empty while the lag is read."""
        found = []
        for lag in lags(self._store, self._topics, self._offsets, self._consumers):
            found.append(lag)
            yield b""
        self._lags = found
        self._sizes.sample()
        yield from self._metrics.pieces()

    # Requests

    def request_handled(
        self, declaration: Declaration | None, code: int, result_code: int, seconds: float, waited: bool
    ) -> None:
        try:
            distribution = self._requests[code, result_code, waited]
        except KeyError:
            distribution = self._first(declaration, code, result_code, waited)
        distribution.counts[bisect_left(_RPC_SECONDS, seconds)] += 1
        distribution.total += seconds * 1000
        if code in self._creations:
            histogram, more_labels = self._creations[code]
            status = "success" if result_code == ResponseCode.SUCCESS else "failure"
            histogram.observe(seconds * 1000, (status, *more_labels))

    def timed(self, fast_path: BrokerFastPath) -> FastPath:
        """The fast path, timed: the answers of one read leave together, so one time counts for all."""
        monotonic = self._clock.monotonic

        def timed_path(data: bytes, connection: Connection) -> tuple[int, int]:
            started = monotonic()
            frames, position = fast_path(data, connection)
            if frames:
                seconds = monotonic() - started
                others = {
                    # Nearly all clients send by SEND_MESSAGE_V2 and pull by PULL_MESSAGE.
                    _PULL: fast_path.pulls_taken,
                    _END: fast_path.ends_taken,
                    _ACK: fast_path.acks_taken,
                }
                for declaration, count in ((_SEND, frames - sum(others.values())), *others.items()):
                    if count:
                        self._count_together(declaration, count, seconds)
            return frames, position

        return timed_path

    def _count_together(self, declaration: Declaration, count: int, seconds: float) -> None:
        key = declaration.code, ResponseCode.SUCCESS, False
        distribution = self._requests.get(key)
        if distribution is None:
            distribution = self._first(declaration, *key)
        distribution.counts[bisect_left(_RPC_SECONDS, seconds)] += count
        distribution.total += seconds * 1000 * count

    def _first(
        self, declaration: Declaration | None, code: int, result_code: int, waited: bool
    ) -> Distribution:
        try:
            result = ResponseCode(result_code).name.lower()
        except ValueError:
            result = str(result_code)
        outcome = "oneway" if declaration is not None and declaration.oneway else "success"
        name = _UNKNOWN if declaration is None else declaration.java_name
        is_held = _word(waited and code in _PULLS)
        distribution = self._latency.of((_REMOTING, name, result, is_held, outcome))
        if declaration is not None:  # Clients may send any code: all unknown codes count as one.
            self._requests[code, result_code, waited] = distribution
        return distribution

    # Tables and counters

    def _register_tables(self, metrics: Metrics) -> None:
        metrics.gauge(
            "rocketmq_broker_permission",
            "What the broker allows: 4 reading, 2 writing, 6 both.",
            lambda: self._live.now.broker_permission,
        )
        metrics.gauge("rocketmq_topic_number", "Topics.", lambda: len(self._topics))
        metrics.gauge("rocketmq_consumer_group_number", "Consumer groups.", lambda: len(self._groups))

    def _register_messages(self, metrics: Metrics) -> None:
        offer = metrics.labelled_read_counter
        offer("rocketmq_messages_in_total", "Messages stored.", lambda: self._stored("messages"), _IN)
        offer("rocketmq_throughput_in_total", "Bytes stored.", lambda: self._stored("size_bytes"), _IN)
        offer(
            "rocketmq_messages_out_total", "Messages read by consumers.", lambda: self._read("messages"), _OUT
        )
        offer(
            "rocketmq_throughput_out_total",
            "Bytes read by consumers.",
            lambda: self._read("size_bytes"),
            _OUT,
        )
        offer(
            "rocketmq_send_to_dlq_messages_total",
            "Messages sent to the dead letters of a group.",
            self._dead_letters,
            ("consumer_group", "topic", "is_system"),
        )

    def _stored(self, measure: str) -> dict[Labels, int]:
        totals: Tally[str] = Tally()
        for (topic, _), series in self._statistics.puts():
            totals[topic] += getattr(series, measure)
        return {self._labels_in(topic): total for topic, total in totals.items()}

    def _labels_in(self, topic: str) -> Labels:
        """`message_type` is that of the topic: messages are not examined for it."""
        if topic == names.SCHEDULE_TOPIC:
            kind = "delay"
        else:
            config = self._topics.get(topic)
            kind = config.attributes.get("message.type", "normal").lower() if config is not None else "normal"
        return topic, kind, _word(self._topics.is_system(topic))

    def _read(self, measure: str) -> dict[Labels, int]:
        totals: Tally[Labels] = Tally()
        for (group, topic, _), series in self._statistics.gets():
            is_retry = _word(names.is_retry_topic(topic))
            totals[topic, group, is_retry, self._is_system(topic, group)] += getattr(series, measure)
        return totals

    def _dead_letters(self) -> dict[Labels, int]:
        dead: dict[Labels, int] = {}
        for key, count in self._statistics.counted(SENT_TO_DEAD_LETTERS).items():
            topic, _, group = key.partition("@")
            dead[group, topic, self._is_system(topic, group)] = count
        return dead

    def _register_transactions(self, metrics: Metrics) -> None:
        def by_topic(table: Mapping[str, int]) -> Callable[[], Mapping[Labels, int]]:
            return lambda: {(topic,): count for topic, count in table.items()}

        counts, labels = self._transactions, ("topic",)
        metrics.labelled_gauge(
            "rocketmq_half_messages", "Messages of open transactions.", by_topic(counts.open), labels
        )
        for name, sentence, table in (
            ("commit", "Messages committed by their transactions.", counts.committed),
            ("rollback", "Messages rolled back by their transactions.", counts.rolled_back),
        ):
            metrics.labelled_read_counter(
                f"rocketmq_{name}_messages_total", sentence, by_topic(table), labels
            )
        metrics.offer(counts.latency)
        metrics.gauge(
            "pyromq_broker_oldest_half_message_milliseconds",
            "Age of the oldest message of an open transaction.",
            lambda: counts.oldest_age_ms(),
        )

    def _register_timers(self, metrics: Metrics) -> None:
        def offer(name: str, sentence: str, read: Callable[[], float]) -> None:
            metrics.labelled_gauge(
                f"rocketmq_timer_{name}", sentence, lambda: {_THIS_STORAGE: read()}, _STORAGE
            )

        timers, counts = self._store.timers, self._timer_counts
        offer("enqueue_lag", "Timed messages that are not in the wheel yet.", self._timed_not_taken)
        offer(
            "enqueue_latency_milliseconds",
            "Age of the oldest of them.",
            lambda: self._age_ms(self._not_taken_since()),
        )
        offer("dequeue_lag", "Timed messages in the wheel.", lambda: timers.counts.total)
        offer(
            "dequeue_latency_milliseconds",
            "Age of the slot that is being delivered.",
            lambda: self._age_ms(timers.read_number * timers.precision_ms),
        )
        topic = ("topic", *_STORAGE)

        def by_topic(table: Callable[[], Mapping[str, int]]) -> Callable[[], Mapping[Labels, int]]:
            return lambda: {(name, *_THIS_STORAGE): count for name, count in table().items()}

        metrics.labelled_gauge(
            "rocketmq_timing_messages", "Waiting timed messages.", by_topic(counts.all), topic
        )
        for name, sentence, table in (
            ("enqueue", "Timed messages put into the wheel.", counts.taken.copy),
            ("dequeue", "Timed messages delivered.", counts.delivered.copy),
        ):
            metrics.labelled_read_counter(f"rocketmq_timer_{name}_total", sentence, by_topic(table), topic)
        metrics.labelled_gauge(
            "rocketmq_timer_message_snapshot",
            "Waiting timed messages by the seconds until their delivery.",
            self._timed_by_distance,
            ("timer_bound_s", *_STORAGE),
        )
        metrics.offer(counts.delays)

    def _timed_not_taken(self) -> int:
        return max(self._store.max_offset(names.TIMER_TOPIC, 0) - self._store.timers.queue_offset, 0)

    def _not_taken_since(self) -> int:
        return self._store.store_time(names.TIMER_TOPIC, 0, self._store.timers.queue_offset)

    def _timed_by_distance(self) -> dict[Labels, float]:
        timers = self._store.timers
        now, slots_per_s = self._store.time.now_ms() // timers.precision_ms, 1000 / timers.precision_ms
        bounds = [(seconds, now + int(seconds * slots_per_s)) for seconds in (0, *_TIMER_BOUNDS_S)]
        return {
            (str(seconds), *_THIS_STORAGE): timers.counts.between(first, end, timers.count_at)
            for (_, first), (seconds, end) in pairwise(bounds)
        }

    def _register_pops(self, metrics: Metrics, counts: PopCounts) -> None:
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

    def watch_pops(
        self, behind: Callable[[], Mapping[int, tuple[int, int]]], held: Callable[[], int]
    ) -> None:
        """Also tell how far the revive log is read: records left, and how late the first is."""

        def offer(name: str, sentence: str, which: int) -> None:
            self._metrics.labelled_gauge(
                f"rocketmq_pop_revive_{name}",
                sentence,
                lambda: {(str(queue_id),): each[which] for queue_id, each in behind().items()},
                ("queue_id",),
            )

        # java: the unit is in the name, although it is a number of records
        offer("lag_milliseconds", "Records of the revive log that are not finished.", 0)
        offer("latency_milliseconds", "How late the first of them is.", 1)
        self._metrics.gauge("pyromq_broker_held_pops", "Pops that wait for messages.", held)

    def _register_clients(self, metrics: Metrics) -> None:
        metrics.labelled_gauge(
            "rocketmq_producer_connections",
            "Connected producers.",
            self._count_producers,
            ("language", "version", "protocol_type"),
        )
        metrics.labelled_gauge(
            "rocketmq_consumer_connections",
            "Connected consumers.",
            self._count_consumers,
            ("consumer_group", "language", "version", "consume_mode", "protocol_type", "is_system"),
        )

    def _count_producers(self) -> Mapping[Labels, float]:
        return Tally(
            (_language(client.language), _version(client.version), _REMOTING)
            for members in self._producers.groups().values()
            for client in members.values()
        )

    def _count_consumers(self) -> Mapping[Labels, float]:
        return Tally(
            (
                group.name,
                _language(client.language),
                _version(client.version),
                _CONSUME_MODES.get(group.consume_type, _UNKNOWN) if group.consume_type else _UNKNOWN,
                _REMOTING,
                _word(names.is_system_group(group.name)),
            )
            for group in self._consumers
            for client in group.members.values()
        )

    def _register_lag(self, metrics: Metrics) -> None:
        for name, sentence, read in (
            ("lag_messages", "Messages a group has not consumed yet.", lambda lag: lag.unconsumed),
            (
                "lag_latency_milliseconds",
                "Age of the oldest message a group has not consumed yet.",
                lambda lag: self._age_ms(lag.unconsumed_since_ms),
            ),
            (
                "inflight_messages",
                "Messages a group has pulled and not consumed yet.",
                lambda lag: lag.in_flight,
            ),
            (
                "queueing_latency_milliseconds",
                "Age of the oldest message a group has not pulled yet.",
                lambda lag: self._age_ms(lag.unpulled_since_ms),
            ),
            ("ready_messages", "Messages a group has not pulled yet.", lambda lag: lag.unpulled),
        ):
            self._register_lag_metric(metrics, f"rocketmq_consumer_{name}", sentence, read)

    def _register_lag_metric(
        self, metrics: Metrics, name: str, sentence: str, read: Callable[[Lag], int]
    ) -> None:
        def figures() -> dict[Labels, float]:
            return {
                (
                    lag.group,
                    lag.topic,
                    "false",
                    self._is_system(lag.topic, lag.group),
                    "true" if lag.is_online else "false",
                ): read(lag)
                for lag in self._lags
            }

        metrics.labelled_gauge(name, sentence, figures, _LAG)

    def _age_ms(self, since_ms: int) -> int:
        return max(self._clock.now_ms() - since_ms, 0) if since_ms > 0 else 0

    def _register_storage(self, metrics: Metrics) -> None:
        def offer(name: str, sentence: str, read: Callable[[], float]) -> None:
            metrics.labelled_gauge(name, sentence, lambda: {_THIS_STORAGE: read()}, _STORAGE)

        store = self._store
        offer(
            "rocketmq_storage_size_bytes",
            "Bytes used on the file system of the store.",
            lambda: shutil.disk_usage(store.root).used,
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
            lambda: self._age_ms(store.earliest_time()),
        )
        nothing_waits: dict[Labels, float] = {(processor,): 0 for processor in _PROCESSORS}
        # There are no request queues here; an append may wait for its flush.
        metrics.labelled_gauge(
            "rocketmq_processor_watermark",
            "Waiting requests.",
            lambda: nothing_waits | {("async_put",): store.statistics().waiting_appends},
            ("processor",),
        )

    def watch_replication(self, replication: Replication) -> None:
        """Also tell how replication stands."""
        metrics, master, replica = self._metrics, replication.master, replication.replica
        metrics.labelled_gauge(
            "pyromq_broker_replica_behind_bytes",
            "Bytes of the log that a connected replica has not acknowledged.",
            lambda: {(link.address,): self._store.log_end - link.acknowledged for link in master.links},
            ("replica",),
        )
        metrics.gauge(
            "pyromq_broker_replicas_in_sync",
            "Connected replicas that are near the end of the log.",
            lambda: sum(map(master.is_in_sync, master.links)),
        )
        metrics.gauge(
            "pyromq_broker_connected_to_master",
            "1 if this replica copies the log of its master, 0 otherwise and on a master.",
            lambda: int(replica.is_connected),
        )
        if isinstance(master, InSyncMaster):
            metrics.gauge(
                "pyromq_broker_master_epoch",
                "The epoch of the master that this broker is, or follows; 0 before a controller named one.",
                lambda: replication.epoch,
            )
            metrics.gauge(
                "pyromq_broker_in_sync_set",
                "Brokers in sync with this master, itself among them; 0 on a replica.",
                lambda: len(master.in_sync.members) if master.in_sync is not None else 0,
            )
            metrics.gauge(
                "pyromq_broker_unconfirmed_bytes",
                "Bytes of the log that readers do not see yet, because not all in sync have them.",
                lambda: self._store.log_end - master.confirmed,
            )

    def _is_system(self, topic: str, group: str) -> str:
        return _word(self._topics.is_system(topic) or names.is_system_group(group))


def _register_traffic(
    metrics: Metrics, traffic: Callable[[], Iterable[ServerStatistics]], held_pulls: Callable[[], int]
) -> None:
    """Metrics that Apache does not have."""

    def total(figure: str) -> Callable[[], int]:
        return lambda: sum(getattr(each, figure) for each in traffic())

    metrics.gauge("pyromq_broker_held_pulls", "Pulls that wait for messages.", held_pulls)
    metrics.gauge("pyromq_broker_connections", "Open connections.", total("connections"))
    metrics.gauge("pyromq_broker_in_flight_requests", "Requests not answered yet.", total("in_flight"))
    for figure, sentence in (
        ("frames_read", "Frames read."),
        ("busy_answers", "Requests answered SYSTEM_BUSY because a limit was reached."),
        ("unsupported_requests", "Requests that the broker does not serve."),
        ("closed_for_bad_input", "Connections closed because of invalid input."),
        ("closed_for_idling", "Connections closed because they were idle."),
        ("closed_for_not_reading", "Connections closed because they did not read their answers."),
    ):
        metrics.read_counter(f"pyromq_broker_{figure}_total", sentence, total(figure))


def _common_labels(settings: BrokerSettings) -> dict[str, str]:
    """java: the broker's own labels win over those of the settings."""
    return dict(_label_pairs(settings.metrics_labels)) | {
        "cluster": settings.broker_cluster_name,
        "node_type": "broker",
        "node_id": settings.broker_name,
    }


def _label_pairs(text: str) -> Iterator[tuple[str, str]]:
    for pair in filter(None, text.split(",")):
        name, colon, value = pair.partition(":")
        name = name.strip()
        if not colon or not (name.isascii() and name.isidentifier()):
            raise ConfigError("metricsLabel", text, "name:value,name:value")
        yield name, value.strip()


def _word(is_true: bool) -> str:
    return "true" if is_true else "false"


def _language(language: int) -> str:
    try:
        return Language(language).name.lower()
    except ValueError:
        return str(language)


def _version(version: int) -> str:
    return version_name(version).lower()
