"""The HA stream is read the same however it was split, and bytes that are none end it with a text."""

import struct
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.chance import examples

from pyromq.errors import RemoteProtocolError
from pyromq.protocol.replication import (
    MAX_FRAME_BYTES,
    FrameCutter,
    ReportReader,
    encode_header,
    encode_report,
)

OFFSETS = st.integers(0, (1 << 63) - 1)
CUTS = st.lists(st.integers(0, 400), max_size=8)


def split(stream: bytes, cuts: list[int]) -> list[bytes]:
    places = sorted({0, *(min(cut, len(stream)) for cut in cuts), len(stream)})
    return [stream[a:b] for a, b in pairwise(places)]


def test_reports_are_eight_bytes_as_apache_writes_them() -> None:
    assert encode_report(0x0102030405060708) == bytes(range(1, 9))


def test_a_header_is_an_offset_and_a_size() -> None:
    assert encode_header(0x0102030405060708, 0x090A0B0C) == bytes(range(1, 13))


@settings(max_examples=examples(200))
@given(st.lists(OFFSETS, max_size=6), CUTS)
def test_reports_are_found_however_they_are_split(offsets: list[int], cuts: list[int]) -> None:
    reader = ReportReader()
    pieces = split(b"".join(map(encode_report, offsets)), cuts)
    assert [offset for piece in pieces for offset in reader.feed(piece)] == offsets


@settings(max_examples=examples(200))
@given(st.lists(st.tuples(st.integers(0, 1 << 62), st.binary(max_size=60)), max_size=6), CUTS)
def test_frames_are_found_however_they_are_split(frames: list[tuple[int, bytes]], cuts: list[int]) -> None:
    stream = b"".join(encode_header(offset, len(body)) + body for offset, body in frames)
    cutter = FrameCutter()
    pieces = [(o, bytes(p)) for part in split(stream, cuts) for o, p in cutter.feed(part)]
    assert [offset for offset, piece in pieces if not piece] == [o for o, body in frames if not body]
    expected = {(o + at, byte) for o, body in frames for at, byte in enumerate(body)}
    assert {(o + at, byte) for o, piece in pieces for at, byte in enumerate(piece)} == expected
    assert b"".join(piece for _, piece in pieces) == b"".join(body for _, body in frames)


@settings(max_examples=examples(200))
@given(st.binary(max_size=200), CUTS)
def test_any_bytes_are_frames_or_refused(stream: bytes, cuts: list[int]) -> None:
    cutter, received = FrameCutter(), 0
    try:
        for part in split(stream, cuts):
            for offset, piece in cutter.feed(part):
                assert offset >= 0
                received += len(piece)
    except RemoteProtocolError:
        pass
    assert received <= len(stream)


@pytest.mark.parametrize("header", [struct.pack(">qi", -1, 0), struct.pack(">qi", 0, -1)])
def test_a_negative_offset_or_size_is_refused(header: bytes) -> None:
    with pytest.raises(RemoteProtocolError, match="must not be negative"):
        list(FrameCutter().feed(header))


def test_a_frame_larger_than_any_master_sends_is_refused_before_its_bytes_are_awaited() -> None:
    with pytest.raises(RemoteProtocolError, match=f"a frame of {MAX_FRAME_BYTES + 1} bytes"):
        list(FrameCutter().feed(encode_header(0, MAX_FRAME_BYTES + 1)))


def test_a_negative_report_is_refused() -> None:
    with pytest.raises(RemoteProtocolError, match="log offset -2"):
        ReportReader().feed(encode_report(-2))
