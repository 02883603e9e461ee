"""Header blocks: the examples of RFC 7541, and blocks that no honest peer writes."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.http2_peer import huffman_coded

from pyromq.errors import RemoteProtocolError
from pyromq.http2 import huffman
from pyromq.http2.hpack import Decoder, Header, HeadersTooLarge, encode

# RFC 7541, C.3 and C.4: three requests on one connection, first plain, then Huffman-coded.
PLAIN = (
    "828684410f7777772e6578616d706c652e636f6d",
    "828684be58086e6f2d6361636865",
    "828785bf400a637573746f6d2d6b65790c637573746f6d2d76616c7565",
)
CODED = (
    "828684418cf1e3c2e5f23a6ba0ab90f4ff",
    "828684be5886a8eb10649cbf",
    "828785bf408825a849e95ba97d7f8925a849e95bb8e8b4bf",
)
FIRST = [
    (b":method", b"GET"),
    (b":scheme", b"http"),
    (b":path", b"/"),
    (b":authority", b"www.example.com"),
]
SECOND = [*FIRST, (b"cache-control", b"no-cache")]
THIRD = [
    (b":method", b"GET"),
    (b":scheme", b"https"),
    (b":path", b"/index.html"),
    (b":authority", b"www.example.com"),
    (b"custom-key", b"custom-value"),
]


@pytest.mark.parametrize("blocks", [PLAIN, CODED])
def test_the_requests_of_the_rfc_are_decoded_with_one_table(blocks: tuple[str, str, str]) -> None:
    decoder = Decoder(4096)
    assert [decoder.decode(bytes.fromhex(block)) for block in blocks] == [FIRST, SECOND, THIRD]


def test_entries_leave_the_table_when_it_is_full() -> None:
    # RFC 7541, C.5: a table of 256 bytes.
    decoder = Decoder(4096)
    decoder.decode(b"\x3f\xe1\x01")
    decoder.decode(
        bytes.fromhex(
            "4803333032580770726976617465611d4d6f6e2c203231204f637420323031332032303a31333a323120474d546e1768"
            "747470733a2f2f7777772e6578616d706c652e636f6d"
        )
    )
    assert (b":status", b"307") in decoder.decode(bytes.fromhex("4803333037c1c0bf"))
    with pytest.raises(RemoteProtocolError, match="entry 66"):
        decoder.decode(b"\xc2")


@given(st.lists(st.tuples(st.binary(min_size=1, max_size=40), st.binary(max_size=200)), max_size=20))
def test_what_is_encoded_is_decoded_again(headers: list[Header]) -> None:
    assert Decoder(1 << 20).decode(encode(headers)) == headers


@given(st.binary(max_size=300))
def test_huffman_codes_of_any_bytes_are_decoded(text: bytes) -> None:
    assert huffman.decode(huffman_coded(text)) == text


@given(st.binary(max_size=300))
def test_any_bytes_give_headers_or_a_protocol_error(block: bytes) -> None:
    with suppress(RemoteProtocolError):
        Decoder(1024).decode(block)


@pytest.mark.parametrize(
    ("block", "problem"),
    [
        (b"\x80", "entry 0"),
        (b"\xff\xff\xff\xff\xff\xff\x01", "more than 32 bits"),
        (b"\x82\x20", "changes the table size"),
        (b"\x3f\xe1\xff\x03", "changes the table size"),
        (b"\x40\x05abc", "ends within a string"),
        (b"\x40\x01a", "ends within a header"),
        (b"\x40\x01a\x81\x00", "ends within a letter"),
        (b"\x40\x01a\x84\xff\xff\xff\xff", "end of a string"),
    ],
)
def test_a_block_that_breaks_the_rules_is_refused(block: bytes, problem: str) -> None:
    with pytest.raises(RemoteProtocolError, match=problem):
        Decoder(4096).decode(block)


def test_a_small_block_with_a_huge_header_list_is_refused() -> None:
    decoder = Decoder(64 * 1024)
    bomb = b"\x40\x01a\x7f\xa1\x1e" + b"v" * 4000  # one entry of 4 kB, and then a reference in every byte
    with pytest.raises(HeadersTooLarge, match="65536 bytes"):
        decoder.decode(bomb + b"\xbe" * 16_000)
