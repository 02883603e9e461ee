"""The options of a producer; the defaults suit most programs."""
# ruff: noqa: E501, RUF009 (a table: one line per setting, however long)

from dataclasses import dataclass

from pyromq.client.prepared_messages import (
    DEFAULT_COMPRESS_FROM_BYTES,
    DEFAULT_MAX_BYTES,
    DEFAULT_MAX_DELAY_LEVEL,
)
from pyromq.client.settings import ClientOptions
from pyromq.config.kinds import NOT_NEGATIVE, POSITIVE, above, between
from pyromq.config.options import Options, setting
from pyromq.protocol import names
from pyromq.protocol.compression import DEFAULT_LEVEL, Compression

_MEBIBYTE = 1024 * 1024


# fmt: off
@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerSettings(Options):
    send_timeout_s: float = setting(3.0, "A send fails after this time, retries included; waiting for `max_in_flight` does not count.", check=above(0))
    try_timeout_s: float | None = setting(None, "A broker that takes longer is given up for another; None means half of the time that is left.", check=above(0))
    retries: int = setting(2, "How often a failed send is tried again, on another broker if there is one.", check=NOT_NEGATIVE)
    retry_unsafe_stores: bool = setting(False, "The producer also tries again when a message was stored, but not as safely as the broker should.")
    avoid_slow_brokers: bool = setting(True, "Brokers that were slow or failed get no messages for a while, if there are others.")
    create_topic_key: str = setting(names.AUTO_CREATE_TOPIC, "The topic that brokers use as a template for topics that do not exist.")
    default_topic_queues: int = setting(4, "The number of queues of a topic that is created by sending to it.", check=POSITIVE)
    max_message_bytes: int = setting(DEFAULT_MAX_BYTES, "The producer refuses larger bodies and splits batches to fit.", check=above(0))
    compress_from_bytes: int = setting(DEFAULT_COMPRESS_FROM_BYTES, "Bodies of this size and more are compressed.")
    compression: Compression = setting(Compression.ZLIB, "How bodies are compressed; brokers and clients before 4.9.4 know ZLIB only.")
    compression_level: int = setting(DEFAULT_LEVEL, "The level of compression.")
    max_in_flight: int = setting(1024, "Further sends wait while this many messages are in flight.", check=above(0))
    max_in_flight_bytes: int = setting(100 * _MEBIBYTE, "Further sends wait while this many bytes are in flight.", check=above(0))
    linger_ms: float | None = setting(None, "How long a message waits for others to share a request; 0 batches messages sent in the same turn of the event loop, None sends each message alone.", check=between(0, 30_000))
    batch_max_bytes: int = setting(32 * 1024, "A shared request is sent as soon as it has this size.", check=between(1, 2 * _MEBIBYTE))
    max_delay_level: int = setting(DEFAULT_MAX_DELAY_LEVEL, "The producer refuses higher delay levels: brokers would silently take their highest one. Raise it if `messageDelayLevel` of the brokers has more levels.", check=between(0, 2**31 - 1))
    otel: bool = setting(False, "The producer makes OpenTelemetry spans, and messages carry the trace context; needs `pyromq[otel]`.")
    trace: bool = setting(False, "The producer reports every message to the trace topic.")
    trace_topic: str = setting(names.TRACE_TOPIC, "The topic for these reports.")
# fmt: on


class ProducerOptions(ClientOptions, total=False):
    """Made from ProducerSettings by `make docs`, for editors and type checkers."""

    send_timeout_s: float
    try_timeout_s: float | None
    retries: int
    retry_unsafe_stores: bool
    avoid_slow_brokers: bool
    create_topic_key: str
    default_topic_queues: int
    max_message_bytes: int
    compress_from_bytes: int
    compression: Compression
    compression_level: int
    max_in_flight: int
    max_in_flight_bytes: int
    linger_ms: float | None
    batch_max_bytes: int
    max_delay_level: int
    otel: bool
    trace: bool
    trace_topic: str
