"""CloudEvents in messages, and back: `pip install pyromq[cloudevents]`.

Both modes of the binding for RocketMQ, as CloudEvents' Java SDK has them. `binary`: attributes are properties
with the prefix CE_, and the body is the data. `structured`: the body is the whole event as JSON.
"""

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final, Literal, Unpack

from cloudevents.core.base import BaseCloudEvent
from cloudevents.core.bindings.common import get_event_factory_for_version
from cloudevents.core.formats.json import JSONFormat

from pyromq.client.values import Message, MessageFields, ReceivedMessage
from pyromq.errors import BadBody

__all__ = ["from_message", "is_event", "to_message"]

PREFIX: Final = "CE_"
CONTENT_TYPE: Final = "CE_contenttype"
SPEC_VERSION: Final = "CE_specversion"
NO_DATA: Final = b"\0"
"""A message has a body, an event without data has none."""

_JSON: Final = JSONFormat()


def to_message(
    topic: str,
    event: BaseCloudEvent,
    mode: Literal["binary", "structured"] = "binary",
    **fields: Unpack[MessageFields],
) -> Message:
    """A message that carries the event; `fields` as in `Message`. Its key is the event's id, unless given."""
    if mode not in ("binary", "structured"):
        raise ValueError(f"mode={mode!r}: expected 'binary' or 'structured'")
    attributes = event.get_attributes()
    if mode == "structured":
        body, own = _JSON.write(event), {CONTENT_TYPE: JSONFormat.CONTENT_TYPE}
    else:
        body = _JSON.write_data(event.get_data(), event.get_datacontenttype()) or NO_DATA
        own = {
            CONTENT_TYPE if name == "datacontenttype" else PREFIX + name: _text(value)
            for name, value in attributes.items()
            if value is not None
        }
    if " " not in event.get_id():  # a space would make two keys of it
        fields.setdefault("keys", [event.get_id()])
    fields["properties"] = {**fields.get("properties", {}), **own}
    return Message(topic, body, **fields)


def is_event(message: ReceivedMessage) -> bool:
    """Whether the message carries a CloudEvent, in either mode."""
    return SPEC_VERSION in message.properties or _is_structured(message)


def from_message(message: ReceivedMessage) -> BaseCloudEvent:
    """The event that the message carries. Raises BadBody if it carries none."""
    try:
        attributes, event = _read(message)
        if "id" not in attributes:
            raise ValueError("it has no id")
        if "time" not in attributes:  # the SDK gives such an event the time at which it was read
            event.get_attributes().pop("time", None)
        return event
    except Exception as problem:  # whatever the SDK raises for a bad event
        what = f"{message.topic} {message.message_id}"
        raise BadBody(f"{what} is not a CloudEvent: {problem}") from problem


def _read(message: ReceivedMessage) -> tuple[Mapping[str, object], BaseCloudEvent]:
    """The attributes that were sent, and the event that the SDK makes of them."""
    properties = message.properties
    if _is_structured(message):
        return json.loads(message.body), _JSON.read(None, message.body)
    if SPEC_VERSION not in properties:
        raise ValueError(f"it has neither the property {SPEC_VERSION} nor a content type of CloudEvents")
    attributes: dict[str, Any] = {
        name.removeprefix(PREFIX): text for name, text in properties.items() if name.startswith(PREFIX)
    }
    content_type = attributes.pop("contenttype", None)
    if content_type is not None:
        attributes["datacontenttype"] = content_type
    if "time" in attributes:
        attributes["time"] = datetime.fromisoformat(attributes["time"])
    data = None if message.body == NO_DATA else _JSON.read_data(message.body, content_type)
    return dict(attributes), get_event_factory_for_version(attributes["specversion"])(attributes, data)


def _is_structured(message: ReceivedMessage) -> bool:
    return message.properties.get(CONTENT_TYPE, "").startswith("application/cloudevents")


def _text(value: object) -> str:
    if isinstance(value, datetime):
        return value.isoformat().replace("+00:00", "Z")
    if isinstance(value, bool):
        return str(value).lower()
    return str(value)
