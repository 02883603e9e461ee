"""Reading and writing property strings: the reader forgives, the writer does not."""

import pytest

from pyromq.errors import LocalProtocolError
from pyromq.protocol import properties as names
from pyromq.protocol.properties import (
    RESERVED_NAMES,
    decode_properties,
    encode_properties,
    get_property,
    get_property_bytes,
    without_property,
)


def test_pairs_are_written_in_order_and_each_is_closed() -> None:
    assert encode_properties({"KEYS": "k1", "TAGS": "TagA"}) == "KEYS\x01k1\x02TAGS\x01TagA\x02"


def test_nothing_is_written_for_none() -> None:
    assert encode_properties({"KEYS": None, "TAGS": "a"}) == "TAGS\x01a\x02"


@pytest.mark.parametrize(
    "pairs", [{"": "v"}, {"a\x01b": "v"}, {"a\x02b": "v"}, {"a": "v\x02w"}, {"a": "\ud800"}, {"\udfff": "v"}]
)
def test_what_could_not_be_read_back_is_not_written(pairs: dict[str, str]) -> None:
    with pytest.raises(LocalProtocolError):
        encode_properties(pairs)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", {}),
        ("a\x01b\x02", {"a": "b"}),
        ("a\x01b", {"a": "b"}),
        ("a\x01b\x02c\x01d", {"a": "b", "c": "d"}),
        ("a\x01b\x01c\x02", {"a": "b\x01c"}),
        ("a\x01\x02b\x01c\x02", {"b": "c"}),
        ("\x01v\x02b\x01c\x02", {"b": "c"}),
        ("ab\x02b\x01c\x02", {"b": "c"}),
        ("\x02\x02b\x01c\x02\x02", {"b": "c"}),
        ("a\x01b\x02a\x01c\x02", {"a": "c"}),
        ("a\x01b\x02a\x01\x02", {"a": "b"}),
        ("a\x01b\x02a\x01", {"a": "b"}),
        ("名\x01值\x02", {"名": "值"}),
    ],
)
def test_reader_rules(text: str, expected: dict[str, str]) -> None:
    assert decode_properties(text) == expected
    assert decode_properties(text.encode()) == expected
    for name in {"a", "b", "c", "ab", "名"}:
        assert get_property(text, name) == expected.get(name)
        assert get_property(text.encode(), name) == expected.get(name)


@pytest.mark.parametrize(
    "text", ["XTAGS\x01no\x02", "KEYS\x01TAGS\x02", "KEYS\x01x TAGS\x01no\x02", "TAGSX\x01no\x02"]
)
def test_probe_is_not_fooled_by_a_name_inside_something_else(text: str) -> None:
    assert get_property(text, "TAGS") is None
    assert get_property(text.encode(), "TAGS") is None


def test_bytes_that_are_not_utf8_read_as_replacement_characters() -> None:
    raw = b"a\x01\xff\x02b\x01ok\x02"
    assert decode_properties(raw) == {"a": "\ufffd", "b": "ok"}
    assert get_property(raw, "a") == "\ufffd"
    assert get_property(raw, "b") == "ok"
    assert get_property_bytes(raw, "a") == b"\xff"
    assert get_property_bytes(raw, "c") is None


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (b"a\x01b\x02", b"a\x01b\x02"),
        (b"X\x01b\x02a\x01b\x02", b"a\x01b\x02"),
        (b"a\x01b\x02X\x01b\x02", b"a\x01b\x02"),
        (b"a\x01b\x02X\x01b", b"a\x01b"),
        (b"a\x01X\x01b\x02", b"a\x01X\x01b\x02"),
        (b"X\x01b\x02", b""),
    ],
)
def test_a_property_can_be_taken_out_of_the_raw_bytes(before: bytes, after: bytes) -> None:
    assert without_property(before, "X") == after


def test_reserved_names_are_exactly_those_that_java_clients_refuse() -> None:
    constants = {
        value
        for key, value in vars(names).items()
        if key.isupper() and isinstance(value, str) and not key.endswith(("SEPARATOR", "PREFIX"))
    }
    free = {
        "INNER_NUM",
        "INNER_BASE",
        "CHECK_IMMUNITY_TIME_IN_SECONDS",
        "__transactionId__",
        "TRANSACTION_CHECK_TIMES",
        "__SHARDINGKEY",
        "PROPERTY_FORWARD_QUEUE_ID",
        "REDIRECT",
        "INNER_MULTI_DISPATCH",
        "TRACE_CONTEXT",
    }
    assert constants - RESERVED_NAMES == free
    assert constants >= RESERVED_NAMES
    ours = {names.LITE_EPOCH, names.LITE_OFFSET, names.LITE_KIND}
    assert len(RESERVED_NAMES - ours) == 53
