"""The client's side of HTTP/2 in bytes, for tests that break the rules of it or look at every frame."""

from typing import NamedTuple

from pyromq.http2 import frames, hpack, huffman
from pyromq.http2.connection import Http2Connection
from pyromq.http2.events import Event

CALL = [
    (b":method", b"POST"),
    (b":scheme", b"http"),
    (b":path", b"/service/Method"),
    (b":authority", b"localhost"),
    (b"content-type", b"application/grpc"),
    (b"te", b"trailers"),
]
HELLO = frames.PREFACE + frames.settings({})


class ReadFrame(NamedTuple):
    kind: int
    flags: int
    stream_id: int
    payload: bytes


def read_frames(data: bytes) -> list[ReadFrame]:
    found: list[ReadFrame] = []
    position = 0
    while position < len(data):
        size, kind, flags, stream_id = frames.read_header(data, position)
        start = position + frames.HEADER_BYTES
        found.append(ReadFrame(kind, flags, stream_id, data[start : start + size]))
        position = start + size
    return found


def headers(
    stream_id: int, fields: list[hpack.Header] | None = None, flags: int = frames.END_HEADERS
) -> bytes:
    return frames.frame(frames.HEADERS, flags, stream_id, hpack.encode(CALL if fields is None else fields))


def data(stream_id: int, payload: bytes, *, ends: bool = False) -> bytes:
    return frames.frame(frames.DATA, frames.END_STREAM if ends else 0, stream_id, payload)


def huffman_coded(text: bytes) -> bytes:
    bits = "".join(f"{word:0{length}b}" for word, length in (huffman.codes()[letter] for letter in text))
    bits += "1" * (-len(bits) % 8)
    return int(bits or "0", 2).to_bytes(len(bits) // 8, "big")


def greeted(connection: Http2Connection) -> Http2Connection:
    """After the preface and the settings of both sides."""
    connection.receive(HELLO, 0.0)
    connection.take_output()
    return connection


def receive(connection: Http2Connection, *pieces: bytes, now: float = 0.0) -> list[Event]:
    return connection.receive(b"".join(pieces), now)


def goaway_code(output: bytes) -> int | None:
    """The error code with which the connection ended, if it did."""
    for each in read_frames(output):
        if each.kind == frames.GOAWAY:
            code: int = frames.LAST_STREAM_AND_CODE.unpack_from(each.payload)[1]
            return code
    return None
