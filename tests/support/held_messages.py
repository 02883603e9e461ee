"""Messages and queues for tests of the parts of consumers."""

from collections.abc import Awaitable, Callable

from pyromq.client.consumer.reading.in_flight import InFlight, Thresholds
from pyromq.client.values import MessageQueue, ReceivedMessage
from pyromq.clock import Clock, ManualClock
from pyromq.cluster.routes import Route
from pyromq.protocol.properties import encode_properties
from pyromq.protocol.record import StoredMessage

QUEUE = MessageQueue("Orders", "broker-a", 0)
RETRY_QUEUE = MessageQueue("%RETRY%billing", "broker-a", 0)
BROKERS = {"broker-a": {0: "a:1", 1: "a:2"}}
ORDERS = Route("Orders", (QUEUE,), (QUEUE,), BROKERS)
RETRIES = Route(RETRY_QUEUE.topic, (RETRY_QUEUE,), (RETRY_QUEUE,), BROKERS)


def a_message(offset: int, body: bytes | None = None, topic: str = "Orders") -> ReceivedMessage:
    stored = StoredMessage(topic, str(offset).encode() if body is None else body, queue_offset=offset)
    return ReceivedMessage(stored, QUEUE)


def tagged(offset: int, tag: str | None, topic: str = "Orders", **properties: str) -> StoredMessage:
    text = encode_properties({"TAGS": tag, **properties})
    return StoredMessage(topic, b"x", text.encode(), queue_offset=offset)


def held_queue(
    *offsets: int,
    thresholds: Thresholds | None = None,
    clock: Clock | None = None,
    relock: Callable[[], Awaitable[bool]] | None = None,
    queue: MessageQueue = QUEUE,
) -> InFlight[ReceivedMessage]:
    """What is held after these offsets were pulled from the start."""
    first = offsets[0] if offsets else 0
    held: InFlight[ReceivedMessage] = InFlight(
        queue, first, thresholds or Thresholds(), clock or ManualClock(), relock
    )
    if offsets:
        held.put(map(a_message, offsets), offsets[-1] + 1)
    return held
