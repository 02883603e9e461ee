"""The columns of a chunk of records, and no others: plain records by the compiled scan, the rest by `Block`.

Both ways give the same arrays; the compiled one declines what it does not know.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import pyarrow as pa

from pyromq.compiled import twin
from pyromq.protocol.properties import KEYS, LITE_TOPIC, SHARDING_KEY, TAGS, TRANSACTION_ID, UNIQ_KEY
from pyromq.spark.decode import TIMESTAMP, Block, split_keys

_native = twin("spark.fast_columns")

_INT32S = {"reconsumeTimes": 72, "flag": 16, "sysFlag": 36, "bodyCrc": 8}
_INT64S = {"offset": 20, "logOffset": 28}
_TIMES = {"timestamp": 56, "bornTimestamp": 40}
_TEXTS = {
    "key": KEYS,
    "keys": KEYS,
    "tags": TAGS,
    "shardingKey": SHARDING_KEY,
    "transactionId": TRANSACTION_ID,
    "liteTopic": LITE_TOPIC,
    "msgId": UNIQ_KEY,
}
_MICROSECONDS = 1000


class Columns(NamedTuple):
    rows: int
    arrays: dict[str, pa.Array]


def read_columns(
    bodies: Sequence[memoryview], names: Sequence[str], constants: Mapping[str, Any], start: int, end: int
) -> Columns:
    """`names` of the records from `start` to `end`; `constants` are the same for all of them."""
    scan = _native.scan(list(bodies), start, end) if _native is not None else None
    if scan is None:
        # A large answer is a chunk by itself and is not copied.
        block = Block(bodies[0] if len(bodies) == 1 else b"".join(bodies), constants, start, end)
        return Columns(block.count, {name: block.column(name) for name in names})
    count: int = scan.count
    arrays: dict[str, pa.Array] = {}
    for name in names:
        if name in constants:
            arrays[name] = pa.repeat(constants[name], count)
        elif name in ("value", "body"):
            edges, data = scan.bodies(pa.allocate_buffer)
            arrays[name] = pa.Array.from_buffers(pa.binary(), count, [None, edges, data])
        elif name in _INT32S:
            arrays[name] = _over(pa.int32(), count, scan.int32s(pa.allocate_buffer, _INT32S[name]))
        elif name in _INT64S:
            arrays[name] = _over(pa.int64(), count, scan.int64s(pa.allocate_buffer, _INT64S[name], 1))
        elif name in _TIMES:
            times = scan.int64s(pa.allocate_buffer, _TIMES[name], _MICROSECONDS)
            arrays[name] = _over(TIMESTAMP, count, times)
    arrays |= _from_properties(scan, [name for name in names if name in _TEXTS or name == "properties"])
    if missing := [name for name in names if name not in arrays]:
        block = Block(b"".join(bodies), constants, start, end)
        arrays |= {name: block.column(name) for name in missing}
    return Columns(count, arrays)


def _from_properties(scan: Any, names: Sequence[str]) -> dict[str, pa.Array]:
    """Those of the columns that the scan can read."""
    wanted = tuple({_TEXTS[name] for name in names if name != "properties"})
    read = (
        scan.properties(pa.allocate_buffer, tuple(name.encode() for name in wanted), "properties" in names)
        if names
        else None
    )
    if read is None:
        return {}
    texts = {
        name: pa.Array.from_buffers(pa.string(), scan.count, [bits if absent else None, edges, data], absent)
        for name, (bits, absent, edges, data) in zip(wanted, read[0], strict=True)
    }
    arrays: dict[str, pa.Array] = {}
    for name in names:
        if name == "properties":
            pairs, map_edges, name_edges, names_data, value_edges, values_data = read[1]
            arrays[name] = pa.MapArray.from_arrays(
                _over(pa.int32(), scan.count + 1, map_edges),
                pa.Array.from_buffers(pa.string(), pairs, [None, name_edges, names_data]),
                pa.Array.from_buffers(pa.string(), pairs, [None, value_edges, values_data]),
            )
        elif name == "keys":
            arrays[name] = split_keys(texts[KEYS])
        elif name != "msgId" or not texts[UNIQ_KEY].null_count:
            # Messages without an id are called after their place, which only `Block` knows.
            arrays[name] = texts[_TEXTS[name]]
    return arrays


def _over(type_: pa.DataType, count: int, buffer: pa.Buffer) -> pa.Array:
    return pa.Array.from_buffers(type_, count, [None, buffer])
