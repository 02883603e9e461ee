"""The values that applications send and receive: messages, queues, results."""

from collections.abc import Callable, Mapping, Sequence
from enum import IntEnum
from typing import Any, TypeAlias, TypedDict, TypeVar, Unpack, overload

import msgspec

from pyromq.client.codecs import JSON, Codec, decode_body, encode_body
from pyromq.client.pulled_message import PulledMessage
from pyromq.protocol import names
from pyromq.protocol import properties as props
from pyromq.protocol.body import MessageQueue
from pyromq.protocol.codes import ResponseCode
from pyromq.protocol.message_id import encode_offset_message_id
from pyromq.protocol.record import Host

__all__ = ["Message", "MessageQueue", "ReceivedMessage", "Selector", "SendResult", "SendStatus"]

T = TypeVar("T")

_SHOWN_BODY_BYTES = 32


class MessageFields(TypedDict, total=False):
    """The fields of a message apart from its topic and body."""

    tags: str | None
    keys: str | Sequence[str]
    properties: Mapping[str, str]
    delay_level: int
    delay_ms: int | None
    deliver_at_ms: int | None
    wait_stored: bool
    flag: int
    priority: int | None
    lite_topic: str | None


class Message(msgspec.Struct, frozen=True):
    """A message to be sent.

    Operators find a message by its `keys`: a list, or a text in which blanks separate them. `properties` are
    the application's own. The broker can hold a message back: for a delay level, for some milliseconds, or
    until a time. Unless `wait_stored`, the broker answers before the message is flushed and replicated.
    `priority` counts in topics of the type PRIORITY, for consumers that pop: higher numbers come first.
    `lite_topic` names a lite topic inside a topic of type LITE: the first message makes it.
    """

    topic: str
    body: bytes
    tags: str | None = None
    keys: str | Sequence[str] = ()
    properties: Mapping[str, str] = {}
    delay_level: int = 0
    delay_ms: int | None = None
    deliver_at_ms: int | None = None
    wait_stored: bool = True
    flag: int = 0
    priority: int | None = None
    lite_topic: str | None = None

    @classmethod
    def of(
        cls,
        topic: str,
        value: object,
        *,
        codec: Codec = JSON,
        **fields: Unpack[MessageFields],
    ) -> "Message":
        """A message whose body is the value as JSON, or in another codec: a msgspec.Struct, a dataclass, …

        `fields`: tags, keys, properties and others, as in `Message`.
        """
        return cls(topic, encode_body(codec, value), **fields)

    def replace(self, **changes: Any) -> "Message":
        """A copy with other values in these fields: `message.replace(tags="Paid")`."""
        return msgspec.structs.replace(self, **changes)

    @property
    def is_delayed(self) -> bool:
        return self.delay_level != 0 or self.delay_ms is not None or self.deliver_at_ms is not None

    def __repr__(self) -> str:
        parts = [f"Message({self.topic!r}, {_shown(self.body)}"]
        parts += [f"tags={self.tags!r}"] if self.tags else []
        parts += [f"keys={self.keys!r}"] if self.keys else []
        parts += [f"properties={dict(self.properties)!r}"] if self.properties else []
        return ", ".join(parts) + ")"


Selector: TypeAlias = Callable[[Sequence[MessageQueue], Message], MessageQueue]
"""Chooses one of the queues of a topic for a message."""


class ReceivedMessage(PulledMessage):
    """A message as a consumer gets it: decompressed, with the topic name that the application knows."""

    __slots__ = ()

    def __reduce__(self) -> tuple[type, tuple[Any, ...]]:
        return type(self), (self.stored, self.queue, self.topic)

    def __repr__(self) -> str:
        tags = f" tags={self.tags!r}" if self.tags else ""
        return (
            f"<ReceivedMessage {self.topic} {self.message_id} {self.queue} offset={self.queue_offset}"
            f"{tags} body={_shown(self.body)}>"
        )

    @overload
    def decode(self, *, codec: Codec = JSON) -> Any: ...

    @overload
    def decode(self, type_: type[T], *, codec: Codec = JSON) -> T: ...

    def decode(self, type_: Any = Any, *, codec: Codec = JSON) -> Any:
        """The JSON body as a value of a type: a msgspec.Struct, a dataclass, … Raises BadBody."""
        return decode_body(codec, self.body, type_, f"{self.topic} {self.message_id}")

    @property
    def properties(self) -> dict[str, str]:
        """All properties, including those of the system."""
        if self._properties is None:
            self._properties = props.decode_properties(self.raw_properties)
        return self._properties

    def get(self, name: str) -> str | None:
        """One property, found without decoding the others."""
        return props.get_property(self.raw_properties, name)

    @property
    def tags(self) -> str | None:
        return self.get(props.TAGS)

    @property
    def keys(self) -> tuple[str, ...]:
        return tuple((self.get(props.KEYS) or "").split())

    @property
    def priority(self) -> int | None:
        value = self.get(props.PRIORITY)
        return int(value) if value is not None and value.isdecimal() else None

    @property
    def lite_topic(self) -> str | None:
        return self.get(props.LITE_TOPIC)

    @property
    def message_id(self) -> str:
        """The unique id from the producer."""
        return self.get(props.UNIQ_KEY) or self.offset_message_id

    @property
    def offset_message_id(self) -> str:
        """The id that says where the message is stored."""
        return encode_offset_message_id(self.stored.store_host, self.stored.log_offset)

    @property
    def born_ms(self) -> int:
        return self.stored.born_timestamp

    @property
    def stored_ms(self) -> int:
        return self.stored.store_timestamp

    @property
    def born_host(self) -> Host:
        return self.stored.born_host

    @property
    def store_host(self) -> Host:
        return self.stored.store_host

    @property
    def reconsume_times(self) -> int:
        """How often it was delivered before."""
        return self.stored.reconsume_times

    @property
    def flag(self) -> int:
        return self.stored.flag


class SendStatus(IntEnum):
    """How safely a message is stored; not SEND_OK: stored, but not flushed or replicated as configured."""

    SEND_OK = ResponseCode.SUCCESS
    FLUSH_DISK_TIMEOUT = ResponseCode.FLUSH_DISK_TIMEOUT
    FLUSH_SLAVE_TIMEOUT = ResponseCode.FLUSH_SLAVE_TIMEOUT
    SLAVE_NOT_AVAILABLE = ResponseCode.SLAVE_NOT_AVAILABLE


class SendResult(msgspec.Struct, frozen=True, gc=False):
    """Where a message went."""

    status: SendStatus
    message_id: str
    offset_message_id: str
    queue: MessageQueue
    queue_offset: int
    transaction_id: str | None = None
    recall_handle: str | None = None
    region: str = names.DEFAULT_REGION

    @property
    def is_ok(self) -> bool:
        return self.status is SendStatus.SEND_OK

    def __repr__(self) -> str:
        where = f"queue={self.queue}, offset={self.queue_offset}"
        return f"SendResult({self.status.name}, {self.message_id}, {where})"


def _shown(body: bytes) -> str:
    if len(body) <= _SHOWN_BODY_BYTES:
        return repr(body)
    return f"{body[:_SHOWN_BODY_BYTES]!r}… {len(body)} bytes"
