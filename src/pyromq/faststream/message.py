"""Messages of RocketMQ as FastStream sees them. Headers are the properties that are not the system's.

Brokers refuse empty bodies: such a message is sent with one byte, and a property says so.
"""

from typing import Any

from faststream.message import StreamMessage, decode_message

from pyromq.client.consumer.reading.popping import PoppedMessage
from pyromq.client.values import ReceivedMessage
from pyromq.protocol import properties as props
from pyromq.tasks.intake import Intake, TakenTask

CONTENT_TYPE, CORRELATION, REPLY_TO, EMPTY_BODY = "content-type", "correlation_id", "reply_to", "empty-body"
_NOT_HEADERS = props.RESERVED_NAMES | {CONTENT_TYPE, CORRELATION, REPLY_TO, EMPTY_BODY}
DEFAULT_RETRY_S = 10.0


class RocketMessage(StreamMessage[ReceivedMessage]):
    """`raw_message` is what the client received. It is renewed until it is acknowledged or given back."""

    intake: Intake | None = None
    """Where it was taken from. None: it needs no acknowledgement."""
    retry_s: float = DEFAULT_RETRY_S

    def _taken(self) -> tuple[Intake, TakenTask] | None:
        """None if there is nothing to settle, or no longer."""
        raw = self.raw_message
        if self.committed is not None or self.intake is None or not isinstance(raw, PoppedMessage):
            return None
        return self.intake, TakenTask(raw.topic, raw)

    async def ack(self) -> None:
        if found := self._taken():
            found[0].ack(found[1])
        await super().ack()

    async def nack(self, delay_s: float | None = None) -> None:
        """It is delivered again, after `delay_s` or the subscriber's `retry_s`, or becomes a dead letter."""
        if found := self._taken():
            found[0].retry(found[1], self.retry_s if delay_s is None else delay_s)
        await super().nack()

    async def reject(self, reason: str = "rejected by a handler") -> None:
        """Make it a dead letter of the group."""
        if found := self._taken():
            found[0].reject(found[1], reason)
        await super().reject()


async def parsed(raw: ReceivedMessage) -> RocketMessage:
    properties = raw.properties
    return RocketMessage(
        raw,
        b"" if EMPTY_BODY in properties else raw.body,
        headers={name: value for name, value in properties.items() if name not in _NOT_HEADERS},
        reply_to=properties.get(REPLY_TO) or properties.get(props.REPLY_TO_CLIENT) or "",
        content_type=properties.get(CONTENT_TYPE),
        correlation_id=properties.get(CORRELATION),
        message_id=raw.message_id,
    )


async def decoded(message: StreamMessage[Any]) -> Any:
    return decode_message(message)
