"""Messages and queues for tests of the parts of consumers."""

from pyromq.client.consumer.in_flight import InFlight, Thresholds
from pyromq.client.values import MessageQueue, ReceivedMessage
from pyromq.clock import Clock, ManualClock
from pyromq.protocol.record import StoredMessage

QUEUE = MessageQueue("Orders", "broker-a", 0)


def a_message(offset: int, body: bytes | None = None, topic: str = "Orders") -> ReceivedMessage:
    stored = StoredMessage(topic, str(offset).encode() if body is None else body, queue_offset=offset)
    return ReceivedMessage(stored, QUEUE)


def held_queue(
    *offsets: int, thresholds: Thresholds | None = None, clock: Clock | None = None
) -> InFlight[ReceivedMessage]:
    """What is held after these offsets were pulled from the start."""
    first = offsets[0] if offsets else 0
    held: InFlight[ReceivedMessage] = InFlight(
        QUEUE, first, thresholds or Thresholds(), clock or ManualClock()
    )
    if offsets:
        held.put(map(a_message, offsets), offsets[-1] + 1)
    return held
