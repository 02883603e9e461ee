"""The options of a producer; the defaults suit most programs."""
# ruff: noqa: E501, RUF009 (a table: one line per setting, however long)

from dataclasses import dataclass

from pyromq.client.codecs import IS_CODEC, JSON, Codec
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
    send_timeout_s: float = setting(3.0, "Timeout of a send, including retries but not the time spent waiting for `max_in_flight`.", check=above(0))
    try_timeout_s: float | None = setting(None, "How long one attempt may take before another broker is tried. None means half of the remaining time.", check=above(0))
    retries: int = setting(2, "How often a failed send is retried, on another broker if there is one.", check=NOT_NEGATIVE)
    retry_unsafe_stores: bool = setting(False, "Also retry when a message was stored, but less safely than the broker is configured for.")
    avoid_slow_brokers: bool = setting(True, "Avoid brokers that were slow or failed for a while, if there are others.")
    create_topic_key: str = setting(names.AUTO_CREATE_TOPIC, "Topic that brokers use as a template for topics that do not exist.")
    default_topic_queues: int = setting(4, "Number of queues of a topic created by sending to it.", check=POSITIVE)
    max_message_bytes: int = setting(DEFAULT_MAX_BYTES, "Maximum size of a message body. Batches are split to fit.", check=above(0))
    compress_from_bytes: int = setting(DEFAULT_COMPRESS_FROM_BYTES, "Size from which bodies are compressed.")
    compression: Compression = setting(Compression.ZLIB, "Compression of bodies. Brokers and clients before 4.9.4 support only ZLIB.")
    compression_level: int = setting(DEFAULT_LEVEL, "Compression level.")
    max_in_flight: int = setting(1024, "Number of messages in flight at which further sends wait.", check=above(0))
    max_in_flight_bytes: int = setting(100 * _MEBIBYTE, "Number of bytes in flight at which further sends wait.", check=above(0))
    linger_ms: float | None = setting(None, "How long a message waits for others to share its request. 0 batches messages sent in the same turn of the event loop; None sends each message alone.", check=between(0, 30_000))
    batch_max_bytes: int = setting(32 * 1024, "Size at which a shared request is sent without waiting longer.", check=between(1, 2 * _MEBIBYTE))
    max_delay_level: int = setting(DEFAULT_MAX_DELAY_LEVEL, "Highest delay level that the producer accepts. Brokers would silently lower a higher one. Raise it if `messageDelayLevel` of the brokers has more levels.", check=between(0, 2**31 - 1))
    codec: Codec = setting(JSON, "How `Producer.message` encodes values: `JSON`, `MSGPACK`, or your own.", check=IS_CODEC)
    otel: bool = setting(False, "Create OpenTelemetry spans and send the trace context with messages. Needs `pyromq[otel]`.")
    trace: bool = setting(False, "Report every message to the trace topic.")
    trace_topic: str = setting(names.TRACE_TOPIC, "Trace topic, with `trace`.")
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
    codec: Codec
    otel: bool
    trace: bool
    trace_topic: str
