"""Protobuf bodies: one message each. Rows have a field for each field of the message.

A field that is not set is null if the schema tells "not set" from a default (`optional`, members of a oneof,
messages), and has its default otherwise. In Confluent's form a body begins with the id of its schema and the
place of its message type there.
"""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

from pyromq.errors import BadMessage, RemoteProtocolError
from pyromq.spark.protobuf_schema import (
    DURATION,
    TIMESTAMP,
    is_called,
    is_map_entry,
    message_at,
    message_named,
    path_of,
    schema_file,
)
from pyromq.spark.registry import RegisteredSchema, Texts, framed

Path = tuple[int, ...]
_UNSIGNED_64 = (4, 6)
_ENUM = 14
_MICROS = 1_000_000
_MICROSECOND = timedelta(microseconds=1)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MAX_VARINT_BYTES = 5


def protobuf_reader(text: str, references: Texts = (), name: str | None = None) -> Callable[[bytes], Any]:
    """Reads whole bodies; `RemoteProtocolError` if one is not a message."""
    return _reader(message_named(schema_file(text, references), name))


def registered_protobuf_reader(schema: RegisteredSchema, name: str | None = None) -> Callable[[bytes], Any]:
    """Reads what follows the id of this schema; messages of other types than `name` are refused."""
    file = schema_file(schema.text, schema.references)
    readers: dict[Path, Callable[[bytes], Any]] = {}

    def read(body: bytes) -> Any:
        path, start = unpacked_path(body)
        if path not in readers:
            message = message_at(file, path)
            if not is_called(message, name):
                raise RemoteProtocolError(f"the message is a {message.full_name}, not a {name}")
            readers[path] = _reader(message)
        return readers[path](body[start:])

    return read


def protobuf_writer(schema: RegisteredSchema, name: str | None = None) -> Callable[[Any], bytes]:
    """Writes rows as bodies in Confluent's form."""
    from google.protobuf.message import EncodeError
    from google.protobuf.message_factory import GetMessageClass

    message = message_named(schema_file(schema.text, schema.references), name)
    made, fill = GetMessageClass(message), _Writers().fills(message)
    head = packed_path(path_of(message))

    def written(row: Any) -> bytes:
        target = made()
        try:
            fill(target, row)
            return framed(schema.id, head + target.SerializeToString(deterministic=True))
        except (TypeError, AttributeError, ValueError, LookupError, ArithmeticError, EncodeError) as problem:
            what = f"the row {row!r:.200} does not fit the message {message.full_name}: {problem}"
            raise BadMessage(what) from None

    return written


def packed_path(path: Path) -> bytes:
    """The place of a message type: how many numbers, and the numbers; the first of a file is a zero."""
    return b"\x00" if path == (0,) else b"".join(_varint(number << 1) for number in (len(path), *path))


def unpacked_path(body: bytes) -> tuple[Path, int]:
    """The place of a message type, and where the message begins."""
    count, at = _unzigzag(body, 0)
    if count == 0:
        return (0,), at
    if not 0 < count <= len(body):
        raise RemoteProtocolError(f"a message type cannot have a place of {count} numbers")
    numbers = []
    for _ in range(count):
        number, at = _unzigzag(body, at)
        numbers.append(number)
    return tuple(numbers), at


def _varint(number: int) -> bytes:
    low, rest = number & 0x7F, number >> 7
    return bytes([low | 0x80]) + _varint(rest) if rest else bytes([low])


def _unzigzag(body: bytes, at: int) -> tuple[int, int]:
    number = 0
    for shift, byte in enumerate(body[at : at + _MAX_VARINT_BYTES]):
        number |= (byte & 0x7F) << 7 * shift
        if byte < 0x80:
            return number >> 1 if not number & 1 else -(number >> 1) - 1, at + shift + 1
    raise RemoteProtocolError(f"{body[at : at + _MAX_VARINT_BYTES]!r} is not the place of a message type")


def _reader(message: Any) -> Callable[[bytes], Any]:
    from google.protobuf.message import DecodeError
    from google.protobuf.message_factory import GetMessageClass

    made, row_of = GetMessageClass(message), _Readers().rows(message)

    def whole(body: bytes) -> Any:
        try:
            return row_of(made.FromString(body))
        except DecodeError as problem:
            raise RemoteProtocolError(f"not a {message.full_name}: {problem}") from None

    return whole


class _Readers:
    """For each message type what makes rows of it; a type may contain itself."""

    def __init__(self) -> None:
        self._fields: dict[str, list[tuple[str, bool, Callable[[Any], Any]]]] = {}

    def rows(self, message: Any) -> Callable[[Any], Any]:
        if message.full_name in (TIMESTAMP, DURATION):
            return lambda time: time.seconds * _MICROS + int(time.nanos / 1000)
        fields = self._fields.get(message.full_name)
        if fields is None:
            fields = self._fields[message.full_name] = []
            fields += [
                (field.name, field.has_presence and not field.has_default_value, self._values(field))
                for field in message.fields
            ]

        def row(found: Any) -> dict[str, Any]:
            return {
                name: None if may_be_absent and not found.HasField(name) else value(getattr(found, name))
                for name, may_be_absent, value in fields
            }

        return row

    def _values(self, field: Any) -> Callable[[Any], Any]:
        if field.message_type is not None and is_map_entry(field.message_type):
            entry = field.message_type.fields_by_name
            key, value = self._one(entry["key"]), self._one(entry["value"])
            return lambda found: [(key(each), value(found[each])) for each in found]
        one = self._one(field)
        return (lambda found: [one(each) for each in found]) if field.is_repeated else one

    def _one(self, field: Any) -> Callable[[Any], Any]:
        if field.message_type is not None:
            return self.rows(field.message_type)
        if field.type in _UNSIGNED_64:
            return Decimal
        if field.type == _ENUM:
            names = {value.number: value.name for value in field.enum_type.values}
            return lambda number: names.get(number, str(number))
        return _same


class _Writers:
    """For each message type what fills it from a row."""

    def __init__(self) -> None:
        self._fields: dict[str, dict[str, Callable[[Any, Any], object]]] = {}

    def fills(self, message: Any) -> Callable[[Any, Any], object]:
        if message.full_name in (TIMESTAMP, DURATION):
            return _fill_time
        known = self._fields.get(message.full_name)
        if known is None:
            known = self._fields[message.full_name] = {}
            known |= {field.name: self._sets(field) for field in message.fields}
        fields, choices = known, [[field.name for field in one.fields] for one in message.oneofs]

        def fill(target: Any, row: Mapping[str, Any]) -> None:
            given = {name: value for name, value in row.items() if value is not None}
            for chosen in choices:
                if len(several := [name for name in chosen if name in given]) > 1:
                    raise ValueError(f"only one of {' and '.join(several)} may be set")
            for name, value in given.items():
                if name not in fields:
                    raise ValueError(f"it has no field {name}")
                fields[name](target, value)

        return fill

    def _sets(self, field: Any) -> Callable[[Any, Any], object]:
        name, message = field.name, field.message_type
        if message is None:
            one = _scalar(field)
            if field.is_repeated:
                return lambda target, values: getattr(target, name).extend(map(one, values))
            return lambda target, value: setattr(target, name, one(value))
        if is_map_entry(message):
            return self._sets_map(name, message.fields_by_name["key"], message.fields_by_name["value"])
        fill = self.fills(message)

        def set_message(target: Any, value: Any) -> None:
            inner = getattr(target, name)
            inner.SetInParent()
            fill(inner, value)

        def add_messages(target: Any, values: Any) -> None:
            for value in values:
                fill(getattr(target, name).add(), value)

        return add_messages if field.is_repeated else set_message

    def _sets_map(self, name: str, key: Any, value: Any) -> Callable[[Any, Any], object]:
        key_of = _scalar(key)
        if value.message_type is None:
            value_of = _scalar(value)
            return lambda target, pairs: getattr(target, name).update(
                {key_of(each): value_of(other) for each, other in pairs}
            )
        fill = self.fills(value.message_type)

        def set_map(target: Any, pairs: Any) -> None:
            for each, other in pairs:
                fill(getattr(target, name)[key_of(each)], other)

        return set_map


def _scalar(field: Any) -> Callable[[Any], Any]:
    """From the value of a row to that of a message."""
    if field.type == _ENUM:
        numbers = {value.name: value.number for value in field.enum_type.values}
        return lambda name: numbers[name] if name in numbers else int(name)
    return _whole if field.type in _UNSIGNED_64 else _same


def _same(value: Any) -> Any:
    return value


def _whole(value: Any) -> int:
    if int(value) != value:
        raise ValueError(f"{value!r} is not a whole number")
    return int(value)


def _fill_time(target: Any, value: Any) -> None:
    if isinstance(value, datetime):
        value = (value if value.tzinfo is not None else value.replace(tzinfo=UTC)) - _EPOCH
    seconds, micros = divmod(value // _MICROSECOND, _MICROS)
    if target.DESCRIPTOR.full_name == DURATION and seconds < 0 < micros:
        seconds, micros = seconds + 1, micros - _MICROS  # both have the sign of the whole
    target.seconds, target.nanos = seconds, micros * 1000
