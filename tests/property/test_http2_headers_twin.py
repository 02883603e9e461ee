"""The compiled decoder of headers does what the interpreted one does, for any bytes."""

from types import ModuleType

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.chance import examples

from pyromq import compiled
from pyromq.errors import RemoteProtocolError
from pyromq.http2 import frames, header_rules, hpack, huffman

_found = compiled.twin("http2.twin_hpack")
pytestmark = pytest.mark.skipif(_found is None, reason=compiled.WHY)
native: ModuleType = _found  # type: ignore[assignment]

_TEXTS = st.binary(max_size=12) | st.sampled_from(
    [b":path", b"te", b"trailers", b"x-mq-client-id", b" a", b"a\n"]
)
_NAMES = st.sampled_from(
    [
        b":path",
        b":method",
        b":scheme",
        b":authority",
        b":status",
        b"te",
        b"x-mq",
        b"Upper",
        b"connection",
        b"",
    ]
)


def _packed(text: bytes) -> bytes:
    bits = "".join(f"{word:0{length}b}" for word, length in (huffman.codes()[letter] for letter in text))
    bits += "1" * (-len(bits) % 8)
    return bytes(int(bits[at : at + 8], 2) for at in range(0, len(bits), 8))


def _string(text: bytes, is_coded: bool) -> bytes:
    data = _packed(text) if is_coded else text
    return bytes(((0x80 if is_coded else 0) | len(data),)) + data


def _literal(kind: int, name: bytes, value: bytes, is_coded: bool) -> bytes:
    return bytes((kind,)) + _string(name, is_coded) + _string(value, is_coded)


_PIECES = st.one_of(
    st.builds(_literal, st.sampled_from([0x40, 0x00, 0x10]), _TEXTS, _TEXTS, st.booleans()),
    st.integers(1, 70).map(lambda index: bytes((0x80 | index,))),
    st.integers(1, 61).map(lambda index: bytes((0x40 | index,)) + _string(b"v", False)),
    st.sampled_from([b"\x20", b"\x3f\xe1\x1f", b"\x3f\xe2\x1f", b"\x3f\x31"]),
    st.binary(max_size=6),
)


def _outcome(decoder: hpack.Decoder, block: bytes) -> object:
    try:
        return decoder.decode(block)
    except RemoteProtocolError as problem:
        return type(problem), str(problem)


@settings(max_examples=examples(300), deadline=None)
@given(st.lists(st.lists(_PIECES, max_size=8).map(b"".join), max_size=12), st.sampled_from([120, 65_536]))
def test_any_blocks_give_the_same_headers_or_the_same_error(blocks: list[bytes], max_list_bytes: int) -> None:
    interpreted, twin = hpack.Decoder(max_list_bytes), native.Decoder(max_list_bytes)
    for block in blocks:
        expected = _outcome(interpreted, block)
        assert _outcome(twin, block) == expected
        if isinstance(expected, tuple):
            return  # the connection is over


def test_the_table_forgets_the_oldest_headers() -> None:
    interpreted, twin = hpack.Decoder(65_536), native.Decoder(65_536)
    for number in range(2000):
        block = _literal(0x40, b"x-mq-request-id", b"%036d" % number, is_coded=number % 2 == 0)
        block += bytes((0x80 | 62 + number % 40,)) if number > 40 else b""
        assert twin.decode(block) == interpreted.decode(block)


@settings(max_examples=examples(300), deadline=None)
@given(st.lists(st.tuples(_NAMES, _TEXTS), max_size=8))
def test_a_list_that_the_first_look_finds_well_formed_breaks_no_rule(
    headers: list[tuple[bytes, bytes]],
) -> None:
    good_names = {b"te", b"x-mq"}
    if native.is_well_formed(headers, good_names):
        assert header_rules.problem_by_rule(headers) is None


def test_an_ordinary_call_needs_no_second_look() -> None:
    call = [
        (b":method", b"POST"),
        (b":scheme", b"http"),
        (b":path", b"/a"),
        (b":authority", b"h"),
        (b"te", b"trailers"),
    ]
    assert native.is_well_formed(call, {b"te"})
    assert not native.is_well_formed(call, set())


@given(st.integers(0, 2**31 - 1), st.binary(max_size=300), st.binary(max_size=300), st.binary(max_size=300))
def test_the_frames_of_an_answer_are_the_same(
    stream_id: int, headers: bytes, data: bytes, trailers: bytes
) -> None:
    expected = frames.answer(stream_id, headers, data, trailers)
    assert native.answer_frames(stream_id, headers, data, trailers) == expected
