"""Many documents at once, by Arrow; those that it might read otherwise than Spark are named as doubtful.

Arrow fails if it cannot read one of them. Often it says which; otherwise they are read a few at a time, and
the few among which that one is are doubtful. Where that happens all the time, everything is.
"""

import re
from decimal import Decimal
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json
from numpy.typing import NDArray

from pyromq.spark.from_json.times import MICROS, Zone

Flags = NDArray[np.bool_]
Rows = NDArray[np.int64]

_ROW = re.compile(r" in row ([0-9]+)")
_FEW = 512
_ATTEMPTS = 4
_VAIN = 4
# Beyond 2037 Arrow knows no summer time.
_DAY = "(?:19[7-9][0-9]|20[0-2][0-9]|203[0-6])-(?:0[1-9]|1[0-2])-(?:0[1-9]|[12][0-9]|3[01])"
_TIME = f"^{_DAY}[T ](?:[01][0-9]|2[0-3])(?::[0-5][0-9]){{2}}(?:[.][0-9]{{1,6}})?"
_LOCAL = f"{_TIME}$"
_ZONED = f"{_TIME}(?:Z|[+-](?:0[0-9]|1[0-7]):[0-5][0-9])$"
_SURE_DAY = f"^{_DAY}$"
_WIDE_DECIMAL = pa.decimal256(76, 38)
_UTC = pa.timestamp("us", "UTC")
_STEP = 256
_IN_NUMBERS: Flags = np.isin(np.arange(256), np.frombuffer(b"0123456789.eE+-", np.uint8))


class Quick(NamedTuple):
    rows: pa.StructArray
    doubtful: Flags
    """Rows that must be read another way."""


class QuickReader:
    def __init__(self, type_: pa.StructType, zone: Zone) -> None:
        """Reads nothing of types that Arrow does not read as Spark does."""
        self._type = type_
        self._zone = zone
        wire = _wire_type(type_)
        is_plain = wire is not None and 0 < len({field.name for field in type_}) == len(type_)
        self._schema = pa.schema(list(wire)) if wire is not None and is_plain else None

    def read(self, bodies: pa.BinaryArray) -> Quick | None:
        """None if everything is doubtful."""
        if self._schema is None or not len(bodies):
            return None
        doubtful = ~_are_objects(bodies)
        if (rows := self._rows(bodies, doubtful)) is not None:
            return Quick(rows, doubtful)
        pieces: list[pa.StructArray] = []
        failures = 0
        for start in range(0, len(bodies), _FEW):
            few, doubts = bodies.slice(start, _FEW), doubtful[start : start + _FEW]
            if (rows := self._rows(few, doubts)) is None:
                rows = pa.nulls(len(few), self._type)
                doubts[:] = True
                failures += 1
                if failures > max(len(pieces) // 2, _VAIN):
                    return None
            pieces.append(rows)
        return Quick(pa.concat_arrays(pieces), doubtful)

    def _rows(self, bodies: pa.BinaryArray, doubtful: Flags) -> pa.StructArray | None:
        """None if Arrow cannot read them. Those that are doubtful are not looked at."""
        for _ in range(_ATTEMPTS):
            try:
                return self._attempt(bodies, doubtful)
            except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as problem:
                if (match := _ROW.search(str(problem))) is None or int(match[1]) >= len(bodies):
                    return None
                doubtful[int(match[1])] = True
        return None

    def _attempt(self, bodies: pa.BinaryArray, doubtful: Flags) -> pa.StructArray | None:
        if doubtful.any():
            bodies = pc.if_else(pa.array(doubtful), pa.scalar(b"{}"), bodies)
        lines = pc.binary_join_element_wise(bodies, pa.scalar(b"\n"), pa.scalar(b""))
        lines.cast(pa.string())  # what is not UTF-8 would go unnoticed until Spark meets it
        table = pyarrow.json.read_json(
            pa.BufferReader(lines.buffers()[2]),
            read_options=pyarrow.json.ReadOptions(use_threads=False, block_size=max(lines.nbytes, 1024)),
            parse_options=pyarrow.json.ParseOptions(
                explicit_schema=self._schema, unexpected_field_behavior="ignore"
            ),
        )
        if table.num_rows != len(bodies):
            return None
        rows, found = np.arange(len(bodies)), np.zeros(len(bodies), np.bool_)
        columns = [
            self._finished(_whole(table.column(field.name)), field.type, rows, found) for field in self._type
        ]
        doubtful |= found
        return pa.StructArray.from_arrays(columns, fields=list(self._type))

    # From what Arrow read to what Spark wants

    def _finished(self, array: pa.Array, type_: pa.DataType, rows: Rows, doubtful: Flags) -> pa.Array:
        """`rows` says to which document each value belongs."""
        types = pa.types
        if types.is_struct(type_):
            children = [
                self._finished(array.field(index), field.type, rows, doubtful)
                for index, field in enumerate(type_)
            ]
            return pa.StructArray.from_arrays(children, fields=list(type_), mask=array.is_null())
        if types.is_list(type_):
            counts = array.value_lengths().fill_null(0).to_numpy()
            items = self._finished(array.values, type_.value_type, np.repeat(rows, counts), doubtful)
            return pa.ListArray.from_arrays(array.offsets, items, type=type_, mask=array.is_null())
        if types.is_floating(type_):
            numbers = array.to_numpy(zero_copy_only=False)
            # -0 is whole and becomes 0; what is too large depends on how it is written.
            doubtful[rows[(numbers == 0) & np.signbit(numbers) | np.isinf(numbers)]] = True
            return array
        if types.is_decimal(type_):
            return self._decimals(array, type_, rows, doubtful)
        if types.is_date(type_):
            return _sure(array, _SURE_DAY, rows, doubtful).cast(type_)
        if types.is_timestamp(type_):
            return self._times(array, type_, rows, doubtful)
        return array

    def _decimals(self, array: pa.Array, type_: pa.DataType, rows: Rows, doubtful: Flags) -> pa.Array:
        rounded = pc.round(array, type_.scale, "half_towards_infinity")
        limit = pa.scalar(Decimal(10) ** (type_.precision - type_.scale), _WIDE_DECIMAL)
        small = pc.less(pc.abs(rounded), limit)
        if small.false_count:
            doubtful[rows[pc.invert(small).fill_null(False).to_numpy(zero_copy_only=False)]] = True
            rounded = pc.if_else(small, rounded, None)
        return rounded.cast(type_)

    def _times(self, texts: pa.Array, type_: pa.DataType, rows: Rows, doubtful: Flags) -> pa.Array:
        local = pc.match_substring_regex(texts, _LOCAL)
        if type_.tz is None:
            return _sure(texts, _LOCAL, rows, doubtful).cast(type_)
        if local.true_count == len(local):
            return self._in_zone(texts, rows, doubtful)
        zoned_texts = pc.if_else(local, None, texts)
        zoned = _sure(zoned_texts, _ZONED, rows, doubtful).cast(_UTC)
        if not local.true_count:
            return zoned
        return pc.coalesce(zoned, self._in_zone(pc.if_else(local, texts, None), rows, doubtful))

    def _in_zone(self, texts: pa.Array, rows: Rows, doubtful: Flags) -> pa.Array:
        times = texts.cast(pa.timestamp("us"))
        if isinstance(self._zone, int):
            moved = (
                pc.subtract(times, pa.scalar(self._zone * MICROS, pa.duration("us"))) if self._zone else times
            )
            return moved.cast(pa.int64()).cast(_UTC)
        found = pc.assume_timezone(times, self._zone.key, ambiguous="earliest", nonexistent="earliest")
        missing = pc.not_equal(pc.local_timestamp(found), times).fill_null(False)
        # Clocks that are put forward never show some times.
        doubtful[rows[missing.to_numpy(zero_copy_only=False)]] = True
        return found.cast(_UTC)


def _sure(texts: pa.Array, pattern: str, rows: Rows, doubtful: Flags) -> pa.Array:
    sure = pc.match_substring_regex(texts, pattern)
    if sure.false_count:
        doubtful[rows[pc.invert(sure).fill_null(False).to_numpy(zero_copy_only=False)]] = True
        texts = pc.if_else(sure, texts, None)
    return texts


def _whole(column: pa.ChunkedArray) -> pa.Array:
    whole = column.combine_chunks()
    return whole if isinstance(whole, pa.Array) else whole.chunk(0)


def _are_objects(bodies: pa.BinaryArray) -> Flags:
    """Whether each body has the edges of an object: joined, none can then be taken for part of another.

    Bodies with numbers that are too long are omitted, too.
    """
    _, edge_buffer, data = bodies.buffers()
    edges = np.frombuffer(edge_buffer, np.int32)[bodies.offset : bodies.offset + len(bodies) + 1]
    are: Flags = edges[1:] > edges[:-1]
    if data is None or not are.any():
        return are & False
    content = np.frombuffer(data, np.uint8)
    last = len(content) - 1
    are &= content[np.minimum(edges[:-1], last)] == ord("{")
    are &= content[np.maximum(edges[1:] - 1, 0)] == ord("}")
    # A number of more than a thousand digits, none for Spark, lies on three of these places at least.
    at = np.arange(edges[0], edges[-1], _STEP)
    is_number = _IN_NUMBERS[content[at]]
    long_at = at[np.flatnonzero(is_number[:-2] & is_number[1:-1] & is_number[2:])]
    are[np.searchsorted(edges, long_at, "right") - 1] = False
    return are


def _wire_type(type_: pa.DataType) -> pa.DataType | None:
    """The type that Arrow is to look for in the text; None if it does not read it as Spark does."""
    if pa.types.is_struct(type_):
        inner = [_wire_type(field.type) for field in type_]
        if None in inner:
            return None
        return pa.struct([field.with_type(wire) for field, wire in zip(type_, inner, strict=True)])
    if pa.types.is_list(type_):
        item = _wire_type(type_.value_type)
        return None if item is None else pa.list_(item)
    if pa.types.is_timestamp(type_) or pa.types.is_date(type_):
        return pa.string()
    if pa.types.is_decimal(type_):
        return _WIDE_DECIMAL
    return None if pa.types.is_map(type_) or pa.types.is_binary(type_) else type_
