"""Messages ready to be sent: checked, given their id, compressed. A message that breaks a rule is refused."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from pyromq.client.timing import given_times
from pyromq.client.values import Message
from pyromq.cluster.sending.request import PreparedMessage
from pyromq.errors import BadMessage, LocalProtocolError
from pyromq.protocol import names
from pyromq.protocol import properties as props
from pyromq.protocol.compression import DEFAULT_LEVEL, Compression, compress
from pyromq.protocol.properties import NAME_SEPARATOR, PAIR_SEPARATOR, PROPERTIES_LIMIT_BYTES, RESERVED_NAMES
from pyromq.protocol.requests.sending import SendMessageV2

DEFAULT_MAX_BYTES: Final = 4 * 1024 * 1024
DEFAULT_COMPRESS_FROM_BYTES: Final = 4096
DEFAULT_MAX_DELAY_LEVEL: Final = 18

_MAX_KNOWN_TOPICS = 4096
TAG_SEPARATOR: Final = "||"
_NOT_IN_LITE_TOPICS: Final = frozenset((props.TRANSACTION_PREPARED, props.SHARDING_KEY))


def check_topic(topic: str) -> None:
    """Raises BadMessage for a topic that clients may not send to."""
    if not isinstance(topic, str):
        raise BadMessage(f"topic must be str, not {type(topic).__name__}")
    if (problem := names.topic_problem(topic)) is not None:
        raise BadMessage(problem)
    if topic == names.AUTO_CREATE_TOPIC:
        raise BadMessage(f"{topic} is the template of new topics: choose another one")
    if topic in names.UNSENDABLE_TOPICS:
        raise BadMessage(f"only brokers may send to the topic {topic}")


class MessagePreparer:
    """Prepares the messages of one producer.

    `wrap` turns a topic into the name that brokers know. Bodies of `compress_from_bytes` and more are
    compressed, unless that makes them no smaller.
    """

    def __init__(
        self,
        *,
        wrap: Callable[[str], str] = str,
        namespace: str | None = None,
        max_bytes: int = DEFAULT_MAX_BYTES,
        compress_from_bytes: int = DEFAULT_COMPRESS_FROM_BYTES,
        compression: Compression = Compression.ZLIB,
        level: int = DEFAULT_LEVEL,
        max_delay_level: int = DEFAULT_MAX_DELAY_LEVEL,
    ) -> None:
        self._wrap = wrap
        self._max_bytes = max_bytes
        self._compress_from_bytes = compress_from_bytes
        self._compression = compression
        self._level = level
        self._max_delay_level = max_delay_level
        self.known_topics: dict[str, str] = {}
        """The application's name → the broker's name."""
        self.batch_topics: dict[str, str] = {}
        """Those whose messages may be batched."""
        self.suffix = _pair(props.INSTANCE_ID, namespace) if namespace else ""

    def prepare(
        self,
        message: Message,
        unique_key: str,
        now_ms: int,
        system: Mapping[str, str] | None = None,
        *,
        compress: bool = True,
        kind: type[SendMessageV2] = SendMessageV2,
    ) -> PreparedMessage:
        """`system`: properties that applications may not set. Messages of a batch are never compressed."""
        topic = self.known_topics.get(message.topic) or self._check_topic(message.topic)
        body = message.body
        if type(body) is not bytes:
            body = _as_bytes(body)
        size_bytes = len(body)
        # Without a body it removes its key from a compacted topic: the broker knows whether it is one.
        if size_bytes > self._max_bytes or not (size_bytes or message.keys):
            raise BadMessage(_size_problem(size_bytes, self._max_bytes))
        if message.flag and not _is_int32(message.flag):
            raise BadMessage(f"flag must be an int of 32 bits, not {message.flag!r}")
        sys_flag = 0
        if compress and size_bytes >= self._compress_from_bytes:
            body, sys_flag = self._compress(body)
        keys = message.keys
        if not isinstance(keys, str):
            keys = _join_keys(keys) if keys else ""
        tags, wait_stored, is_delayed = message.tags, message.wait_stored, message.is_delayed
        is_plain = wait_stored and not is_delayed and message.priority is None and message.lite_topic is None
        if message.properties or keys or tags or system or not is_plain:
            properties = self._properties(message, keys, unique_key, system)
        else:
            properties = f"{props.UNIQ_KEY}{NAME_SEPARATOR}{unique_key}{PAIR_SEPARATOR}{self.suffix}"
        return PreparedMessage(
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
            kind,
        )

    def batch_topic(self, topic: str) -> str | None:
        """The broker's name of a topic whose messages may be batched; raises BadMessage for a bad name."""
        self._check_topic(topic)
        return self.batch_topics.get(topic)

    def _check_topic(self, topic: str) -> str:
        check_topic(topic)
        wrapped = self._wrap(topic)
        if len(self.known_topics) >= _MAX_KNOWN_TOPICS:
            self.known_topics.clear()
            self.batch_topics.clear()
        self.known_topics[topic] = wrapped
        if not names.is_retry_topic(wrapped):
            self.batch_topics[topic] = wrapped
        return wrapped

    def _compress(self, body: bytes) -> tuple[bytes, int]:
        try:
            smaller = compress(body, self._compression, self._level)
        except LocalProtocolError as problem:
            raise BadMessage(str(problem)) from None
        return (smaller, self._compression.sys_flag) if len(smaller) < len(body) else (body, 0)

    def _properties(
        self, message: Message, keys: str, unique_key: str, system: Mapping[str, str] | None
    ) -> str:
        parts: list[str] = []
        if not isinstance(message.properties, Mapping):
            raise BadMessage(f"properties must be a mapping, not {type(message.properties).__name__}")
        for name, value in message.properties.items():
            _check_own_property(name, value)
            parts.append(_pair(name, value))
        if keys:
            parts.append(_pair(props.KEYS, keys))
        if message.tags:
            if not isinstance(message.tags, str):
                raise BadMessage(
                    f"tags must be str or None, not {type(message.tags).__name__}: a message has one tag"
                )
            if TAG_SEPARATOR in message.tags:
                raise BadMessage(
                    f"the tag {message.tags!r} contains {TAG_SEPARATOR}: a message has one tag, only"
                    " subscriptions have several"
                )
            parts.append(_pair(props.TAGS, message.tags))
        if not message.wait_stored:
            parts.append(_pair(props.WAIT, "false"))
        if message.is_delayed:
            parts += _delays(message, self._max_delay_level)
        if message.priority is not None:
            parts.append(_priority(message))
        if message.lite_topic is not None:
            parts.append(_lite_topic(message, system))
        if system is not None:
            parts += [_pair(name, value) for name, value in system.items()]
        parts.append(_pair(props.UNIQ_KEY, unique_key))
        text = "".join(parts)
        if text.count(PAIR_SEPARATOR) != len(parts):
            raise BadMessage(f"a tag, key or property contains the separator U+0002: {message!r}")
        text += self.suffix
        _check_size(text)
        return text


def _pair(name: str, value: str) -> str:
    return f"{name}{NAME_SEPARATOR}{value}{PAIR_SEPARATOR}"


def _check_own_property(name: str, value: str) -> None:
    if name in RESERVED_NAMES:
        raise BadMessage(f"the property name {name} is reserved: choose another one")
    if not all(isinstance(each, str) for each in (name, value)):
        raise BadMessage(f"property {name!r}={value!r}: name and value must be str")
    if not name or not value or NAME_SEPARATOR in name:
        raise BadMessage(
            f"property {name!r}={value!r}: name and value must not be empty, and the name not contain U+0001"
        )


def _delays(message: Message, max_level: int) -> list[str]:
    wanted: list[str] = []
    for field, name, none in (
        ("delay_level", props.DELAY, 0),
        ("delay_ms", props.TIMER_DELAY_MS, None),
        ("deliver_at_ms", props.TIMER_DELIVER_MS, None),
    ):
        value = getattr(message, field)
        if value == none:
            continue
        if type(value) is not int or value < 0:
            raise BadMessage(f"{field} must be an int of 0 or more, not {value!r}")
        wanted.append(_pair(name, str(value)))
    if len(wanted) > 1:
        raise BadMessage(
            f"set only one of delay_level, delay_ms and deliver_at_ms, not {given_times(message)}"
        )
    if message.delay_level > max_level:
        # java: brokers take their highest level instead, and say nothing
        raise BadMessage(
            f"delay_level must be at most {max_level}, not {message.delay_level}: for another time set"
            " delay_ms, or raise max_delay_level if messageDelayLevel of the brokers has more levels"
        )
    return wanted


def _priority(message: Message) -> str:
    if type(message.priority) is not int or message.priority < 0:
        raise BadMessage(f"priority must be an int of 0 or more, not {message.priority!r}")
    if message.is_delayed:
        raise BadMessage("a delayed message has no priority: brokers drop it")
    return _pair(props.PRIORITY, str(message.priority))


def _lite_topic(message: Message, system: Mapping[str, str] | None) -> str:
    if (problem := names.lite_topic_problem(message.lite_topic)) is not None:
        raise BadMessage(problem)
    is_other = system is not None and not system.keys().isdisjoint(_NOT_IN_LITE_TOPICS)
    if message.is_delayed or message.priority is not None or is_other:
        raise BadMessage(
            "a message of a lite topic cannot be in a transaction or have a delay, a priority or a sharding"
            f" key: {message!r}"
        )
    return _pair(props.LITE_TOPIC, message.lite_topic or "")


def _is_int32(value: object) -> bool:
    return isinstance(value, int) and -(1 << 31) <= value < 1 << 31


def _join_keys(keys: Sequence[str]) -> str:
    if not isinstance(keys, Iterable):
        raise BadMessage(f"keys must be str or a sequence of str, not {type(keys).__name__}")
    if not all(isinstance(key, str) for key in keys):
        raise BadMessage(f"every key must be str: {keys!r}")
    if any(not key or " " in key for key in keys):
        raise BadMessage(f"a key must not be empty or contain a blank, which separates keys: {keys!r}")
    return props.KEY_SEPARATOR.join(keys)


def _as_bytes(body: object) -> bytes:
    if isinstance(body, bytearray | memoryview):
        return bytes(body)
    raise BadMessage(f"body must be bytes, not {type(body).__name__}")


def _size_problem(size_bytes: int, max_bytes: int) -> str:
    if size_bytes == 0:
        return "the body is empty: only a message with keys, for a compacted topic, may have none"
    return f"the body has {size_bytes} bytes, more than max_message_bytes={max_bytes}"


def _check_size(text: str) -> None:
    try:
        size_bytes = len(text) if text.isascii() else len(text.encode())
    except UnicodeEncodeError as problem:
        raise BadMessage(f"the properties cannot be encoded as UTF-8: {problem}") from None
    if size_bytes > PROPERTIES_LIMIT_BYTES:
        raise BadMessage(f"the properties take {size_bytes} bytes, more than {PROPERTIES_LIMIT_BYTES}")
