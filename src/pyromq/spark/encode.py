"""Rows become messages: properties and batch entries are joined by Arrow, column by column.

A message's id is made from where its row stands (query, batch, partition, row), so a row that is
written again has the same id, so readers recognise it.
"""

import hashlib
from functools import cached_property
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from pyromq.compiled import twin
from pyromq.errors import BadMessage, ConfigError
from pyromq.protocol.batch import MIN_ENTRY_SIZE
from pyromq.protocol.properties import (
    DELAY,
    KEY_SEPARATOR,
    KEYS,
    PROPERTIES_LIMIT_BYTES,
    RESERVED_NAMES,
    SHARDING_KEY,
    TAGS,
    TIMER_DELIVER_MS,
    UNIQ_KEY,
    WAIT,
)
from pyromq.spark.decode import over
from pyromq.spark.schema import ALL_COLUMNS

_native = twin("spark.fast_encode")

SPARK_BATCH: Final = "SPARK_BATCH"
"""A property of half messages: the short name of a batch journal, a colon, and the number of the batch."""

_NOT_FROM_MAPS: Final = RESERVED_NAMES | {SPARK_BATCH}

COLUMNS: Final = {
    "value": ("binary", "string"),
    "key": ("string", "binary"),
    "keys": ("array<string>",),
    "tags": ("string",),
    "properties": ("map<string,string>",),
    "topic": ("string",),
    "queueId": ("int",),
    "brokerName": ("string",),
    "shardingKey": ("string",),
    "delayLevel": ("int",),
    "deliverTimestamp": ("timestamp",),
}
"""The columns that can be written, with their types."""

PAST: Final = frozenset(ALL_COLUMNS) - frozenset(COLUMNS)
"""Columns of messages that were read; writes ignore them."""

# Arrow looks for pandas whenever it makes a scalar; these are made once.
_NOTHING, _NO_BYTES = pa.scalar(""), pa.scalar(b"")
_AFTER_NAME, _AFTER_VALUE = pa.scalar("\x01"), pa.scalar("\x02")
_BEFORE_ID, _AFTER_ID = pa.scalar(f"{UNIQ_KEY}\x01"), pa.scalar(f"\x02{WAIT}\x01true")
_ZERO = pa.scalar(0, pa.int32())

_TRACEPARENT = "traceparent"

_HEX = np.frombuffer(b"0123456789ABCDEF", np.uint8)
_SHIFTS = np.arange(44, -4, -4)


def check_columns(columns: dict[str, str], topic: str | None) -> None:
    for name, type_ in columns.items():
        if name in PAST:
            continue
        if name not in COLUMNS:
            raise ConfigError("schema", name, f"one of the columns {', '.join(COLUMNS)}")
        if type_ not in COLUMNS[name]:
            raise ConfigError("schema", f"{name} {type_}", f"{name} {' or '.join(COLUMNS[name])}")
    if "value" not in columns:
        raise ConfigError("schema", ", ".join(columns), "a column value, the body of the message")
    if "topic" not in columns and topic is None:
        raise ConfigError("topic", None, "the option topic, or a column topic")
    for one, other in (("key", "keys"), ("queueId", "shardingKey"), ("delayLevel", "deliverTimestamp")):
        if one in columns and other in columns:
            raise ConfigError("schema", f"{one}, {other}", f"either {one} or {other}")
    if "brokerName" in columns and "queueId" not in columns:
        raise ConfigError("schema", "brokerName", "queueId with it")


class Ids:
    """The ids of one task's messages: 10 bytes for the task, 6 for the row, in hexadecimal.

    java: as long as its own ids, and read as one it says that it was made when the month began, so searches
    by id look far enough back.
    """

    def __init__(self, task: str) -> None:
        self.prefix = hashlib.blake2b(task.encode(), digest_size=10).hexdigest().upper().encode()
        self._row = 0

    def __repr__(self) -> str:
        return f"<Ids {self.prefix.decode()} made={self._row}>"

    def next(self, count: int) -> pa.StringArray:
        return self.texts(self.take(count), count)

    def take(self, count: int) -> int:
        """Set the ids of the next rows aside; the number of the first."""
        first = self._row
        self._row += count
        return first

    def texts(self, first: int, count: int) -> pa.StringArray:
        rows = np.arange(first, first + count, dtype=np.int64)
        texts = np.empty((count, 32), np.uint8)
        texts[:, :20] = np.frombuffer(self.prefix, np.uint8)
        texts[:, 20:] = _HEX[(rows[:, None] >> _SHIFTS) & 15]
        edges = np.arange(0, 32 * (count + 1), 32, dtype=np.int32)
        buffers = [None, pa.py_buffer(edges), pa.py_buffer(texts.tobytes())]
        return pa.Array.from_buffers(pa.string(), count, buffers)


class OutgoingMessages:
    """The messages of one Arrow batch, ready to be put into requests."""

    def __init__(
        self,
        batch: pa.RecordBatch,
        ids: Ids,
        *,
        with_properties: bool = True,
        traceparent: str | None = None,
    ) -> None:
        """`traceparent`: the trace of all messages that do not have their own."""
        self._batch = batch
        self._ids = ids
        self._with_properties = with_properties
        self._traceparent = traceparent
        self.count = batch.num_rows
        self._first_id = ids.take(self.count)
        self._compiled = self._compiled_entries()
        if self._compiled is None and self.count:
            self._refuse_what_cannot_be_sent()

    def __repr__(self) -> str:
        return f"<OutgoingMessages {self.count}>"

    def column(self, name: str) -> pa.Array | None:
        index = self._batch.schema.get_field_index(name)
        return self._batch.column(index) if index >= 0 else None

    def _refuse_what_cannot_be_sent(self) -> None:
        lengths = pc.fill_null(pc.binary_length(self.bodies), _ZERO)
        if pc.min(lengths).as_py() == 0:
            raise BadMessage("a row has no value: messages need a body")
        longest = pc.max(pc.binary_length(self.properties)).as_py()
        if longest > PROPERTIES_LIMIT_BYTES:
            raise BadMessage(f"properties of {longest} bytes; {PROPERTIES_LIMIT_BYTES} are allowed")

    @cached_property
    def bodies(self) -> pa.BinaryArray:
        return self._batch.column("value").cast(pa.binary())

    def _columns_of_properties(self) -> list[tuple[str, pa.StringArray]]:
        """The properties that have their own column, in the order in which they are written."""
        keys = self.column("key")
        if (several := self.column("keys")) is not None:
            keys = pc.binary_join(_without_nulls(several), KEY_SEPARATOR)
        found = [(KEYS, keys), (TAGS, self.column("tags")), (SHARDING_KEY, self.column("shardingKey"))]
        found.append((DELAY, self.column("delayLevel")))
        if (moment := self.column("deliverTimestamp")) is not None:
            millis = pc.divide(moment.cast(pa.timestamp("us", moment.type.tz)).cast(pa.int64()), 1000)
            found.append((TIMER_DELIVER_MS, millis))
        if self._traceparent is not None:
            found.append((_TRACEPARENT, self._traceparents(self._traceparent)))
        return [(name, _as_text(name, values)) for name, values in found if values is not None]

    def _traceparents(self, ours: str) -> pa.StringArray:
        texts = pa.repeat(pa.scalar(ours), self.count)
        if (maps := self._maps()) is None:
            return texts
        own = pc.map_lookup(maps, pa.scalar(_TRACEPARENT, maps.type.key_type), "first")
        return pc.if_else(pc.is_null(own), texts, pa.scalar(None, pa.string()))

    def _maps(self) -> pa.MapArray | None:
        return self.column("properties") if self._with_properties else None

    def _left_out(self) -> frozenset[str]:
        """Names in maps that are ignored: a message has columns for them, or a broker set them earlier."""
        columns = self._batch.schema.names
        has_keys = "key" in columns or "keys" in columns
        kept = {name for name, is_given in ((KEYS, has_keys), (TAGS, "tags" in columns)) if not is_given}
        return _NOT_FROM_MAPS - kept

    @cached_property
    def properties(self) -> pa.BinaryArray:
        """`name U+0001 value U+0002`, repeated, for each message."""
        parts: list[pa.Array | pa.Scalar] = [
            _pairs(name, values) for name, values in self._columns_of_properties()
        ]
        if (maps := self._maps()) is not None:
            parts.append(_mapped(maps, self._left_out()))
        parts += [_BEFORE_ID, self._ids.texts(self._first_id, self.count), _AFTER_ID]
        return pc.binary_join_element_wise(*parts, _NOTHING).cast(pa.binary())

    def entries(self) -> pa.BinaryArray:
        """Each message as an entry of a batch."""
        if self._compiled is not None:
            return self._compiled
        bodies = pc.binary_length(self.bodies).to_numpy()
        properties = pc.binary_length(self.properties).to_numpy()
        heads = np.zeros((self.count, 5), ">i4")
        heads[:, 0] = MIN_ENTRY_SIZE + bodies + properties
        heads[:, 4] = bodies
        lengths = properties.astype(">i2")
        return pc.binary_join_element_wise(
            _fixed(heads.tobytes(), 20, self.count),
            self.bodies,
            _fixed(lengths.tobytes(), 2, self.count),
            self.properties,
            _NO_BYTES,
        )

    def _compiled_entries(self) -> pa.BinaryArray | None:
        """The same by the compiled twin; None where it is missing or declines."""
        if _native is None:
            return None
        texts = [(name.encode(), _parts(values)) for name, values in self._columns_of_properties()]
        pairs: Any = None
        left_out: tuple[bytes, ...] = ()
        if (maps := self._maps()) is not None:
            bits, edges, *_ = maps.buffers()
            names, values = maps.keys.cast(pa.string()), maps.items.cast(pa.string())
            pairs = ((bits, maps.offset, edges, None), _parts(names), _parts(values))
            left_out = tuple(name.encode() for name in sorted(self._left_out()))
        made = _native.entries(
            pa.allocate_buffer,
            self.count,
            _parts(self.bodies),
            tuple(texts),
            pairs,
            left_out,
            self._ids.prefix,
            self._first_id,
        )
        return made and pa.Array.from_buffers(pa.binary(), self.count, [None, *made])

    def delayed(self) -> NDArray[np.bool_]:
        """Which messages have to travel alone: those that wait for their time."""
        column = self.column("delayLevel")
        if column is None:
            column = self.column("deliverTimestamp")
        if column is None:
            return np.zeros(self.count, np.bool_)
        mask: NDArray[np.bool_] = np.asarray(pc.is_valid(column))
        return mask


def _without_nulls(lists: pa.ListArray) -> pa.ListArray:
    """Arrow joins a list that has a null to null."""
    if not lists.values.null_count:
        return lists
    kept = [
        None if each is None else [text for text in each if text is not None] for each in lists.to_pylist()
    ]
    return pa.array(kept, lists.type)


def _as_text(name: str, values: pa.Array) -> pa.StringArray:
    try:
        return values.cast(pa.string())
    except pa.ArrowInvalid as problem:
        raise BadMessage(f"{name} is not text in UTF-8: {problem}") from None


def _parts(texts: pa.Array) -> tuple[Any, int, Any, Any]:
    """An array's memory, as the compiled twin wants it."""
    bits, edges, data = texts.buffers()
    return bits, texts.offset, edges, data


def _pairs(name: str, values: pa.StringArray) -> pa.Array:
    """One property of each message; nothing where the value is null or empty."""
    _refuse_separators(values, name)
    is_given = pc.greater(pc.fill_null(pc.binary_length(values), _ZERO), _ZERO)
    written = pc.binary_join_element_wise(
        pa.scalar(f"{name}\x01"), pc.fill_null(values, _NOTHING), _AFTER_VALUE, _NOTHING
    )
    return pc.if_else(is_given, written, _NOTHING)


def _mapped(maps: pa.MapArray, without: frozenset[str]) -> pa.Array:
    """The properties in a map column, without those that a broker set earlier."""
    if maps.offset or maps.null_count:
        maps = pa.array(maps.to_pylist(), maps.type)
    edges = maps.offsets.to_numpy().astype(np.int64)
    names, values = maps.keys[edges[0] : edges[-1]], maps.items[edges[0] : edges[-1]]
    _refuse_separators(names, "a name")
    _refuse_separators(values, "a value")
    is_kept = pc.and_(
        pc.invert(pc.is_in(names, value_set=pa.array(sorted(without)))),
        pc.greater(pc.fill_null(pc.binary_length(values), _ZERO), _ZERO),
    )
    is_kept = pc.and_(is_kept, pc.greater(pc.binary_length(names), _ZERO))
    pairs = pc.binary_join_element_wise(
        names, _AFTER_NAME, pc.fill_null(values, _NOTHING), _AFTER_VALUE, _NOTHING
    )
    kept = np.concatenate(([0], np.cumsum(np.asarray(is_kept))))
    lists = pa.ListArray.from_arrays(over(kept[edges - edges[0]].astype(np.int32)), pairs.filter(is_kept))
    joined = pc.binary_join(lists, "")
    return pc.if_else(pc.is_valid(maps), joined, _NOTHING)


def _refuse_separators(texts: pa.StringArray, what: str) -> None:
    for separator in ("\x01", "\x02"):
        if pc.any(pc.match_substring(texts, separator)).as_py():
            raise BadMessage(f"property {what} contains {separator!r}, which separates properties")


def _fixed(data: bytes, width: int, count: int) -> pa.BinaryArray:
    edges = np.arange(0, width * (count + 1), width, dtype=np.int32)
    return pa.Array.from_buffers(pa.binary(), count, [None, pa.py_buffer(edges), pa.py_buffer(data)])
