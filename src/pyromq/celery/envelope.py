"""A kombu message as a message of RocketMQ, and back.

The body is the task's own, so that the console shows it. The rest, headers and properties, is JSON in one
property; if that is too long for a property, or the body is empty, it stands before the body.
"""

from itertools import count
from typing import Any

import msgspec
from kombu.utils.json import dumps, loads

from pyromq.client.values import Message, ReceivedMessage
from pyromq.errors import BadMessage
from pyromq.tasks.names import as_key, as_tag

_HEAD, _HEAD_BYTES = "kombu", "kombu-head"
_MAX_HEAD_CHARS = 16_000
_PROPERTIES = (
    "delivery_info",
    "delivery_mode",
    "priority",
    "correlation_id",
    "reply_to",
    "expiration",
    "message_id",
    "timestamp",
    "type",
    "user_id",
    "app_id",
    "cluster_id",
)
"""Those of AMQP. Callers give kombu others, too, which need not be JSON; AMQP drops them as well."""
new_tag = count(1).__next__
"""Of a delivery."""


class Times(msgspec.Struct, frozen=True):
    """`due_ms`: when the broker is asked to deliver; `eta_ms`: when the task is to run."""

    due_ms: int | None = None
    eta_ms: int | None = None
    expires_ms: int | None = None


def packed(topic: str, raw: dict[str, Any], times: Times, tag: str | None = None) -> Message:
    headers, given = raw["headers"], raw["properties"]
    properties = {name: given[name] for name in _PROPERTIES if name in given}
    head = {"t": raw["content-type"], "e": raw["content-encoding"], "h": headers, "p": properties}
    if times.expires_ms is not None or times.eta_ms is not None:
        head["x"] = [times.due_ms, times.eta_ms, times.expires_ms]
    text = dumps(head)
    body = raw["body"] or b""
    body = body.encode() if isinstance(body, str) else bytes(body)
    if body and len(text) <= _MAX_HEAD_CHARS:  # brokers refuse a message without a body
        carried = {_HEAD: text}
    else:
        encoded = text.encode()
        carried, body = {_HEAD_BYTES: str(len(encoded))}, encoded + body
    task_id = headers.get("id") or properties.get("correlation_id")
    return Message(
        topic,
        body,
        tags=tag if tag is not None else as_tag(headers.get("task")),
        keys=as_key(task_id),
        properties=carried,
        deliver_at_ms=times.due_ms,
    )


def unpacked(message: ReceivedMessage) -> tuple[dict[str, Any], Times]:
    """With a delivery tag that no other delivery has. Raises BadMessage: anyone may write to a topic."""
    try:
        return _unpacked(message)
    except (msgspec.MsgspecError, ValueError, TypeError, AttributeError) as problem:
        raise BadMessage(f"not a message of kombu: {problem}") from problem


def _unpacked(message: ReceivedMessage) -> tuple[dict[str, Any], Times]:
    body, text = message.body, message.get(_HEAD)
    if text is None and (size := message.get(_HEAD_BYTES)) is not None:
        text, body = body[: int(size)].decode(), body[int(size) :]
    head: dict[str, Any] = {}
    if text is not None:
        head = loads(text) if '"__type__"' in text else msgspec.json.decode(text)
    properties = head.get("p") or {"delivery_info": {}}
    properties["delivery_tag"] = new_tag()
    properties.setdefault("delivery_info", {})["redelivered"] = message.reconsume_times > 0
    raw = {
        "body": body,
        "content-type": head.get("t") or "application/octet-stream",
        "content-encoding": head.get("e") or "binary",
        "headers": head.get("h") or {},
        "properties": properties,
    }
    return raw, Times(*head.get("x") or ())
