"""Frames out of a byte stream, and what ends it."""

import struct

import pytest

from pyromq.errors import LocalProtocolError, RemoteProtocolError
from pyromq.protocol.frame import Frame, HeaderForm
from pyromq.protocol.framing import FrameReader, encode_frame, encode_head

PING = Frame(code=105, opaque=1, ext={"topic": "T"}, body=b"body")


def test_several_frames_in_one_piece_come_out_in_order() -> None:
    reader = FrameReader()
    frames = [Frame(code=code, opaque=code, body=bytes([code])) for code in range(5)]
    assert reader.feed(b"".join(map(encode_frame, frames))) == frames
    assert reader.buffered_bytes == 0


def test_one_connection_may_mix_both_forms() -> None:
    frames = [Frame(code=1, form=HeaderForm.JSON), Frame(code=2, form=HeaderForm.BINARY)]
    assert FrameReader().feed(b"".join(map(encode_frame, frames))) == frames


def test_a_frame_may_arrive_byte_by_byte() -> None:
    reader = FrameReader()
    encoded = encode_frame(PING)
    for position in range(len(encoded) - 1):
        assert reader.feed(encoded[position : position + 1]) == []
        assert reader.buffered_bytes == position + 1
    assert reader.feed(encoded[-1:]) == [PING]
    assert reader.buffered_bytes == 0


def test_the_start_of_the_next_frame_is_kept() -> None:
    reader = FrameReader()
    encoded = encode_frame(PING)
    assert reader.feed(encoded + encoded[:3]) == [PING]
    assert reader.buffered_bytes == 3
    assert reader.feed(encoded[3:]) == [PING]


def test_frames_before_the_damage_are_delivered() -> None:
    reader = FrameReader()
    assert reader.feed(encode_frame(PING) + b"GET / HTTP/1.1\r\n") == [PING]
    assert isinstance(reader.damage, RemoteProtocolError)
    assert reader.buffered_bytes == 0
    with pytest.raises(RemoteProtocolError):
        reader.feed(encode_frame(PING))


@pytest.mark.parametrize(
    ("prefix", "words"),
    [
        (struct.pack(">i", -1), "frame of -1 bytes"),
        (struct.pack(">i", 0), "frame of 0 bytes"),
        (struct.pack(">i", 3), "frame of 3 bytes"),
        (struct.pack(">i", 1021), "frame of 1021 bytes"),
        (struct.pack(">iI", 100, 97), "header of 97 bytes"),
        (struct.pack(">iI", 100, 2 << 24), "unknown header form 2"),
        (struct.pack(">iI", 4, 255 << 24), "unknown header form 255"),
        (struct.pack(">iI", 4, 0), "unreadable JSON header"),
        (struct.pack(">iI", 4, 1 << 24), "unreadable binary header"),
    ],
)
def test_damage_is_noticed_as_soon_as_it_can_be_seen(prefix: bytes, words: str) -> None:
    reader = FrameReader(max_frame_bytes=1024)
    assert reader.feed(prefix) == []
    assert words in str(reader.damage)


def test_the_limit_counts_the_length_field() -> None:
    encoded = encode_frame(PING)
    assert FrameReader(max_frame_bytes=len(encoded)).feed(encoded) == [PING]
    smaller = FrameReader(max_frame_bytes=len(encoded) - 1)
    assert smaller.feed(encoded) == []
    assert smaller.damage is not None


def test_a_frame_over_the_limit_is_not_written() -> None:
    size = len(encode_frame(PING))
    assert len(encode_frame(PING, max_frame_bytes=size)) == size
    with pytest.raises(LocalProtocolError):
        encode_frame(PING, max_frame_bytes=size - 1)


def test_a_header_must_fit_into_three_bytes() -> None:
    with pytest.raises(LocalProtocolError):
        encode_frame(Frame(code=1, remark="x" * 2**24), max_frame_bytes=2**26)


def test_head_and_body_can_be_written_apart() -> None:
    head = encode_head(PING, len(PING.body))
    assert head + PING.body == encode_frame(PING)


def test_frames_do_not_alias_the_buffer() -> None:
    reader = FrameReader()
    encoded = encode_frame(PING)
    reader.feed(encoded[:10])
    (frame,) = reader.feed(encoded[10:])
    reader.feed(encode_frame(Frame(code=9, body=b"other")))
    assert frame == PING
    assert type(frame.body) is bytes


def test_a_reader_tells_its_state() -> None:
    reader = FrameReader()
    reader.feed(b"\x00\x00")
    assert repr(reader) == "<FrameReader buffered=2 damage=None>"


def test_a_reader_tells_how_much_a_frame_lacks() -> None:
    encoded = encode_frame(PING)
    reader = FrameReader()
    assert reader.missing_bytes == 0
    for read in range(1, len(encoded)):
        reader.feed(encoded[read - 1 : read])
        assert reader.missing_bytes == (4 - read if read < 4 else len(encoded) - read)
    reader.feed(encoded[-1:])
    assert reader.missing_bytes == 0


def test_frames_come_out_in_parts_if_that_is_wanted() -> None:
    frames = [Frame(code=code) for code in range(5)]
    encoded = b"".join(map(encode_frame, frames))
    reader = FrameReader(max_frames=2)
    assert (reader.feed(encoded[:-1]), reader.has_more) == (frames[:2], True)
    assert (reader.feed(encoded[-1:]), reader.has_more) == (frames[2:4], True)
    assert (reader.feed(b""), reader.has_more) == (frames[4:], False)
    assert reader.feed(b"") == []


def test_a_header_that_nobody_needs_so_long_ends_the_stream_before_it_arrives() -> None:
    reader = FrameReader()
    assert reader.feed(struct.pack(">iI", 10_000_000, 1024 * 1024 + 1)) == []
    assert "header of 1048577 bytes; 1048576 are allowed" in str(reader.damage)
    with pytest.raises(LocalProtocolError, match="header of"):
        encode_frame(Frame(code=1, remark="x" * 1024 * 1024))


@pytest.mark.parametrize("body_bytes", [64 * 1024 - 1, 64 * 1024, 300_000])
def test_a_large_body_in_pieces_is_bytes_and_leaves_the_next_frame_alone(body_bytes: int) -> None:
    large, small = Frame(1, body=bytes(range(256)) * (body_bytes // 256 + 1)), Frame(2, body=b"x")
    stream = encode_frame(large) + encode_frame(small)
    reader = FrameReader()
    pieces = [stream[at : at + 50_000] for at in range(0, len(stream), 50_000)]
    frames = [frame for piece in pieces for frame in reader.feed(piece)]
    assert [type(frame.body) for frame in frames] == [bytes, bytes]
    assert [frame.body for frame in frames] == [large.body, small.body]
    assert reader.buffered_bytes == 0
