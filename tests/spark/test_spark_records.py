"""The vectorised codecs against the plain ones: the same messages, whatever they look like."""

import json
from contextlib import suppress

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.chance import examples
from tests.support.stored_messages import V6, WORDS, stored

from pyromq.errors import BadMessage, ConfigError, RemoteProtocolError
from pyromq.protocol.batch import BatchEntry, decode_batch, encode_batch
from pyromq.protocol.java_hash import java_string_hash
from pyromq.protocol.message import open_message, shown_message_id
from pyromq.protocol.properties import RESERVED_NAMES, decode_properties
from pyromq.protocol.queue_runs import unpack
from pyromq.protocol.record import StoredMessage, SysFlag, decode_records, encode_record
from pyromq.spark.decode import Block
from pyromq.spark.destinations import shards
from pyromq.spark.encode import Ids, OutgoingMessages, check_columns
from pyromq.spark.offsets import Seen, ends_of, make_offset, seen_of, spans_between
from pyromq.spark.progress import share_out
from pyromq.spark.queues import Queue, Span, flatten, nest, parse_numbers, split_spans


@settings(max_examples=examples(200))
@given(st.lists(stored(), max_size=8))
def test_columns_hold_what_the_records_say(messages: list[StoredMessage]) -> None:
    data = b"".join(encode_record(message) for message in messages)
    block = Block(data, {"topic": pa.scalar("T")}, 0, 2**62)
    expected = [opened for message in decode_records(data) for opened in open_message(message)]
    assert block.count == len(expected)

    def column(name: str) -> list[object]:
        values: list[object] = block.column(name).to_pylist()
        return values

    assert column("value") == [m.body for m in expected]
    assert column("offset") == [m.queue_offset for m in expected]
    assert column("logOffset") == [m.log_offset for m in expected]
    assert column("flag") == [m.flag for m in expected]
    assert column("reconsumeTimes") == [m.reconsume_times for m in expected]
    assert column("bornHost") == [str(m.born_host) for m in expected]
    assert column("storeHost") == [str(m.store_host) for m in expected]
    assert [dict(pairs) for pairs in block.column("properties").to_pylist()] == [
        m.property_map() for m in expected
    ]
    for name, key in (("key", "KEYS"), ("tags", "TAGS")):
        assert column(name) == [m.get(key) for m in expected]
    assert column("msgId") == [shown_message_id(m) for m in expected]
    millis = block.column("timestamp").cast(pa.int64()).to_pylist()
    assert millis == [m.store_timestamp * 1000 for m in expected]
    assert column("topic") == ["T"] * len(expected)


def test_offsets_outside_the_span_are_left_out_also_inside_of_inner_batches() -> None:
    inner = StoredMessage(
        "T",
        encode_batch([BatchEntry(b"%d" % n) for n in range(10)]),
        queue_offset=10,
        sys_flag=SysFlag.INNER_BATCH | SysFlag.NEED_UNWRAP,
        store_host=V6,
    )
    block = Block(encode_record(inner), {}, 13, 16)
    assert block.column("value").to_pylist() == [b"3", b"4", b"5"]
    assert block.column("storeHost").to_pylist() == ["[fe80::1]:10911"] * 3


@pytest.mark.parametrize("cut", [1, 50, 90, 95, -1])
def test_what_is_cut_off_is_not_read(cut: int) -> None:
    record = encode_record(StoredMessage("T", b"x" * 20))
    with pytest.raises(RemoteProtocolError):
        Block((record + record)[:cut], {}, 0, 9)


@settings(max_examples=examples(100))
@given(st.binary(min_size=91, max_size=300))
def test_strange_bytes_are_refused_or_read_but_nothing_else(data: bytes) -> None:
    damaged = len(data).to_bytes(4, "big") + b"\xda\xa3\x20\xa7" + data[8:]
    with suppress(RemoteProtocolError):
        Block(damaged, {}, 0, 2**62).column("properties")


# Encoding


def table(**columns: pa.Array) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict(columns)


@settings(max_examples=examples(100))
@given(
    st.lists(
        st.tuples(
            st.binary(min_size=1, max_size=30), st.none() | WORDS, st.none() | st.dictionaries(WORDS, WORDS)
        ),
        min_size=1,
        max_size=6,
    )
)
def test_entries_are_read_back_by_the_plain_codec(
    rows: list[tuple[bytes, str | None, dict[str, str] | None]],
) -> None:
    batch = table(
        value=pa.array([row[0] for row in rows], pa.binary()),
        key=pa.array([row[1] for row in rows], pa.string()),
        properties=pa.array(
            [None if row[2] is None else list(row[2].items()) for row in rows],
            pa.map_(pa.string(), pa.string()),
        ),
    )
    messages = OutgoingMessages(batch, Ids("q:1:0"))
    entries = decode_batch(b"".join(messages.entries().to_pylist()))
    assert [entry.body for entry in entries] == [row[0] for row in rows]
    for entry, (_, key, pairs) in zip(entries, rows, strict=True):
        found = decode_properties(entry.properties)
        assert found.pop("WAIT") == "true"
        assert len(found.pop("UNIQ_KEY")) == 32
        assert found.pop("KEYS", None) == (key or None)
        without = RESERVED_NAMES - {"TAGS"}  # there is no column of that name
        kept = {n: v for n, v in (pairs or {}).items() if n and v and n not in without}
        assert found == kept


def test_ids_depend_on_the_place_of_a_row_alone() -> None:
    first, again, other = Ids("query:7:1"), Ids("query:7:1"), Ids("query:8:1")
    made = first.next(3).to_pylist() + first.next(70_000).to_pylist()
    assert made == again.next(70_003).to_pylist()
    assert len(set(made)) == 70_003
    assert not set(made) & set(other.next(70_003).to_pylist())
    assert made[70_002].endswith(f"{70_002:012X}")


def test_a_message_read_keeps_its_key_and_tags_when_written_again() -> None:
    pairs = [("KEYS", "k"), ("TAGS", "t"), ("UNIQ_KEY", "old"), ("own", "1"), ("MIN_OFFSET", "3")]
    batch = table(
        value=pa.array([b"x"]),
        tags=pa.array(["new"]),
        properties=pa.array([pairs], pa.map_(pa.string(), pa.string())),
    )
    found = decode_properties(OutgoingMessages(batch, Ids("x")).properties[0].as_py())
    assert (found["KEYS"], found["TAGS"], found["own"]) == ("k", "new", "1")
    assert found["UNIQ_KEY"] != "old"
    assert "MIN_OFFSET" not in found


@pytest.mark.parametrize(
    ("columns", "named"),
    [
        ({"value": pa.array([None], pa.binary())}, "no value"),
        ({"value": pa.array([b""])}, "no value"),
        ({"value": pa.array([b"x"]), "key": pa.array(["a\x01b"])}, "separates"),
        ({"value": pa.array([b"x"]), "key": pa.array([b"\xff"])}, "KEYS is not text"),
        ({"value": pa.array([b"x"]), "tags": pa.array(["y" * 40_000])}, "32767"),
    ],
)
def test_rows_that_cannot_be_messages_are_refused(columns: dict[str, pa.Array], named: str) -> None:
    with pytest.raises(BadMessage, match=named):
        OutgoingMessages(table(**columns), Ids("x"))


@pytest.mark.parametrize(
    ("columns", "named"),
    [
        ({"valu": "binary"}, "valu"),
        ({"value": "int"}, "binary or string"),
        ({"key": "string"}, "column value"),
        ({"value": "binary", "key": "string", "keys": "array<string>"}, "either key or keys"),
        ({"value": "binary", "brokerName": "string"}, "queueId with it"),
    ],
)
def test_columns_that_cannot_be_written_are_named(columns: dict[str, str], named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        check_columns(columns, "Orders")


def test_a_key_that_is_null_does_not_take_the_others_along() -> None:
    keys = pa.array([["a", None, "b"], [None], None], pa.list_(pa.string()))
    batch = pa.RecordBatch.from_pydict({"value": pa.array([b"x"] * 3, pa.binary()), "keys": keys})
    texts = OutgoingMessages(batch, Ids("x")).properties.to_pylist()
    assert [decode_properties(text).get("KEYS") for text in texts] == ["a b", None, None]


def test_sharding_keys_go_where_java_sends_them() -> None:
    # The hash of the second one is the number without an absolute value.
    found = shards(pa.array(["abc", "polygenelubricants"]), 7)
    assert found.tolist() == [96354 % 7, 0]


@given(st.lists(st.text(max_size=12) | st.text("ab0", max_size=12), min_size=1), st.integers(1, 9))
def test_keys_are_hashed_together_as_alone(keys: list[str], queues: int) -> None:
    alone = [abs(java_string_hash(key)) for key in keys]
    wanted = [0 if value > 0x7FFFFFFF else value % queues for value in alone]
    texts = pa.array(["before", *keys])[1:]
    assert shards(texts, queues).tolist() == wanted


# Spans and offsets

QUEUES = [Queue("T", "b", number) for number in range(12)]
SIZES = st.dictionaries(st.sampled_from(QUEUES), st.integers(1, 1000), min_size=1)


@given(SIZES, st.none() | st.integers(1, 40), st.none() | st.integers(1, 300))
def test_cut_spans_cover_the_same_offsets(
    sizes: dict[Queue, int], least: int | None, most: int | None
) -> None:
    spans = [Span(queue, 5, 5 + size) for queue, size in sizes.items()]
    pieces = split_spans(spans, least, most)
    offsets = [(p.queue, offset) for p in pieces for offset in range(p.start, p.end)]
    assert sorted(offsets) == sorted((s.queue, o) for s in spans for o in range(s.start, s.end))
    assert most is None or max(piece.size for piece in pieces) <= most
    assert least is None or len(pieces) >= min(least, sum(sizes.values()))


@given(SIZES, st.integers(1, 5000))
def test_shares_add_up_to_the_limit_and_never_exceed_what_is_there(
    sizes: dict[Queue, int], most: int
) -> None:
    shares = share_out(sizes, most)
    assert sum(shares.values()) == min(most, sum(sizes.values()))
    assert all(0 < share <= sizes[queue] for queue, share in shares.items())


def test_offsets_are_the_same_text_in_whatever_order_queues_come() -> None:
    one = dict.fromkeys(QUEUES, 1)
    other = dict.fromkeys(reversed(QUEUES), 1)
    assert json.dumps(make_offset(one, other)) == json.dumps(make_offset(other, one))
    assert flatten(nest(one)) == one


def test_a_batch_that_ends_where_it_starts_reads_nothing_even_if_its_start_is_journalled() -> None:
    end = make_offset({QUEUES[0]: 9}, {QUEUES[0]: 4})
    assert spans_between(end, end) == []
    assert spans_between({"v": 1, "first": True}, end) == [Span(QUEUES[0], 4, 9)]
    with pytest.raises(ConfigError, match="version 3"):
        spans_between({"v": 3, "q": {}}, end)


PLACES = st.builds(
    Queue, st.sampled_from(["Orders", "Bills"]), st.sampled_from(["a", "b:1"]), st.integers(0, 40)
)


@given(st.dictionaries(PLACES, st.tuples(st.integers(1, 2**62), st.integers(1, 9), st.integers(0, 2**50))))
def test_an_offset_says_of_each_queue_what_was_put_in(queues: dict[Queue, tuple[int, int, int]]) -> None:
    ends = {queue: end for queue, (end, _, _) in queues.items()}
    seen = {queue: Seen(end - behind, ms) for queue, (end, behind, ms) in queues.items() if ms % 3}
    offset = json.loads(json.dumps(make_offset(ends, ends, seen)))
    assert ends_of(offset) == ends
    assert seen_of(offset) == seen
    assert [span.start for span in spans_between({"v": 2, "first": True}, offset)] == [
        ends[queue] for queue in sorted(ends)
    ]
    assert parse_numbers(json.dumps(offset["q"])) == ends if ends else True


@pytest.mark.parametrize("packed", [[[5, 0]], [["x", 3]], [[5, 2_000_000]], ["x"], [[1, 2, 3]], [True]])
def test_lists_that_no_offset_has_are_refused(packed: list[object]) -> None:
    with pytest.raises(ValueError, match=r"neither a number nor a run|more than"):
        unpack(packed)


def test_a_queue_with_a_high_number_needs_no_long_list() -> None:
    assert make_offset({Queue("Orders", "a", 2**31 - 1): 5}, {})["q"] == {
        "Orders": {"a": [[None, 2**31 - 1], 5]}
    }
