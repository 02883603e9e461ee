"""Requests between clients: the sender of a message waits for a reply with the same correlation id."""

import asyncio
import logging
from collections.abc import Callable, Mapping

from pyromq.client.values import Message, ReceivedMessage
from pyromq.errors import BadMessage, RequestFailed
from pyromq.protocol import names
from pyromq.protocol import properties as props

_log = logging.getLogger(__name__)

_REPLY = "reply"
_ERROR = "PYROMQ_ERROR"
"""The property of a reply that is an error: its type; the body is its text."""


class PendingReplies:
    """The replies that callers wait for, by correlation id."""

    def __init__(self) -> None:
        self._waiting: dict[str, asyncio.Future[ReceivedMessage]] = {}

    def __repr__(self) -> str:
        return f"<PendingReplies waiting={len(self._waiting)}>"

    def __len__(self) -> int:
        return len(self._waiting)

    def expect(self, correlation_id: str) -> "asyncio.Future[ReceivedMessage]":
        replied: asyncio.Future[ReceivedMessage] = asyncio.get_running_loop().create_future()
        self._waiting[correlation_id] = replied
        return replied

    def forget(self, correlation_id: str) -> None:
        self._waiting.pop(correlation_id, None)

    def take(self, reply: ReceivedMessage) -> None:
        replied = self._waiting.pop(reply.get(props.CORRELATION_ID) or "", None)
        if replied is None or replied.done():
            _log.info("a reply came too late, or to no request message=%s", reply.message_id)
        else:
            replied.set_result(reply)


def request_properties(correlation_id: str, client_id: str, timeout_s: float) -> dict[str, str]:
    """The properties that make a message a request."""
    return {
        props.CORRELATION_ID: correlation_id,
        props.REPLY_TO_CLIENT: client_id,
        props.TTL: str(round(timeout_s * 1000)),
    }


_CLOCKS_DIFFER_MS = 1000
_REQUESTS_HAVE = props.REPLY_TO_CLIENT.encode()


def is_expired(message: ReceivedMessage, now_ms: int) -> bool:
    """Whether it is a request whose sender waits no more; the broker's clock and ours may differ a little."""
    ttl = message.get(props.TTL)
    if ttl is None or not ttl.isdecimal() or message.get(props.REPLY_TO_CLIENT) is None:
        return False
    return now_ms - message.stored_ms > int(ttl) + _CLOCKS_DIFFER_MS


def expired(messages: list[ReceivedMessage], now_ms: Callable[[], int]) -> list[ReceivedMessage]:
    """The expired requests among the messages of a pull.

    The first message says whether the topic has requests: to look at each would cost other topics too much.
    Retries, which come from several topics, are few.
    """
    if not messages:
        return []
    first = messages[0]
    if _REQUESTS_HAVE not in first.raw_properties and not names.is_retry_topic(first.queue.topic):
        return []
    now = now_ms()
    return [message for message in messages if is_expired(message, now)]


def error_in(reply: ReceivedMessage) -> RequestFailed | None:
    """The error that a consumer replied with, if it did."""
    kind = reply.get(_ERROR)
    return None if kind is None else RequestFailed(kind, reply.body.decode(errors="replace"))


def error_reply(error: BaseException | str) -> tuple[bytes, dict[str, str]]:
    """The body and the properties of a reply that says why there is no other."""
    kind = "error" if isinstance(error, str) else type(error).__name__
    return str(error).encode(), {_ERROR: kind}


def reply_to(
    request: ReceivedMessage, body: bytes, *, tags: str | None, properties: Mapping[str, str]
) -> tuple[Message, dict[str, str]]:
    """The reply to a request, and the properties that bring it to the waiting client."""
    cluster = request.get(props.CLUSTER)
    correlation_id = request.get(props.CORRELATION_ID)
    client_id = request.get(props.REPLY_TO_CLIENT)
    if cluster is None or correlation_id is None or client_id is None:
        raise BadMessage(f"{request!r} is not a request: no client waits for a reply to it")
    system = {
        props.MESSAGE_TYPE: _REPLY,
        props.CORRELATION_ID: correlation_id,
        props.REPLY_TO_CLIENT: client_id,
    }
    if (ttl := request.get(props.TTL)) is not None:
        system[props.TTL] = ttl
    return Message(names.reply_topic(cluster), body, tags=tags, properties=properties), system
