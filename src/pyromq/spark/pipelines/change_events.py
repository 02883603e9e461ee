"""Change events as Debezium writes them in JSON: what happened to which row, and the row as it is now.

An event may have its schema around it (`schema` and `payload`) or not. With a schema, dates, times and
decimals, which Debezium writes as numbers and bytes, get the types they have in the database. Everything else
is read as `from_json` does. A message that cannot be read ends the job, unless it is asked to continue: a
table that misses a change is wrong for ever.
"""

import base64
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from datetime import date, datetime, timedelta
from decimal import Decimal
from functools import cache
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa

from pyromq.errors import RemoteProtocolError
from pyromq.spark.from_json.documents import Documents
from pyromq.spark.pipelines.kept_values import Placeholder

UPSERT, DELETE, TRUNCATE = "u", "d", "t"
_MEANING = {"c": UPSERT, "r": UPSERT, "u": UPSERT, "d": DELETE, "t": TRUNCATE, "m": None}
"""By Debezium's letters; a message that the application logged in the database (m) changes no row."""

_UNREADABLE = (
    ValueError,
    LookupError,
    TypeError,
    ArithmeticError,
    msgspec.MsgspecError,
    RemoteProtocolError,
)
_NULL = msgspec.Raw(b"null")
_NOTHING = (b"", b"null")
_EPOCH = datetime(1970, 1, 1)
_PLAIN = {
    "boolean": "boolean",
    "int8": "int",
    "int16": "int",
    "int32": "int",
    "int64": "bigint",
    "float": "float",
    "float32": "float",
    "double": "double",
    "float64": "double",
    "string": "string",
    "bytes": "binary",
}
_DAYS = ("io.debezium.time.Date", "org.apache.kafka.connect.data.Date")
_TICKS_PER_S = {
    "io.debezium.time.Timestamp": 1_000,
    "org.apache.kafka.connect.data.Timestamp": 1_000,
    "io.debezium.time.MicroTimestamp": 1_000_000,
    "io.debezium.time.NanoTimestamp": 1_000_000_000,
}
_ZONED = "io.debezium.time.ZonedTimestamp"
_DECIMAL = "org.apache.kafka.connect.data.Decimal"
_ANY_SCALE = "io.debezium.data.VariableScaleDecimal"
"""A structure of scale and value, of columns that are declared without either."""
_ANY_SCALE_DDL = "decimal(38, 18)"
_MOST_DIGITS = 38
_CYCLE_DAYS = 146_097
_AS_TEXT = "Keep such a column as text: --as-text"
_ENDLESS = {
    9223372036825200000: "infinity",
    -9223372036832400000: "-infinity",
}
"""Debezium's values for times of PostgreSQL without an end, whatever their unit is."""
_ENDLESS_DAYS = {
    -622191234: "infinity",
    -625821272: "-infinity",
    -2147472692: "infinity",
    -2147472691: "-infinity",
}
"""Its numbers of dates when they overflow: in a snapshot (in UTC), then in the stream."""
_DAYS_OF_DATABASES = range(-2_441_000, 2_145_100_000)
"""From 4713 BC to the year 5874897, with PostgreSQL's as the widest of all."""
DOCUMENT = "document"
"""The column with a row of MongoDB, which has no columns."""
_FLAT_DELETED, _FLAT_OP = "__deleted", "__op"
"""Columns that ExtractNewRecordState adds to a row."""
_BESIDE_ROWS = (
    frozenset({"status", "id", "data_collections"}),
    frozenset({"databaseName", "ddl", "tableChanges"}),
)
"""The fields of a transaction's begin and end, and of changes of the database's schema."""
_HEARTBEAT = frozenset({"ts_ms", "ts_us", "ts_ns"})


class _Source(msgspec.Struct):
    """Where the database has the change in its log, by the names of PostgreSQL, Oracle and MySQL."""

    lsn: int | None = None
    scn: int | str | None = None
    file: str | None = None
    pos: int | None = None
    row: int | None = None
    ts_us: int | None = None

    def order(self) -> str | None:
        """Text that is greater for later changes of one database; None if nothing says which."""
        if self.lsn is not None:
            return f"{self.lsn:020d}"
        if self.scn is not None:
            return f"{int(self.scn):020d}"
        if self.pos is not None:
            # mysql-bin.1000000 follows mysql-bin.999999.
            name, _, number = (self.file or "").rpartition(".")
            return f"{name}.{number:0>20}:{self.pos:020d}:{self.row or 0:010d}"
        return None if self.ts_us is None else f"{self.ts_us:020d}"


class _Body(msgspec.Struct):
    """With a schema around it, or without."""

    schema: msgspec.Raw = _NULL
    payload: msgspec.Raw = _NULL
    op: str | None = None
    before: msgspec.Raw = _NULL
    after: msgspec.Raw = _NULL
    source: _Source | None = None


class Event(NamedTuple):
    """`row` is JSON: the new row, or what is known of a deleted one."""

    op: str
    row: bytes
    schema: bytes
    """That of the whole event, or of the key if the row is made of it; empty if there is none."""
    order: str | None = None
    """Among the changes of the database."""
    kept: Sequence[str] = ()
    """The columns whose values it leaves out."""


def read_event(key: str | None, body: bytes, *, flattened: bool = False) -> Event | None:
    """None if it changes nothing; ValueError says why a body is not an event.

    `flattened`: the body is the row, as Debezium's ExtractNewRecordState leaves it.
    """
    if body in _NOTHING:
        return _of_tombstone(key)
    if flattened:
        return _of_row(key, body)
    found = msgspec.json.decode(body, type=_Body)
    schema = bytes(found.schema)
    if found.op is None:
        if bytes(found.payload) in _NOTHING:
            if schema not in _NOTHING:
                return _of_tombstone(key)
            if _is_beside_rows(body):
                return None
            raise ValueError("there is no op in it. Expected an envelope of Debezium, or `flattened` rows")
        payload = bytes(found.payload)
        found = msgspec.json.decode(payload, type=_Body)
        if found.op is None and _is_beside_rows(payload):
            return None
    if found.op not in _MEANING:
        raise ValueError(f"op is {found.op!r}, not one of {', '.join(_MEANING)}")
    op = _MEANING[found.op]
    if op is None:
        return None
    row = {UPSERT: bytes(found.after), DELETE: bytes(found.before), TRUNCATE: b"{}"}[op]
    order = None if found.source is None else found.source.order()
    if row.startswith(b'"'):
        return _of_document(key, op, row, order)
    if row not in _NOTHING:
        return Event(op, row, b"" if schema in _NOTHING else schema, order)
    if op == UPSERT:
        raise ValueError("it has no after")
    if (deleted := _of_tombstone(key)) is None:
        raise ValueError("it has no before, and its message no key")
    return deleted._replace(order=order)


def _is_beside_rows(payload: bytes) -> bool:
    names = set(msgspec.json.decode(payload, type=dict[str, msgspec.Raw]))
    return any(known <= names for known in _BESIDE_ROWS) or {"ts_ms"} <= names <= _HEARTBEAT


def _of_row(key: str | None, body: bytes) -> Event | None:
    fields = msgspec.json.decode(body, type=dict[str, msgspec.Raw])
    schema = b""
    if fields.keys() == {"schema", "payload"}:
        schema, payload = bytes(fields["schema"]), bytes(fields["payload"])
        if payload in _NOTHING:
            return _of_tombstone(key)
        fields = msgspec.json.decode(payload, type=dict[str, msgspec.Raw])
    # Debezium's boolean of a deletion is a text.
    is_deleted = bytes(fields.pop(_FLAT_DELETED, _NULL)) in (b'"true"', b"true")
    letter = msgspec.json.decode(fields.pop(_FLAT_OP, _NULL), type=str | None)
    if letter is not None and letter not in _MEANING:
        raise ValueError(f"{_FLAT_OP} is {letter!r}, not one of {', '.join(_MEANING)}")
    op = DELETE if is_deleted else UPSERT if letter is None else _MEANING[letter]
    row = msgspec.json.encode(fields)
    return None if op is None else Event(op, row, b"" if schema in _NOTHING else schema)


def _of_document(key: str | None, op: str, row: bytes, order: str | None) -> Event:
    """A row of MongoDB is a text in its own JSON; only the key of the message has columns."""
    if (found := _key_of(key)) is None:
        raise ValueError("it has a document, and its message no key")
    fields, schema = found
    columns = msgspec.json.decode(fields, type=dict[str, msgspec.Raw]) | {DOCUMENT: msgspec.Raw(row)}
    if schema:
        whole = msgspec.json.decode(schema, type=dict[str, Any])
        whole["fields"] = [*whole["fields"], {"type": "string", "field": DOCUMENT}]
        schema = msgspec.json.encode(whole)
    return Event(op, msgspec.json.encode(columns), schema, order)


def _of_tombstone(key: str | None) -> Event | None:
    """It follows a delete, and is all that compaction leaves of one."""
    found = _key_of(key)
    return None if found is None else Event(DELETE, *found)


def _key_of(key: str | None) -> tuple[bytes, bytes] | None:
    """The fields of a message's key as JSON, and their schema if it has one."""
    if not key or not key.startswith("{"):
        return None
    found = msgspec.json.decode(key.encode(), type=dict[str, msgspec.Raw])
    if found.keys() == {"schema", "payload"}:
        return bytes(found["payload"]), bytes(found["schema"])
    return key.encode(), b""


def key_names(key: str | None) -> list[str] | None:
    """The columns that a message's key names."""
    found = _key_of(key)
    return None if found is None else list(msgspec.json.decode(found[0], type=dict[str, Any]))


def row_ddl(schema: bytes, texts: Collection[str] = ()) -> str | None:
    """The columns of the table that an event's schema describes; those of `texts` as text."""
    if not schema:
        return None
    fields = [
        each for each in _row_schema(schema)["fields"] if each["field"] not in (_FLAT_DELETED, _FLAT_OP)
    ]
    return ", ".join(
        f"{_quoted(each['field'])}: {'string' if each['field'] in texts else _ddl(each)}" for each in fields
    )


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


@cache
def _row_schema(schema: bytes) -> dict[str, Any]:
    """That of an event's rows; that of a key is the schema itself."""
    whole = msgspec.json.decode(schema, type=dict[str, Any])
    by_name: dict[str, dict[str, Any]] = {field["field"]: field for field in whole["fields"]}
    return by_name.get("after") or by_name.get("before") or whole


def _fields_ddl(schema: Mapping[str, Any]) -> str:
    return ", ".join(f"{_quoted(field['field'])}: {_ddl(field)}" for field in schema["fields"])


def _ddl(schema: Mapping[str, Any]) -> str:
    kind, name = schema["type"], schema.get("name")
    if name in _DAYS:
        return "date"
    if name in _TICKS_PER_S or name == _ZONED:
        return "timestamp"
    if name == _DECIMAL:
        given = schema["parameters"]
        digits, scale = int(given.get("connect.decimal.precision", _MOST_DIGITS)), int(given["scale"])
        if max(digits, scale) > _MOST_DIGITS:
            wanted = f"at most {_MOST_DIGITS} digits. {_AS_TEXT}"
            raise ValueError(f"{schema.get('field')} is a decimal({digits}, {scale}). Expected {wanted}")
        return f"decimal({digits}, {scale})"
    if name == _ANY_SCALE:
        return _ANY_SCALE_DDL
    if kind == "struct":
        return f"struct<{_fields_ddl(schema)}>"
    if kind == "array":
        return f"array<{_ddl(schema['items'])}>"
    if kind == "map":
        key, value = _ddl(schema["keys"]), _ddl(schema["values"])
        # JSON has only texts for keys: other maps are written as pairs.
        return f"map<string, {value}>" if key == "string" else f"array<struct<key: {key}, value: {value}>>"
    if kind not in _PLAIN:
        raise ValueError(f"{kind!r} is not a type of Kafka Connect")
    return _PLAIN[kind]


def _translation(schema: Mapping[str, Any], type_: pa.DataType) -> Callable[[Any], Any] | None:
    """The conversion of a value of this schema to this type; None if it needs none."""
    name, field = schema.get("name"), schema.get("field")
    is_text = pa.types.is_string(type_)
    if name in _DAYS and (is_text or pa.types.is_date(type_)):
        return lambda days: _day(days, field, is_text=is_text)
    if name in _TICKS_PER_S and (is_text or pa.types.is_timestamp(type_)):
        ticks = _TICKS_PER_S[name]
        zone = "Z" if not is_text and type_.tz is not None else ""
        return lambda count: _moment(count, ticks, field, zone, is_text=is_text)
    if name == _ZONED and pa.types.is_timestamp(type_):
        return lambda text: _zoned(text, field)
    if name == _DECIMAL and (is_text or pa.types.is_decimal(type_)):
        scale = int(schema["parameters"]["scale"])
        return lambda text: _number(text, scale, type_)
    if name == _ANY_SCALE and (is_text or pa.types.is_decimal(type_)):
        return lambda number: _number(number["value"], number["scale"], type_)
    if schema["type"] == "map" and pa.types.is_map(type_):
        inside = _translation(schema["values"], type_.item_type)
        return None if inside is None else lambda pairs: {k: _or_none(inside, v) for k, v in pairs.items()}
    if schema["type"] == "map" and pa.types.is_list(type_) and pa.types.is_struct(type_.value_type):
        sides = [
            _translation(schema[f"{side}s"], type_.value_type.field(side).type) or _same
            for side in ("key", "value")
        ]
        return lambda pairs: [
            {"key": _or_none(sides[0], key), "value": _or_none(sides[1], value)} for key, value in pairs
        ]
    if schema["type"] == "struct" and pa.types.is_struct(type_):
        inner = {
            each["field"]: translation
            for each in schema["fields"]
            if type_.get_field_index(each["field"]) >= 0
            and (translation := _translation(each, type_.field(each["field"]).type)) is not None
        }
        return (
            (lambda row: row | {n: _or_none(inner[n], row[n]) for n in inner if n in row}) if inner else None
        )
    if schema["type"] == "array" and pa.types.is_list(type_):
        one = _translation(schema["items"], type_.value_type)
        return None if one is None else lambda values: [_or_none(one, value) for value in values]
    return None


def _number(unscaled: str, scale: int, type_: pa.DataType) -> str:
    """All its digits; ValueError if the column has not room for them."""
    # Arithmetic would round to the 28 digits of Python's context, a text does not.
    exact = Decimal(f"{int.from_bytes(base64.b64decode(unscaled), signed=True)}E{-scale}")
    if pa.types.is_string(type_):
        return format(exact, "f")
    try:
        pa.scalar(exact, type_)
    except pa.ArrowInvalid:
        raise ValueError(f"{exact:f} does not fit into {type_}. {_AS_TEXT}") from None
    return format(exact, "f")


def _same(value: Any) -> Any:
    return value


def _day(days: int, field: str | None, *, is_text: bool) -> str:
    _check_number(days, field)
    if (endless := _ENDLESS_DAYS.get(days)) is not None:
        return _endless(endless, field, is_text=is_text)
    if days not in _DAYS_OF_DATABASES:
        raise ValueError(f"{field} is day {days}, which no database has: an infinity whose sign is lost")
    return _in_range(*_civil(days), field, is_text=is_text)


def _moment(count: int, ticks: int, field: str | None, zone: str, *, is_text: bool) -> str:
    _check_number(count, field)
    if (endless := _ENDLESS.get(count)) is not None:
        return _endless(endless, field, is_text=is_text)
    days, rest = divmod(count * 1_000_000 // ticks, 86_400_000_000)
    time = (_EPOCH + timedelta(microseconds=rest)).time().isoformat()
    return f"{_in_range(*_civil(days), field, is_text=is_text)}T{time}{zone}"


def _check_number(count: object, field: str | None) -> None:
    if type(count) is not int:
        raise ValueError(f"{field} is {count!r}. Expected a whole number")


def _zoned(text: str, field: str | None) -> str:
    if text.lstrip("-+").lower() == "infinity":
        return _endless(text, field, is_text=False)
    if text.startswith(("+", "-")):
        raise ValueError(f"{field} is {text}. Expected a year from 1 to 9999. {_AS_TEXT}")
    return text


def _endless(text: str, field: str | None, *, is_text: bool) -> str:
    if not is_text:
        raise ValueError(f"{field} is {text}. Expected a time with an end. {_AS_TEXT}")
    return text


def _in_range(year: int, month: int, day: int, field: str | None, *, is_text: bool) -> str:
    """As ISO 8601 has it: years with more than four digits have a sign."""
    if 1 <= year <= 9999:
        return f"{year:04d}-{month:02d}-{day:02d}"
    text = f"{'-' if year < 0 else '+' if year > 9999 else ''}{abs(year):04d}-{month:02d}-{day:02d}"
    if not is_text:
        raise ValueError(f"{field} is {text}. Expected a year from 1 to 9999. {_AS_TEXT}")
    return text


def _civil(days: int) -> tuple[int, int, int]:
    """Year, month and day of any day since 1970; Python knows those of 9,999 years, and 400 years repeat."""
    cycles, rest = divmod(days + 719_162, _CYCLE_DAYS)
    found = date.fromordinal(rest + 1)
    return found.year + 400 * cycles, found.month, found.day


def _or_none(translation: Callable[[Any], Any], value: Any) -> Any:
    return None if value is None else translation(value)


class Rows:
    """Reads the rows of events as one type."""

    def __init__(self, type_: pa.StructType) -> None:
        self._type = type_
        self._documents = Documents(type_, 0, fails=True)
        self._translations: dict[bytes, Callable[[Any], Any] | None] = {b"": None}

    def read(self, events: Sequence[Event]) -> pa.StructArray:
        return self._documents.read(pa.array([self._plain(event) for event in events], pa.binary()))

    def _plain(self, event: Event) -> bytes:
        if event.schema not in self._translations:
            self._translations[event.schema] = _translation(_row_schema(event.schema), self._type)
        translate = self._translations[event.schema]
        return (
            event.row if translate is None else msgspec.json.encode(translate(msgspec.json.decode(event.row)))
        )


def schemas(
    batches: Iterator[pa.RecordBatch],
    texts: Collection[str] = (),
    *,
    flattened: bool = False,
    skips: bool = False,
) -> Iterator[pa.RecordBatch]:
    """For `mapInArrow` over messages: the different columns and keys that these have."""
    for batch in batches:
        found = set()
        for message, event in _events(batch, texts, flattened=flattened, refuse=_skip if skips else _stop):
            if event.op != TRUNCATE:
                names = key_names(message["key"])
                found.add((row_ddl(event.schema, texts), names and msgspec.json.encode(names).decode()))
        ddl, keys = zip(*found, strict=True) if found else ((), ())
        yield pa.RecordBatch.from_pydict(
            {"columns": pa.array(ddl, pa.string()), "keys": pa.array(keys, pa.string())}
        )


def changes(
    batches: Iterator[pa.RecordBatch],
    type_: pa.StructType,
    placeholder: str,
    texts: Collection[str] = (),
    *,
    flattened: bool = False,
    skips: bool = False,
) -> Iterator[pa.RecordBatch]:
    """For `mapInArrow` over messages: what each does, the row, and the place of the message."""
    rows, unavailable = Rows(type_), Placeholder(placeholder)
    refuse = _skip if skips else _stop
    for batch in batches:
        events = _events(batch, texts, flattened=flattened, refuse=refuse)
        told = [(message, _without(unavailable, event)) for message, event in events]
        found, read_rows = _rows_of(told, rows, refuse)
        if found:
            read = {
                "op": pa.array([event.op for _, event in found]),
                "row": read_rows,
                "queue": pa.array(["{topic}@{brokerName}:{queueId}".format_map(each) for each, _ in found]),
                "at": pa.array([message["at"] for message, _ in found], pa.int64()),
                "offset": pa.array([message["offset"] for message, _ in found], pa.int64()),
                "order": pa.array([event.order for _, event in found], pa.string()),
                "kept": pa.array([event.kept for _, event in found], pa.list_(pa.string())),
            }
            yield pa.RecordBatch.from_pydict(read)


def _without(unavailable: Placeholder, event: Event) -> Event:
    row, kept = unavailable.split(event.row)
    # Of a deleted row only the key matters.
    return event._replace(row=row, kept=kept if event.op == UPSERT else ())


def refused(
    batches: Iterator[pa.RecordBatch],
    type_: pa.StructType,
    placeholder: str,
    texts: Collection[str] = (),
    *,
    flattened: bool = False,
) -> Iterator[pa.RecordBatch]:
    """For `mapInArrow` over messages: those that `changes` skips, and why (`REFUSED` has the columns)."""
    rows, unavailable = Rows(type_), Placeholder(placeholder)
    for batch in batches:
        found: list[dict[str, Any]] = []

        def refuse(message: Mapping[str, Any], problem: Exception, found: Any = found) -> None:
            found.append({**message, "reason": str(problem)})

        events = _events(batch, texts, flattened=flattened, refuse=refuse)
        _rows_of([(message, _without(unavailable, event)) for message, event in events], rows, refuse)
        fields = [batch.schema.field(name) for name in batch.schema.names]
        yield pa.RecordBatch.from_pylist(found, pa.schema([*fields, pa.field("reason", pa.string())]))


Refuse = Callable[[Mapping[str, Any], Exception], None]
"""Handles a message that is not an event."""


def _stop(message: Mapping[str, Any], problem: Exception) -> None:
    raise _no_event(message, problem) from None


def _skip(message: Mapping[str, Any], problem: Exception) -> None:
    """`refused` has it."""


def _rows_of(
    found: Sequence[tuple[dict[str, Any], Event]], rows: Rows, refuse: Refuse
) -> tuple[Sequence[tuple[dict[str, Any], Event]], pa.StructArray]:
    """The events whose rows can be read, and these rows."""
    try:
        return found, rows.read([event for _, event in found])
    except _UNREADABLE:
        kept = []
        for message, event in found:
            try:
                rows.read([event])
                kept.append((message, event))
            except _UNREADABLE as problem:
                refuse(message, problem)
        if len(kept) == len(found):
            raise
        return kept, rows.read([event for _, event in kept])


def _events(
    batch: pa.RecordBatch, texts: Collection[str], *, flattened: bool, refuse: Refuse
) -> Iterator[tuple[dict[str, Any], Event]]:
    for message in batch.to_pylist():
        try:
            event = read_event(message["key"], message["value"], flattened=flattened)
            if event is not None:
                row_ddl(event.schema, texts)
        except _UNREADABLE as problem:
            refuse(message, problem)
            continue
        if event is not None:
            yield message, event


def _no_event(message: Mapping[str, Any], problem: Exception) -> RemoteProtocolError:
    place = "{topic}@{brokerName}:{queueId} offset {offset}".format_map(message)
    return RemoteProtocolError(f"the message {place} is not a change event of Debezium: {problem}")
