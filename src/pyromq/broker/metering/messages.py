"""Messages that go in and out, by topic and group."""

from collections import Counter as Tally

from pyromq.broker.message_sizes import MessageSizes
from pyromq.broker.metering.labels import is_system, word
from pyromq.broker.tables.all_tables import Tables
from pyromq.broker.tables.statistics import SENT_TO_DEAD_LETTERS
from pyromq.metrics import Labels, Metrics
from pyromq.protocol import names
from pyromq.store.message_store import MessageStore

_KIB = 1024
_MESSAGE_BYTES = (_KIB, 4 * _KIB, 512 * _KIB, 1024 * _KIB, 2048 * _KIB, 4096 * _KIB)
_IN = ("topic", "message_type", "is_system")
_OUT = ("topic", "consumer_group", "is_retry", "is_system")


class MessageCounts:
    """Read from the statistics of the broker; sizes are sampled from the log."""

    def __init__(self, metrics: Metrics, store: MessageStore, tables: Tables) -> None:
        self._topics = tables.topics
        self._statistics = tables.statistics
        sizes = metrics.histogram("rocketmq_message_size", "Sizes of stored messages.", _IN, _MESSAGE_BYTES)
        self._sizes = MessageSizes(store, sizes, self._labels_in)
        self._register(metrics)

    def sample_sizes(self) -> None:
        self._sizes.sample()

    def _register(self, metrics: Metrics) -> None:
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
        metrics.read_counter(
            "pyromq_filter_unread_bodies_total",
            "Messages passed over by a filter: the body is too large or cannot be decompressed.",
            lambda: self._statistics.bodies_unread,
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
        return topic, kind, word(self._topics.is_system(topic))

    def _read(self, measure: str) -> dict[Labels, int]:
        totals: Tally[Labels] = Tally()
        for (group, topic, _), series in self._statistics.gets():
            is_retry = word(names.is_retry_topic(topic))
            totals[topic, group, is_retry, is_system(self._topics, topic, group)] += getattr(series, measure)
        return totals

    def _dead_letters(self) -> dict[Labels, int]:
        dead: dict[Labels, int] = {}
        for key, count in self._statistics.counted(SENT_TO_DEAD_LETTERS).items():
            topic, _, group = key.partition("@")
            dead[group, topic, is_system(self._topics, topic, group)] = count
        return dead
