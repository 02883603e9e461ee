"""Requests over HTTP/1.1 are understood the same however the network cuts their bytes."""

import asyncio
import json
from itertools import pairwise
from typing import Any

import h11
from hypothesis import given
from hypothesis import settings as chosen
from hypothesis import strategies as st
from tests.support.chance import examples

from pyromq.proxy.http.app import Answered, Asked, HttpApp
from pyromq.proxy.http.exchange import Exchange
from pyromq.proxy.http.server import HttpServer
from pyromq.remoting.limits import ServerLimits

_TOKENS = st.text("abcdefghijklmnopqrstuvwxyz-", min_size=1, max_size=12).map(lambda text: f"x{text}x")
_REQUESTS = st.lists(
    st.tuples(
        st.sampled_from(["GET", "POST"]),
        st.text("abc/%20é?=&", max_size=12),
        st.dictionaries(_TOKENS, st.text("abc ,;=", max_size=8), max_size=3),
        st.binary(max_size=300),
        st.booleans(),
    ),
    min_size=1,
    max_size=4,
)


class _Wire(asyncio.Transport):
    """A transport that keeps what is written."""

    def __init__(self) -> None:
        super().__init__()
        self.written = bytearray()
        self._is_closing = False

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return ("10.0.0.1", 4000) if name == "peername" else default

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def is_closing(self) -> bool:
        return self._is_closing

    def write(self, data: Any) -> None:
        self.written += data

    def close(self) -> None:
        self._is_closing = True

    abort = close

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass


async def _echo(exchange: Exchange, asked: Asked) -> Answered:
    body = await exchange.body.read()
    head = exchange.head
    shown = {name: text for name, text in head.headers.items() if name[0] == "x"}
    return Answered(200, [head.method, asked[0], dict(head.query), shown, body.hex()])


def _server(max_body_bytes: int = 1000) -> HttpServer:
    app = HttpApp(frozenset())
    app.add("GET", "v1/*", _echo)
    app.add("POST", "v1/*", _echo)
    return HttpServer(
        app.handle,
        app.refuse,
        limits=ServerLimits(),
        max_body_bytes=max_body_bytes,
        max_connections=10,
        stall_s=1,
    )


def _written(requests: list[Any]) -> bytes:
    """The requests as bytes, one after the other."""
    http, sent = h11.Connection(h11.CLIENT), bytearray()
    for method, path, headers, body, is_chunked in requests:
        target = "/v1/" + "".join(f"%{each:02X}" for each in path.encode())
        how = ("transfer-encoding", "chunked") if is_chunked else ("content-length", str(len(body)))
        named = [("host", "here"), how, *((name, text.strip()) for name, text in headers.items())]
        http = h11.Connection(h11.CLIENT)
        sent += http.send(h11.Request(method=method, target=target, headers=named)) or b""
        sent += http.send(h11.Data(data=body)) or b""
        sent += http.send(h11.EndOfMessage()) or b""
    return bytes(sent)


def _answers(written: bytes) -> list[Any]:
    found, rest = [], written
    while rest:
        head, _, rest = rest.partition(b"\r\n\r\n")
        lines = head.split(b"\r\n")
        (size,) = [int(line.split(b":")[1]) for line in lines if line.startswith(b"content-length")]
        found.append((int(lines[0].split()[1]), json.loads(rest[:size])))
        rest = rest[size:]
    return found


async def _fed(server: HttpServer, pieces: list[bytes]) -> tuple[bytes, bool]:
    wire = _Wire()
    connection = server.new_connection(None)
    connection.connection_made(wire)
    for piece in pieces:
        if not wire.is_closing():
            connection.data_received(piece)
            await asyncio.sleep(0)
    for _ in range(200):
        await asyncio.sleep(0)
    connection.connection_lost(None)
    await asyncio.sleep(0)
    return bytes(wire.written), wire.is_closing()


def _cut(content: bytes, places: list[int]) -> list[bytes]:
    cuts = sorted({each % (len(content) + 1) for each in places} | {0, len(content)})
    return [content[start:end] for start, end in pairwise(cuts)]


@given(_REQUESTS, st.lists(st.integers(0, 5000), max_size=40))
@chosen(max_examples=examples(150), deadline=None)
def test_requests_are_understood_however_they_are_cut(requests: list[Any], places: list[int]) -> None:
    written, _ = asyncio.run(_fed(_server(), _cut(_written(requests), places)))
    expected = [
        (200, [method, path, {}, {name: text.strip() for name, text in headers.items()}, body.hex()])
        for method, path, headers, body, _ in requests
    ]
    assert _answers(written) == expected


@given(st.binary(max_size=400), st.lists(st.integers(0, 400), max_size=10), st.booleans())
@chosen(max_examples=examples(150), deadline=None)
def test_any_bytes_get_an_answer_or_a_closed_connection(
    content: bytes, places: list[int], begins_well: bool
) -> None:
    content = b"POST /v1/a HTTP/1.1\r\nhost: x\r\n" + content if begins_well else content
    server = _server()
    written, _ = asyncio.run(_fed(server, _cut(content, places)))
    assert not written or written.startswith(b"HTTP/1.1 ")
    assert (len(server), server._held_bytes) == (0, 0)


@given(st.integers(0, 3000), st.lists(st.integers(0, 5000), max_size=10), st.booleans())
@chosen(max_examples=examples(60), deadline=None)
def test_a_body_above_the_limit_is_refused_and_not_kept(
    size: int, places: list[int], is_chunked: bool
) -> None:
    server = _server(max_body_bytes=1000)
    request: Any = ("POST", "a", {}, b"x" * size, is_chunked)
    written, is_closed = asyncio.run(_fed(server, _cut(_written([request]), places)))
    ((status, content),) = _answers(written)
    assert status == (413 if size > 1000 else 200)
    assert is_closed == (size > 1000)
    assert content
    assert server._held_bytes == 0
