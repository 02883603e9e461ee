"""Reads messages to send from a stream: lines, JSON, or a whole file. Errors name the line."""

import select
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import IO, Any

import msgspec
from msgspec import structs

from pyromq.client.blocking import SIGNAL_LOOK_S
from pyromq.client.prepared_messages import DEFAULT_MAX_BYTES
from pyromq.client.values import Message
from pyromq.errors import BadMessage
from pyromq.protocol import properties as props
from pyromq.protocol.properties import RESERVED_NAMES

_READ_BYTES = 256 * 1024
_MAX_TOGETHER = 256


@dataclass(frozen=True, slots=True)
class OutgoingLine:
    message: Message
    where: str
    """The line or file it was read from, for error messages."""
    sharding_key: str | None = None


@dataclass(frozen=True, slots=True)
class Template:
    """Defaults for all messages; a message's own fields take precedence."""

    topic: str
    tags: str | None = None
    keys: tuple[str, ...] = ()
    properties: Mapping[str, str] = field(default_factory=dict)
    sharding_key: str | None = None
    delay_ms: int | None = None
    deliver_at_ms: int | None = None

    def message(self, body: bytes, where: str, key: str | None = None) -> OutgoingLine:
        """Blanks separate the keys in `key`."""
        message = Message(
            self.topic,
            body,
            tags=self.tags,
            keys=key or self.keys,
            properties=self.properties,
            delay_ms=self.delay_ms,
            deliver_at_ms=self.deliver_at_ms,
        )
        return OutgoingLine(message, where, self.sharding_key)

    def from_line(self, line: bytes, where: str, key_delimiter: bytes | None = None) -> OutgoingLine:
        key, found, body = line.partition(key_delimiter) if key_delimiter else (b"", b"", line)
        if not found:
            return self.message(line, where)
        try:
            return self.message(body, where, key.decode())
        except UnicodeDecodeError:
            raise BadMessage(f"{where}: the key {key!r} is not UTF-8") from None

    def from_json(self, line: bytes, where: str) -> OutgoingLine:
        try:
            described = _DECODER.decode(line)
            body = described.content()
        except msgspec.DecodeError as problem:
            raise BadMessage(f"{where}: {problem}") from None
        if body is None:
            raise BadMessage(f'{where}: expected "body" or "bodyBase64"')
        given = described.properties
        own = {name: value for name, value in given.items() if name not in RESERVED_NAMES}
        keys = described.key or described.keys or given.get(props.KEYS) or self.keys
        message = Message(
            self.topic,
            body,
            tags=described.tags or given.get(props.TAGS) or self.tags,
            keys=keys,
            properties={**self.properties, **own},
            delay_level=described.delay_level,
            delay_ms=described.delay_ms,
            deliver_at_ms=described.deliver_at_ms,
            flag=described.flag,
        )
        if not message.is_delayed:
            message = structs.replace(message, delay_ms=self.delay_ms, deliver_at_ms=self.deliver_at_ms)
        return OutgoingLine(message, where, described.sharding_key or self.sharding_key)


class _Described(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    """One line of JSON. What `pyromq consume` and `pyromq store dump` print can be sent again."""

    body: msgspec.Raw = msgspec.Raw()
    """A text is sent as it is; any other JSON value is sent as JSON."""
    body_base64: bytes | None = None
    key: str | None = None
    keys: str | Sequence[str] = ()
    tags: str | None = None
    properties: dict[str, str] = {}
    delay_level: int = 0
    delay_ms: int | None = None
    deliver_at_ms: int | None = None
    sharding_key: str | None = None
    flag: int = 0

    # The old position and times of a message are read and not used.
    topic: Any = None
    broker_name: Any = None
    queue_id: Any = None
    queue_offset: Any = None
    commit_log_offset: Any = None
    msg_id: Any = None
    offset_msg_id: Any = None
    store_timestamp: Any = None
    store_host: Any = None
    born_timestamp: Any = None
    born_host: Any = None
    sys_flag: Any = None
    reconsume_times: Any = None
    prepared_transaction_offset: Any = None

    def content(self) -> bytes | None:
        text = bytes(self.body)
        if not text:
            return self.body_base64
        return msgspec.json.decode(text, type=str).encode() if text.startswith(b'"') else text


_DECODER = msgspec.json.Decoder(_Described)


class InputLines:
    """The lines of a stream, as many at a time as have arrived; empty ones are counted and skipped."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream
        self.number = 0
        self.empty = 0

    def __repr__(self) -> str:
        return f"<InputLines read={self.number} empty={self.empty}>"

    def __iter__(self) -> Iterator[list[tuple[str, bytes]]]:
        rest = b""
        while data := self._read():
            *lines, rest = (rest + data).split(b"\n")
            if len(rest) > DEFAULT_MAX_BYTES:
                raise BadMessage(f"line {self.number + 1} has more than {DEFAULT_MAX_BYTES} bytes")
            yield from self._numbered(lines)
        if rest:
            yield from self._numbered([rest])

    def _read(self) -> bytes:
        with suppress(OSError):  # not a file of the system, or Windows, where select takes only sockets
            while not select.select([self._stream], (), (), SIGNAL_LOOK_S)[0]:
                pass
        read: Any = getattr(self._stream, "read1", self._stream.read)
        data: bytes = read(_READ_BYTES)
        return data

    def _numbered(self, lines: Sequence[bytes]) -> Iterator[list[tuple[str, bytes]]]:
        numbered = []
        for line in lines:
            self.number += 1
            if line:
                numbered.append((f"line {self.number}", line))
            else:
                self.empty += 1
        yield from slices(numbered, _MAX_TOGETHER)


def slices(items: Sequence[Any], size: int) -> Iterator[list[Any]]:
    for start in range(0, len(items), size):
        yield list(items[start : start + size])


def property_map(pairs: Iterable[str]) -> dict[str, str]:
    """`NAME=VALUE`, as it is written on the command line."""
    found: dict[str, str] = {}
    for pair in pairs:
        name, is_pair, value = pair.partition("=")
        if not is_pair or not name or not value:
            raise BadMessage(f"property {pair!r}: expected NAME=VALUE")
        found[name] = value
    return found
