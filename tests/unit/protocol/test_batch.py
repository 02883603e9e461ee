"""Batches on the wire: several messages in one body, every size checked."""

import pytest

from pyromq.errors import LocalProtocolError, RemoteProtocolError
from pyromq.protocol.batch import MAX_ENTRIES, BatchEntry, check_entries, decode_batch, encode_batch

ONE = bytes.fromhex("0000002000000000000000000000000000000002686900084b455953016b3102")


def test_an_entry_has_exactly_these_bytes() -> None:
    entry = BatchEntry(b"hi", b"KEYS\x01k1\x02")
    assert encode_batch([entry]) == ONE
    assert decode_batch(ONE) == [entry]


def test_entries_follow_each_other() -> None:
    entries = [BatchEntry(b"x" * size, b"p" * (size % 3), flag=size) for size in range(5)]
    assert decode_batch(encode_batch(entries)) == entries
    assert decode_batch(b"") == []
    assert encode_batch([]) == b""


def test_magic_and_crc_are_not_looked_at() -> None:
    assert decode_batch(ONE[:4] + b"\xff" * 8 + ONE[12:]) == decode_batch(ONE)


def broken(position: int, replacement: bytes) -> bytes:
    return ONE[:position] + replacement + ONE[position + len(replacement) :]


@pytest.mark.parametrize(
    ("body", "what"),
    [
        pytest.param(ONE[:21], "too few", id="cut in the head"),
        pytest.param(ONE[:-1], "size 32 does not fit in 31", id="cut in the tail"),
        pytest.param(ONE + b"\0", "entry at 32: 1 bytes are too few", id="something behind"),
        pytest.param(broken(0, b"\0\0\0\0"), "size 0", id="zero size"),
        pytest.param(broken(0, b"\xff\xff\xff\xff"), "size -1", id="negative size"),
        pytest.param(broken(0, b"\x7f\xff\xff\xff"), "size 2147483647", id="huge size"),
        pytest.param(broken(16, b"\xff\xff\xff\xff"), "body length -1", id="negative body"),
        pytest.param(broken(16, b"\x7f\xff\xff\xff"), "body length 2147483647", id="huge body"),
        pytest.param(broken(16, b"\0\0\0\x0b"), "body length 11", id="body over the end"),
        pytest.param(broken(22, b"\xff\xff"), "properties length -1", id="negative properties"),
        pytest.param(broken(22, b"\0\x07"), "properties length 7", id="properties too short"),
        pytest.param(broken(22, b"\0\x09"), "properties length 9", id="properties too long"),
        pytest.param(ONE + broken(22, b"\0\x09"), "entry at 32", id="the second entry"),
    ],
)
def test_impossible_batches_are_refused(body: bytes, what: str) -> None:
    with pytest.raises(RemoteProtocolError, match=what):
        decode_batch(body)


@pytest.mark.parametrize("entry", [BatchEntry(b"", b"x" * 32768), BatchEntry(b"", flag=1 << 31)])
def test_what_an_entry_cannot_hold_is_our_own_error(entry: BatchEntry) -> None:
    with pytest.raises(LocalProtocolError):
        encode_batch([entry])


def test_a_batch_has_a_bounded_number_of_messages() -> None:
    one = encode_batch([BatchEntry(b"x")])
    check_entries(one * MAX_ENTRIES)
    for check in (check_entries, decode_batch):
        with pytest.raises(RemoteProtocolError, match="more than 16384 messages: send several batches"):
            check(one * (MAX_ENTRIES + 1))


@pytest.mark.parametrize("size", [b"\0\0\0\0", b"\xff\xff\xff\xff", b"\0\0\0\x01"])
def test_counting_the_messages_of_nonsense_comes_to_an_end(size: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        decode_batch((size + bytes(18)) * MAX_ENTRIES * 2)
