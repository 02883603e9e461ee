"""Sends what FastStream wants to be sent: messages, requests and the replies to them."""

import logging
from datetime import datetime
from typing import Any

from faststream._internal.endpoint.utils import ParserComposition
from faststream._internal.parser import DefaultCodec
from faststream._internal.producer import ProducerProto
from faststream.exceptions import FeatureNotSupportedException

from pyromq.client.values import Message, ReceivedMessage, SendResult
from pyromq.errors import AskerGone, BadMessage, NoReply, SendFailed, StateError
from pyromq.faststream.commands import RocketCommand
from pyromq.faststream.link import StreamLink
from pyromq.faststream.message import CONTENT_TYPE, CORRELATION, EMPTY_BODY, REPLY_TO, decoded, parsed

_log = logging.getLogger(__name__)


class RocketProducer(ProducerProto[RocketCommand]):
    def __init__(self, parser: Any = None, decoder: Any = None) -> None:
        self._parser = ParserComposition(parser, parsed)
        self._decoder = ParserComposition(decoder, decoded)
        self.codec: Any = DefaultCodec()
        self.serializer: Any = None
        self._connected: StreamLink | None = None

    def connect(self, link: StreamLink, serializer: Any, codec: Any) -> None:
        self._connected, self.serializer, self.codec = link, serializer, codec or DefaultCodec()

    def disconnect(self) -> None:
        self._connected = None

    @property
    def _link(self) -> StreamLink:
        if self._connected is None:
            raise StateError("the broker is not connected: await broker.connect()")
        return self._connected

    async def message_of(self, cmd: RocketCommand) -> Message:
        return await message_of(cmd, self.codec, self.serializer)

    async def publish(self, cmd: RocketCommand) -> SendResult | None:
        message, link = await self.message_of(cmd), self._link
        if cmd.to is not None:
            try:
                return await link.producer.reply(cmd.to, message.body, properties=message.properties)
            except AskerGone as problem:
                _log.info("the requester no longer waits for a reply: %s", problem)
                return None
        await link.declare(message.topic)
        return await link.producer.send(message, sharding_key=cmd.fields.get("sharding_key"))

    async def request(self, cmd: RocketCommand) -> ReceivedMessage:
        message, link = await self.message_of(cmd), self._link
        await link.declare(message.topic)
        sharding_key = cmd.fields.get("sharding_key")
        try:
            return await link.producer.request(message, cmd.timeout_s, sharding_key=sharding_key)
        except (NoReply, SendFailed) as problem:
            if isinstance(problem, SendFailed) and problem.attempts:
                raise
            raise TimeoutError(str(problem)) from problem  # as from FastStream's other brokers

    async def publish_batch(self, cmd: RocketCommand) -> None:
        raise FeatureNotSupportedException("publish_batch is not supported: publish the messages one by one")


async def message_of(cmd: RocketCommand, codec: Any, serializer: Any) -> Message:
    """The message that a command is about; checked when it is sent."""
    body, content_type = await codec.encode(cmd.body, serializer)
    own = {
        CONTENT_TYPE: content_type,
        CORRELATION: cmd.correlation_id,
        REPLY_TO: cmd.reply_to,
        EMPTY_BODY: None if body else "true",
    }
    headers = {name: str(value) for name, value in cmd.headers.items()}
    fields = cmd.fields
    return Message(
        cmd.destination,
        body or b"-",
        tags=fields.get("tag"),
        keys=fields.get("keys", ()),
        properties={name: value for name, value in own.items() if value} | headers,
        delay_ms=_milliseconds("delay_s", fields.get("delay_s")),
        deliver_at_ms=_time_ms(fields.get("deliver_at")),
        priority=fields.get("priority"),
    )


def _milliseconds(name: str, value: Any) -> int | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise BadMessage(f"{name} is {value!r}: expected seconds")
    return round(value * 1000)


def _time_ms(at: Any) -> int | None:
    if at is None:
        return None
    if not isinstance(at, datetime) or at.tzinfo is None:
        raise BadMessage(f"deliver_at is {at!r}: expected a datetime with a time zone")
    return round(at.timestamp() * 1000)
