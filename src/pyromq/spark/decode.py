"""Stored records become Arrow columns without a Python object for each message.

Fixed fields are gathered by numpy from unaligned views; bodies and properties are slices of the bytes.
Records with compressed bodies, inner batches or IPv6 hosts are first rewritten as plain ones.
"""

from collections.abc import Callable, Mapping
from functools import cached_property
from struct import Struct
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec.structs import replace
from numpy.typing import NDArray

from pyromq.errors import RemoteProtocolError
from pyromq.protocol.message import open_message
from pyromq.protocol.message_id import encode_offset_message_id
from pyromq.protocol.properties import (
    KEY_SEPARATOR,
    KEYS,
    LITE_TOPIC,
    SHARDING_KEY,
    TAGS,
    TRANSACTION_ID,
    UNIQ_KEY,
    decode_properties,
)
from pyromq.protocol.record import (
    MAGIC_V1,
    MAGIC_V2,
    MIN_RECORD_SIZE,
    NOWHERE,
    Host,
    SysFlag,
    decode_record,
    encode_record,
)

Longs = NDArray[np.int64]
Data = bytes | memoryview

_SIZE = Struct(">i")
TIMESTAMP = pa.timestamp("us", "UTC")
_ODD = SysFlag.COMPRESSED | SysFlag.HOSTS_MASK | SysFlag.NEED_UNWRAP | SysFlag.INNER_BATCH
_SHORT_RUN, _STEPS = 64, 4096
_QUEUE_OFFSET, _SYS_FLAG, _BODY_LENGTH, _BODY = 20, 36, 84, 88


class Block:
    """The records of some offsets, as columns on demand."""

    def __init__(self, data: Data, constants: Mapping[str, Any], start: int, end: int) -> None:
        """`constants`: columns that are the same for all. Records outside `start` to `end` are omitted."""
        self._hosts: dict[int, tuple[Host, Host]] = {}
        self._at: Longs
        self._set(data, record_starts(data))
        if len(self._at):
            sys_flags = self._int32(_SYS_FLAG)
            odd = sys_flags & _ODD != 0
            if odd.any():
                self._open_odd(odd)
            offsets = self._int64(_QUEUE_OFFSET)
            inside = (offsets >= start) & (offsets < end)
            if not inside.all():
                self._hosts = {
                    int(new): self._hosts[int(old)]
                    for new, old in enumerate(np.flatnonzero(inside))
                    if int(old) in self._hosts
                }
                self._at = self._at[inside]
        self._constants = constants
        self.count = len(self._at)
        self._measure()

    def __repr__(self) -> str:
        return f"<Block records={self.count} bytes={len(self._data)}>"

    def _set(self, data: Data, starts: Longs) -> None:
        self._data = data
        self._at = starts
        size = max(len(data), 8)
        padded = data if len(data) >= 8 else bytes(data).ljust(8, b"\0")
        # One view for each width: element i is the number at byte i, aligned or not.
        self._bytes = np.frombuffer(padded, np.uint8)
        self._shorts = np.ndarray((size - 1,), ">i2", padded, strides=(1,))
        self._ints = np.ndarray((size - 3,), ">i4", padded, strides=(1,))
        self._longs = np.ndarray((size - 7,), ">i8", padded, strides=(1,))

    def _int32(self, position: int) -> NDArray[np.int32]:
        gathered: NDArray[np.int32] = self._ints[self._at + position].astype(np.int32)
        return gathered

    def _int64(self, position: int) -> Longs:
        gathered: Longs = self._longs[self._at + position].astype(np.int64)
        return gathered

    def _open_odd(self, odd: NDArray[np.bool_]) -> None:
        """Rewrite the records that are not plain; the others are copied as they are."""
        parts: list[Data] = []
        count = copied_to = 0
        ends = np.append(self._at[1:], len(self._data))
        for index in np.flatnonzero(odd):
            begin, end = int(self._at[index]), int(ends[index])
            between = int(np.searchsorted(self._at, begin)) - int(np.searchsorted(self._at, copied_to))
            parts.append(self._data[copied_to:begin])
            count += between
            copied_to = end
            for message in open_message(decode_record(self._data, begin, check_crc=False)):
                if message.sys_flag & SysFlag.HOSTS_MASK:
                    self._hosts[count] = (message.born_host, message.store_host)
                    message = replace(message, born_host=NOWHERE, store_host=NOWHERE)
                parts.append(encode_record(message))
                count += 1
        parts.append(self._data[copied_to:])
        data = b"".join(parts)
        self._set(data, record_starts(data))

    def _measure(self) -> None:
        """Find bodies and properties, and check them against the sizes of the records."""
        at = self._at
        body_length = self._int32(_BODY_LENGTH).astype(np.int64)
        size = self._int32(0)
        if ((body_length < 0) | (body_length > size - MIN_RECORD_SIZE)).any():
            raise RemoteProtocolError("a record's body is larger than the record")
        self._body_at = at + _BODY
        self._body_end = self._body_at + body_length
        is_v2 = self._int32(4) == MAGIC_V2
        topic_length = self._bytes[self._body_end].astype(np.int64)
        if is_v2.any():
            topic_length = np.where(is_v2, self._shorts[self._body_end].astype(np.int64) + 1, topic_length)
        properties_length_at = self._body_end + 1 + topic_length
        if (properties_length_at + 2 > at + size).any():
            raise RemoteProtocolError("a record's topic is larger than the record")
        self._properties_at = properties_length_at + 2
        self._properties_end = self._properties_at + self._shorts[properties_length_at]
        if (self._properties_end != at + size).any():
            raise RemoteProtocolError("the parts of a record do not add up to its size")

    def _slices(self, starts: Longs, ends: Longs) -> pa.BinaryArray:
        """The bytes between starts and ends: an array over the data with every second element left out."""
        count = len(starts)
        if not count:
            return pa.array([], pa.binary())
        edges = np.empty(2 * count, np.int32)
        edges[0::2], edges[1::2] = starts, ends
        return take_every(self._data, edges, 0, 2, pa.binary())

    # Columns

    def column(self, name: str) -> pa.Array:
        if name in self._constants:
            return pa.repeat(self._constants[name], self.count)
        return _COLUMNS[name](self)

    @cached_property
    def offsets(self) -> Longs:
        return self._int64(_QUEUE_OFFSET)

    def bodies(self) -> pa.BinaryArray:
        return self._slices(self._body_at, self._body_end)

    def numbers(self, position: int, width: int) -> pa.Array:
        return over(self._int32(position)) if width == 4 else over(self._int64(position))

    def times(self, position: int) -> pa.Array:
        """Milliseconds since the epoch, as Spark wants them."""
        return over(self._int64(position) * 1000, TIMESTAMP)

    def host_texts(self, position: int, which: int) -> pa.Array:
        ips = self._bytes[self._at[:, None] + (position + np.arange(4))]
        ports = self._int32(position + 4)
        texts = [
            f"{a}.{b}.{c}.{d}:{port}" for (a, b, c, d), port in zip(ips.tolist(), ports.tolist(), strict=True)
        ]
        for index, hosts in self._hosts.items():
            texts[index] = str(hosts[which])
        return pa.array(texts, pa.string())

    @cached_property
    def properties(self) -> "Pairs":
        return Pairs(self._slices(self._properties_at, self._properties_end))

    def message_ids(self) -> pa.StringArray:
        """The producer's id, or the place in the log for messages without one."""
        ids = self.properties.values_of(UNIQ_KEY)
        if not ids.null_count:
            return ids
        texts = ids.to_pylist()
        for index, text in enumerate(texts):
            if text is None:
                texts[index] = encode_offset_message_id(self._store_host(index), self._log_offset(index))
        return pa.array(texts, pa.string())

    def _store_host(self, index: int) -> Host:
        if index in self._hosts:
            return self._hosts[index][1]
        at = int(self._at[index]) + 64
        return Host(bytes(self._data[at : at + 4]), int(self._ints[at + 4]))

    def _log_offset(self, index: int) -> int:
        return int(self._longs[self._at[index] + 28])


_COLUMNS: dict[str, Callable[[Block], pa.Array]] = {
    "value": Block.bodies,
    "body": Block.bodies,
    "offset": lambda block: over(block.offsets),
    "timestamp": lambda block: block.times(56),
    "bornTimestamp": lambda block: block.times(40),
    "reconsumeTimes": lambda block: block.numbers(72, 4),
    "flag": lambda block: block.numbers(16, 4),
    "sysFlag": lambda block: block.numbers(_SYS_FLAG, 4),
    "bodyCrc": lambda block: block.numbers(8, 4),
    "logOffset": lambda block: block.numbers(28, 8),
    "bornHost": lambda block: block.host_texts(48, 0),
    "storeHost": lambda block: block.host_texts(64, 1),
    "key": lambda block: block.properties.values_of(KEYS),
    "keys": lambda block: split_keys(block.properties.values_of(KEYS)),
    "tags": lambda block: block.properties.values_of(TAGS),
    "shardingKey": lambda block: block.properties.values_of(SHARDING_KEY),
    "transactionId": lambda block: block.properties.values_of(TRANSACTION_ID),
    "liteTopic": lambda block: block.properties.values_of(LITE_TOPIC),
    "msgId": Block.message_ids,
    "properties": lambda block: block.properties.as_map(),
}


class Pairs:
    """The properties of many messages, split into names and values all at once."""

    def __init__(self, texts: pa.BinaryArray) -> None:
        self._count = len(texts)
        if not self._split(texts):
            self._read_one_by_one(texts)

    def __repr__(self) -> str:
        return f"<Pairs messages={self._count} pairs={len(self._names)}>"

    def _split(self, texts: pa.BinaryArray) -> bool:
        """Whether every message has nothing but whole pairs with different names, in UTF-8."""
        edges, data = _contiguous(texts)
        lengths = np.diff(edges)
        if len(data):
            closed = data[np.maximum(edges[1:] - 1, 0)] == 2
            if not (closed | (lengths == 0)).all():
                endings = np.where(closed | (lengths == 0), "", "\x02").tolist()
                joined = pc.binary_join_element_wise(texts, pa.array(endings).cast(pa.binary()), b"")
                edges, data = _contiguous(joined)
        pair_ends = np.flatnonzero(data == 2)
        name_ends = np.flatnonzero(data == 1)
        pairs = len(pair_ends)
        if len(name_ends) != pairs:
            return False
        pair_starts = np.empty(pairs, np.int64)
        pair_starts[:1], pair_starts[1:] = 0, pair_ends[:-1] + 1
        if (name_ends <= pair_starts).any() or (name_ends + 1 >= pair_ends).any():
            return False
        raw = data.tobytes()
        if not raw.isascii():
            try:
                raw.decode()
            except UnicodeDecodeError:
                return False
        bounds = np.empty(4 * pairs, np.int32)
        bounds[0::4], bounds[1::4], bounds[2::4], bounds[3::4] = (
            pair_starts,
            name_ends,
            name_ends + 1,
            pair_ends,
        )
        self._set(
            np.searchsorted(pair_ends, edges),
            take_every(raw, bounds, 0, 4, pa.string()),
            take_every(raw, bounds, 2, 4, pa.string()),
        )
        return not self._has_doubles()

    def _read_one_by_one(self, texts: pa.BinaryArray) -> None:
        """The slow way, for broken pairs, equal names and bytes that are not UTF-8."""
        maps = [decode_properties(text) for text in texts.to_pylist()]
        edges = np.cumsum([0, *map(len, maps)])
        names = [name for pairs in maps for name in pairs]
        values = [value for pairs in maps for value in pairs.values()]
        self._set(edges, pa.array(names, pa.string()), pa.array(values, pa.string()))

    def _set(self, edges: Longs, names: pa.StringArray, values: pa.StringArray) -> None:
        self._edges = edges.astype(np.int32)
        self._names, self._values = names, values
        encoded = names.dictionary_encode()
        self._known: dict[str, int] = {name: code for code, name in enumerate(encoded.dictionary.to_pylist())}
        self._codes: Longs = encoded.indices.to_numpy().astype(np.int64)
        self._rows = np.repeat(np.arange(self._count), np.diff(self._edges))

    def _has_doubles(self) -> bool:
        if not len(self._codes):
            return False
        spots = self._rows * len(self._known) + self._codes
        if self._count * len(self._known) <= 64 * len(self._codes):
            return bool(np.bincount(spots).max() > 1)
        return len(np.unique(spots)) < len(spots)

    def values_of(self, name: str) -> pa.StringArray:
        """One property of each message, null where it has none."""
        code = self._known.get(name)
        if code is None:
            return pa.nulls(self._count, pa.string())
        found = np.flatnonzero(self._codes == code)
        if len(found) == self._count:
            return self._values.take(over(found))
        places = np.full(self._count, -1)
        places[self._rows[found]] = found
        return self._values.take(pa.array(places, mask=places < 0))

    def as_map(self) -> pa.MapArray:
        return pa.MapArray.from_arrays(over(self._edges), self._names, self._values)


def record_starts(data: Data) -> Longs:
    """Where each record begins."""
    total = len(data)
    if not total:
        return np.empty(0, np.int64)
    if total < MIN_RECORD_SIZE:
        raise RemoteProtocolError(f"{total} bytes are too few for a record")
    ints = np.ndarray((total - 3,), ">i4", data, strides=(1,))
    starts = _walk(data, ints, total)
    magics = ints[starts + 4].astype(np.int32)
    if not ((magics == MAGIC_V1) | (magics == MAGIC_V2)).all():
        raise RemoteProtocolError("an answer holds something that is not a record")
    return starts


def _walk(data: Data, ints: NDArray[Any], total: int) -> Longs:
    """From record to record; many of the same size in one stride."""
    runs: list[Longs] = []
    position, last = 0, total - MIN_RECORD_SIZE
    while position <= last:
        size: int = _SIZE.unpack_from(data, position)[0]
        if size < MIN_RECORD_SIZE:
            raise RemoteProtocolError(f"a record of {size} bytes")
        stride = np.arange(position, last + 1, size)
        differs = np.flatnonzero(ints[stride] != size)
        run = stride[: differs[0]] if len(differs) else stride
        runs.append(run)
        position = int(run[-1]) + size
        if len(run) < _SHORT_RUN:
            steps, position = _step(data, position, last)
            runs.append(steps)
    if position != total:
        raise RemoteProtocolError("the last record of an answer is cut off")
    return np.concatenate(runs)


def _step(data: Data, position: int, last: int) -> tuple[Longs, int]:
    """One record at a time, for a while: sizes vary here, and looking for runs would be in vain."""
    starts: list[int] = []
    size_at = _SIZE.unpack_from
    while position <= last and len(starts) < _STEPS:
        size: int = size_at(data, position)[0]
        if size < MIN_RECORD_SIZE:
            raise RemoteProtocolError(f"a record of {size} bytes")
        starts.append(position)
        position += size
    return np.array(starts, np.int64), position


def take_every(data: Data, edges: NDArray[np.int32], first: int, step: int, type_: pa.DataType) -> pa.Array:
    """Every `step`-th of the elements between neighbouring edges, copied out of `data`."""
    if not len(edges):
        return pa.array([], type_)
    whole = pa.Array.from_buffers(type_, len(edges) - 1, [None, pa.py_buffer(edges), pa.py_buffer(data)])
    return whole.take(over(np.arange(first, len(edges) - 1, step)))


def over(numbers: NDArray[Any], type_: pa.DataType | None = None) -> pa.Array:
    """An array over the memory of numbers. `pa.array` would look for pandas each time, and in vain."""
    if type_ is None:
        type_ = pa.int32() if numbers.dtype == np.int32 else pa.int64()
    return pa.Array.from_buffers(type_, len(numbers), [None, pa.py_buffer(numbers)])


def split_keys(joined: pa.StringArray) -> pa.ListArray:
    return pc.split_pattern(joined, KEY_SEPARATOR)


def _contiguous(texts: pa.BinaryArray) -> tuple[Longs, NDArray[np.uint8]]:
    """The edges of an array's elements, and the bytes they cut."""
    count = len(texts)
    _, edge_buffer, data_buffer = texts.buffers()
    if not count or data_buffer is None:
        return np.zeros(count + 1, np.int64), np.empty(0, np.uint8)
    edges = np.frombuffer(edge_buffer, np.int32)[texts.offset : texts.offset + count + 1].astype(np.int64)
    data = np.frombuffer(data_buffer, np.uint8)[edges[0] : edges[-1]]
    return edges - edges[0], data
