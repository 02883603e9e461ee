"""The compiled ways between records and Arrow give what the interpreted ones give, byte for byte."""

import sys
from unittest.mock import patch

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.chance import examples
from tests.support.stored_messages import NAMED, TIDY, stored

from pyromq.compiled import WHY, twin
from pyromq.errors import BadMessage, RemoteProtocolError
from pyromq.protocol.batch import decode_batch
from pyromq.protocol.record import StoredMessage, encode_record
from pyromq.spark import columns, encode
from pyromq.spark.encode import Ids, OutgoingMessages
from pyromq.spark.schema import ALL_COLUMNS

_rows = twin("spark.fast_columns")
compiled = pytest.mark.skipif(_rows is None, reason=f"no compiled twins: {WHY}")

CONSTANTS = {"topic": pa.scalar("T"), "brokerName": pa.scalar("b"), "queueId": pa.scalar(3, pa.int32())}
PLAIN = st.builds(
    StoredMessage,
    topic=st.sampled_from(["T", "L" * 127]),
    body=st.binary(max_size=20),
    properties=st.one_of(TIDY, NAMED),
    queue_offset=st.integers(0, 12),
    log_offset=st.integers(0, 2**40),
    store_timestamp=st.integers(0, 2**63 - 1),
    reconsume_times=st.integers(-(2**31), 2**31 - 1),
)
NAMES = st.lists(st.sampled_from(sorted(ALL_COLUMNS)), unique=True)


def read(bodies: list[bytes], names: list[str], start: int, end: int) -> pa.RecordBatch | str:
    """The columns, or the name of what is wrong with the bytes."""
    try:
        found = columns.read_columns([memoryview(body) for body in bodies], names, CONSTANTS, start, end)
    except RemoteProtocolError:
        return "refused"
    for array in found.arrays.values():
        array.validate(full=True)
        assert len(array) == found.rows
    return pa.RecordBatch.from_pydict({name: found.arrays[name] for name in names})


def assert_same(bodies: list[bytes], names: list[str], start: int, end: int) -> None:
    compiled_way = read(bodies, names, start, end)
    with patch.object(columns, "_native", None):
        interpreted = read(bodies, names, start, end)
    assert compiled_way == interpreted
    assert getattr(compiled_way, "schema", None) == getattr(interpreted, "schema", None)


@compiled
@settings(max_examples=examples(150))
@given(
    st.lists(st.lists(st.one_of(PLAIN, PLAIN, PLAIN, stored()), max_size=5), min_size=1, max_size=3),
    NAMES,
    st.integers(0, 8),
    st.integers(0, 16),
)
def test_the_same_columns_from_any_records(
    answers: list[list[StoredMessage]], names: list[str], start: int, end: int
) -> None:
    bodies = [b"".join(encode_record(message) for message in messages) for messages in answers]
    assert_same(bodies, names, start, end)


@compiled
@settings(max_examples=examples(150))
@given(
    st.lists(PLAIN, min_size=1, max_size=3),
    st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 255)), max_size=4),
    st.integers(0, 400),
)
def test_damaged_records_are_refused_or_read_alike(
    messages: list[StoredMessage], damages: list[tuple[int, int]], cut: int
) -> None:
    data = bytearray(b"".join(encode_record(message) for message in messages))
    for at, byte in damages:
        data[at % len(data)] = byte
    whole = bytes(data[: max(len(data) - cut, 0)] if cut < 200 else data)
    assert_same([whole], ["value", "key", "properties", "offset", "msgId"], 0, 2**62)


@compiled
@settings(max_examples=examples(200))
@given(st.lists(st.binary(max_size=40), min_size=1, max_size=4))
def test_properties_of_any_bytes_are_read_alike(texts: list[bytes]) -> None:
    data = b"".join(encode_record(StoredMessage("T", b"x", properties=text)) for text in texts)
    assert_same([data], ["key", "properties", "tags"], 0, 2**62)


@compiled
def test_plain_records_are_not_declined() -> None:
    assert _rows is not None
    record = encode_record(StoredMessage("T", b"x", properties="KEYS\x01größe".encode()))
    scan = _rows.scan([record, record], 0, 1)
    assert scan.count == 2
    assert scan.properties(bytearray, (b"KEYS",), True) is not None
    with pytest.raises(ValueError, match="fixed part"):
        scan.int64s(bytearray, 81, 1)


TEXTS = (
    st.none()
    | st.text(st.characters(codec="utf-8"), max_size=5)
    | st.sampled_from(["", "a\x01", "k" * 20_000])
)
MAP = pa.map_(pa.string(), pa.string())
WRITTEN = {
    "value": (pa.binary(), st.binary(min_size=1, max_size=9) | st.sampled_from([b"", None])),
    "key": (pa.string(), TEXTS),
    "tags": (pa.string(), TEXTS),
    "shardingKey": (pa.string(), TEXTS),
    "delayLevel": (pa.int32(), st.none() | st.integers(1, 18)),
    "keys": (pa.list_(pa.string()), st.none() | st.lists(st.text("ab", max_size=2), max_size=3)),
    "properties": (
        MAP,
        st.none()
        | st.dictionaries(st.sampled_from(["", "KEYS", "TAGS", "UNIQ_KEY", "own", "größe"]), TEXTS).map(
            lambda pairs: list(pairs.items())
        ),
    ),
}


@st.composite
def written(draw: st.DrawFn) -> pa.RecordBatch:
    """A batch to write, perhaps a slice of a larger one. Most can be sent, some cannot."""
    optional = draw(st.lists(st.sampled_from(sorted(WRITTEN.keys() - {"value"})), unique=True))
    rows = draw(st.integers(1, 5))
    arrays = {}
    for name in ["value", *optional]:
        type_, cells = WRITTEN[name]
        arrays[name] = pa.array(draw(st.lists(cells, min_size=rows, max_size=rows)), type_)
    first = draw(st.integers(0, rows - 1))
    return pa.RecordBatch.from_pydict(arrays).slice(first)


def entries_of(batch: pa.RecordBatch, task: str, *, with_properties: bool) -> list[list[bytes]] | str:
    ids = Ids(task)
    try:
        made = [OutgoingMessages(batch, ids, with_properties=with_properties).entries() for _ in range(2)]
    except BadMessage as problem:
        return str(problem)
    return [entries.to_pylist() for entries in made]


@compiled
@settings(max_examples=examples(200))
@given(written(), st.booleans())
def test_the_same_entries_from_any_rows(batch: pa.RecordBatch, with_properties: bool) -> None:
    compiled_way = entries_of(batch, "q:1:0", with_properties=with_properties)
    with patch.object(encode, "_native", None):
        interpreted = entries_of(batch, "q:1:0", with_properties=with_properties)
    assert compiled_way == interpreted


@compiled
@settings(max_examples=examples(150))
@given(st.lists(st.integers(-3, 40), min_size=4, max_size=4), st.integers(-2, 3), st.integers(1, 5))
def test_columns_with_senseless_edges_are_declined(edges: list[int], offset: int, count: int) -> None:
    native = twin("spark.fast_encode")
    assert native is not None
    memory = b"".join(edge.to_bytes(4, sys.byteorder, signed=True) for edge in edges)
    column = (b"\x05", offset, memory, b"x" * 20)
    whole = (None, 0, b"".join(n.to_bytes(4, sys.byteorder) for n in range(0, 24, 4)), b"y" * 20)
    for arguments in ((column, (), None), (whole, ((b"KEYS", column),), None), (whole, (), (column,) * 3)):
        made = native.entries(bytearray, count, *arguments, (), b"P" * 20, 0)
        assert made is None or len(decode_batch(bytes(made[1][: _last(made[0])]))) == count


def _last(edges: bytearray) -> int:
    return int.from_bytes(edges[-4:], sys.byteorder)
