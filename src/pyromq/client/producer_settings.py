"""What one may choose about a producer; everything has a default that suits most."""

from dataclasses import dataclass, fields
from typing import Any, cast

from pyromq.client.letters import DEFAULT_MAX_BYTES, DEFAULT_PACK_BYTES
from pyromq.client.sending import SendPolicy
from pyromq.client.settings import ClientOptions
from pyromq.errors import ConfigError
from pyromq.protocol import names
from pyromq.protocol.compression import DEFAULT_LEVEL, Compression

_MEBIBYTE = 1024 * 1024


class ProducerOptions(ClientOptions, total=False):
    """The fields of ProducerSettings, then those of ClientSettings; their meaning is told there."""

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
    trace: bool
    trace_topic: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerSettings:
    send_timeout_s: float = 3.0
    """A send that takes longer has failed, retries included; waiting for room in flight does not count."""

    try_timeout_s: float | None = None
    """A broker that takes longer is given up for another; None takes half of the time that is left."""

    retries: int = 2
    """How often a send that failed is tried again, on another broker if there is one."""

    retry_unsafe_stores: bool = False
    """Whether to try again when a message was stored, but not as safely as the broker should."""

    avoid_slow_brokers: bool = True
    """Whether brokers that were slow or failed get no messages for a while, if there are others."""

    create_topic_key: str = names.AUTO_CREATE_TOPIC
    """The topic after which brokers create topics that do not exist."""

    default_topic_queues: int = 4
    """The queues of a topic that is created by sending to it."""

    max_message_bytes: int = DEFAULT_MAX_BYTES
    """Larger bodies are refused, and batches are split to fit in."""

    compress_from_bytes: int = DEFAULT_PACK_BYTES
    """Bodies of this size and more are packed."""

    compression: Compression = Compression.ZLIB
    """How bodies are packed; brokers and clients before 4.9.4 know ZLIB only."""

    compression_level: int = DEFAULT_LEVEL
    """How hard to pack."""

    max_in_flight: int = 1024
    """With as many messages in flight a send waits until one of them has arrived."""

    max_in_flight_bytes: int = 100 * _MEBIBYTE
    """The same for their bytes."""

    linger_ms: float | None = None
    """How long messages wait for others to share a request with; None sends each in its own, 0 puts those
    together that are sent in the same turn of the loop."""

    batch_max_bytes: int = 32 * 1024
    """A request that many messages share leaves when it has grown this large."""

    trace: bool = False
    """Whether to report every message to the trace topic."""

    trace_topic: str = names.TRACE_TOPIC
    """Where reports go."""

    def __post_init__(self) -> None:
        for name in ("send_timeout_s", "max_message_bytes", "max_in_flight", "max_in_flight_bytes"):
            if getattr(self, name) <= 0:
                raise ConfigError(name, getattr(self, name), "a number above 0")
        if self.retries < 0:
            raise ConfigError("retries", self.retries, "a number from 0 up")
        if self.linger_ms is not None and not 0 <= self.linger_ms <= 30_000:
            raise ConfigError("linger_ms", self.linger_ms, "milliseconds between 0 and 30000, or None")
        if not 1 <= self.batch_max_bytes <= 2 * _MEBIBYTE:
            raise ConfigError("batch_max_bytes", self.batch_max_bytes, "bytes between 1 and 2 MiB")

    @property
    def policy(self) -> SendPolicy:
        return SendPolicy(
            timeout_s=self.send_timeout_s,
            try_timeout_s=self.try_timeout_s,
            retries=self.retries,
            retry_unsafe_stores=self.retry_unsafe_stores,
            create_topic_key=self.create_topic_key,
            default_topic_queues=self.default_topic_queues,
            avoid_slow_brokers=self.avoid_slow_brokers,
        )


def split_options(options: ProducerOptions) -> tuple[ProducerSettings, ClientOptions]:
    """What is about the producer, and what is about the client around it."""
    own = {field.name for field in fields(ProducerSettings)}
    chosen: dict[str, Any] = {name: value for name, value in options.items() if name in own}
    rest = {name: value for name, value in options.items() if name not in own}
    return ProducerSettings(**chosen), cast(ClientOptions, rest)
