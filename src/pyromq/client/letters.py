"""A message as it leaves: checked, named, packed. What breaks a rule never leaves."""

from collections.abc import Callable, Mapping, Sequence
from typing import Final

import msgspec

from pyromq.client.values import Message
from pyromq.errors import BadMessage, LocalProtocolError
from pyromq.protocol import names
from pyromq.protocol import properties as props
from pyromq.protocol.compression import DEFAULT_LEVEL, Compression, compress
from pyromq.protocol.properties import NAME_SEPARATOR, PAIR_SEPARATOR, PROPERTIES_LIMIT_BYTES, RESERVED_NAMES
from pyromq.protocol.requests.sending import SendMessageV2

DEFAULT_MAX_BYTES: Final = 4 * 1024 * 1024
DEFAULT_PACK_BYTES: Final = 4096

_MAX_KNOWN_TOPICS = 4096


class Letter(msgspec.Struct, gc=False):
    """One message on its way."""

    topic: str
    """As brokers know it."""
    body: bytes
    properties: str
    unique_key: str
    born_ms: int
    sys_flag: int = 0
    flag: int = 0
    wait_stored: bool = True
    tags: str | None = None
    keys: str = ""
    is_delayed: bool = False
    plain_bytes: int = 0
    """The size of the body before it was packed."""
    kind: type[SendMessageV2] = SendMessageV2
    """The request that it leaves in."""
    reconsume_times: int | None = None
    max_reconsume_times: int | None = None

    @property
    def size_bytes(self) -> int:
        return len(self.body) + len(self.properties)


def check_topic(topic: str) -> None:
    """Raises BadMessage for a topic that nobody may send to."""
    if not isinstance(topic, str):
        raise BadMessage(f"the topic {topic!r} is no text")
    if (problem := names.topic_problem(topic)) is not None:
        raise BadMessage(problem)
    if topic in names.UNSENDABLE_TOPICS:
        raise BadMessage(f"only brokers themselves send to the topic {topic}")


class LetterWriter:
    """Writes letters for one producer.

    `wrap` gives a topic the name that brokers know. Bodies of `pack_bytes` and more are packed, unless that
    makes them no smaller.
    """

    def __init__(
        self,
        *,
        wrap: Callable[[str], str] = str,
        namespace: str | None = None,
        max_bytes: int = DEFAULT_MAX_BYTES,
        pack_bytes: int = DEFAULT_PACK_BYTES,
        compression: Compression = Compression.ZLIB,
        level: int = DEFAULT_LEVEL,
    ) -> None:
        self._wrap = wrap
        self._max_bytes = max_bytes
        self._pack_bytes = pack_bytes
        self._compression = compression
        self._level = level
        self._topics: dict[str, str] = {}
        self.batch_topics: dict[str, str] = {}
        """Topics that were written to, by their names here, of those whose messages may be in batches."""
        self.suffix = _pair(props.INSTANCE_ID, namespace) if namespace else ""

    def write(
        self,
        message: Message,
        unique_key: str,
        now_ms: int,
        system: Mapping[str, str] | None = None,
        *,
        pack: bool = True,
        kind: type[SendMessageV2] = SendMessageV2,
    ) -> Letter:
        """`system`: properties that applications may not set. A letter of a batch is never packed."""
        topic = self._topics.get(message.topic) or self._check_topic(message.topic)
        body = message.body
        if type(body) is not bytes:
            body = _as_bytes(body)
        size_bytes = len(body)
        if not 0 < size_bytes <= self._max_bytes:
            raise BadMessage(_size_problem(size_bytes, self._max_bytes))
        sys_flag = 0
        if pack and size_bytes >= self._pack_bytes:
            body, sys_flag = self._pack(body)
        keys = message.keys
        if not isinstance(keys, str):
            keys = _join_keys(keys) if keys else ""
        tags, wait_stored, is_delayed = message.tags, message.wait_stored, message.is_delayed
        if message.properties or keys or tags or system or is_delayed or not wait_stored:
            properties = self._properties(message, keys, unique_key, system)
        else:
            properties = f"{props.UNIQ_KEY}{NAME_SEPARATOR}{unique_key}{PAIR_SEPARATOR}{self.suffix}"
        return Letter(
            topic,
            body,
            properties,
            unique_key,
            now_ms,
            sys_flag,
            message.flag,
            wait_stored,
            tags,
            keys,
            is_delayed,
            size_bytes,
            kind,
        )

    def _check_topic(self, topic: str) -> str:
        check_topic(topic)
        wrapped = self._wrap(topic)
        if len(self._topics) >= _MAX_KNOWN_TOPICS:
            self._topics.clear()
            self.batch_topics.clear()
        self._topics[topic] = wrapped
        if not names.is_retry_topic(wrapped):
            self.batch_topics[topic] = wrapped
        return wrapped

    def _pack(self, body: bytes) -> tuple[bytes, int]:
        try:
            packed = compress(body, self._compression, self._level)
        except LocalProtocolError as problem:
            raise BadMessage(str(problem)) from None
        return (packed, self._compression.sys_flag) if len(packed) < len(body) else (body, 0)

    def _properties(
        self, message: Message, keys: str, unique_key: str, system: Mapping[str, str] | None
    ) -> str:
        parts: list[str] = []
        for name, value in message.properties.items():
            _check_own_property(name, value)
            parts.append(_pair(name, value))
        if keys:
            parts.append(_pair(props.KEYS, keys))
        if message.tags:
            if not isinstance(message.tags, str):
                raise BadMessage(f"the tag {message.tags!r} is no text: a message has one tag, or None")
            parts.append(_pair(props.TAGS, message.tags))
        if not message.wait_stored:
            parts.append(_pair(props.WAIT, "false"))
        if message.is_delayed:
            parts += _delays(message)
        if system is not None:
            parts += [_pair(name, value) for name, value in system.items()]
        parts.append(_pair(props.UNIQ_KEY, unique_key))
        text = "".join(parts)
        if text.count(PAIR_SEPARATOR) != len(parts):
            raise BadMessage(f"a separator (U+0002) is inside a tag, a key or a property of {message!r}")
        text += self.suffix
        _check_size(text)
        return text


def _pair(name: str, value: str) -> str:
    return f"{name}{NAME_SEPARATOR}{value}{PAIR_SEPARATOR}"


def _check_own_property(name: str, value: str) -> None:
    if name in RESERVED_NAMES:
        raise BadMessage(f"the property {name} belongs to the system: choose another name")
    if not all(isinstance(each, str) for each in (name, value)):
        raise BadMessage(f"property {name!r}={value!r}: name and value must be texts, say {str(value)!r}")
    if not name or not value or NAME_SEPARATOR in name:
        raise BadMessage(f"property {name!r}={value!r}: name and value must have a text, without U+0001")


def _delays(message: Message) -> list[str]:
    if message.delay_level < 0:
        raise BadMessage(f"delay_level={message.delay_level}: levels begin at 1, and 0 is no delay")
    given = [
        (props.DELAY, message.delay_level or None),
        (props.TIMER_DELAY_MS, message.delay_ms),
        (props.TIMER_DELIVER_MS, message.deliver_at_ms),
    ]
    wanted = [_pair(name, str(value)) for name, value in given if value is not None]
    if len(wanted) > 1:
        raise BadMessage("give one of delay_level, delay_ms and deliver_at_ms, not several")
    return wanted


def _join_keys(keys: Sequence[str]) -> str:
    if not all(isinstance(key, str) for key in keys):
        raise BadMessage(f"keys {keys!r}: every key must be a text")
    if any(not key or " " in key for key in keys):
        raise BadMessage(f"keys {keys!r}: a key is empty, or has a blank in it, which separates keys")
    return props.KEY_SEPARATOR.join(keys)


def _as_bytes(body: object) -> bytes:
    if isinstance(body, bytearray | memoryview):
        return bytes(body)
    raise BadMessage(f"the body is {type(body).__name__}, not bytes: encode it first")


def _size_problem(size_bytes: int, max_bytes: int) -> str:
    if size_bytes == 0:
        return "the body is empty: brokers refuse that"
    return f"the body has {size_bytes} bytes, more than max_message_bytes={max_bytes}"


def _check_size(text: str) -> None:
    try:
        size_bytes = len(text) if text.isascii() else len(text.encode())
    except UnicodeEncodeError as problem:
        raise BadMessage(f"properties cannot be written as UTF-8: {problem}") from None
    if size_bytes > PROPERTIES_LIMIT_BYTES:
        raise BadMessage(f"the properties take {size_bytes} bytes, more than {PROPERTIES_LIMIT_BYTES}")
