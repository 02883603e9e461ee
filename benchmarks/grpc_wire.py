"""gRPC calls over HTTP/2, written by hand: a client that costs little beside the servers that it measures.

Headers are those of RocketMQ's Java client, put into the server's table once and referred to afterwards; only
the id of each request is new. Windows are as large as they can be, so nothing waits for them.
"""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Sequence
from typing import Any, Final

from pyromq.proxy.messages import SERVICE, rpc_types

RPCS: Final = rpc_types()

_PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_HEAD: Final = struct.Struct(">BHBBI")
_DATA, _HEADERS, _RST, _SETTINGS, _PING, _GOAWAY, _WINDOW = 0, 1, 3, 4, 6, 7, 8
_END_STREAM, _ACK, _END_HEADERS = 1, 1, 4
_MAX_WINDOW: Final = 2**31 - 1
_FIRST_DYNAMIC: Final = 62
_POST, _HTTP = b"\x83", b"\x86"
_REQUEST_ID: Final = ("x-mq-request-id", "")


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    return _HEAD.pack(len(payload) >> 16, len(payload) & 0xFFFF, kind, flags, stream) + payload


def _text(text: str) -> bytes:
    assert len(text) < 127, text
    return bytes((len(text),)) + text.encode()


class GrpcWire:
    """One connection of one client. `begin` writes into a buffer; `flush` sends it."""

    def __init__(self, port: int, client_id: str) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._headers = {
            ":authority": f"127.0.0.1:{port}",
            "content-type": "application/grpc",
            "te": "trailers",
            "user-agent": "grpc-java-netty/1.53.0",
            "x-mq-client-id": client_id,
            "x-mq-language": "JAVA",
            "x-mq-client-version": "5.0.7",
            "x-mq-protocol": "v2",
            "x-mq-namespace": "",
            "x-mq-date-time": time.strftime("%Y%m%dT%H%M%SZ"),
            "grpc-accept-encoding": "gzip",
        }
        self._table: list[tuple[str, str]] = []
        self._blocks: dict[tuple[str, int], bytes] = {}
        self._next_stream = 1
        self._id_prefix = f"{id(self) & 0xFFFFFFFF:08x}-1234-4567-89ab-"
        settings = struct.pack(">HI", 4, _MAX_WINDOW)
        self._out = [
            _PREFACE,
            frame(_SETTINGS, 0, 0, settings),
            frame(_WINDOW, 0, 0, struct.pack(">I", _MAX_WINDOW - 65_535)),
        ]
        self._in = b""
        self.messages: dict[int, bytearray] = {}
        """What has arrived of each call that is not over."""

    def fileno(self) -> int:
        return self._socket.fileno()

    def close(self) -> None:
        self._socket.close()

    # Requests

    def begin(self, rpc: str, request: bytes, timeout_s: int = 3, *, ends: bool = True) -> int:
        """The number of the call."""
        stream, self._next_stream = self._next_stream, self._next_stream + 2
        self._out.append(frame(_HEADERS, _END_HEADERS, stream, self._block(rpc, timeout_s, stream)))
        self.messages[stream] = bytearray()
        self.go_on(stream, request, ends=ends)
        return stream

    def go_on(self, stream: int, request: bytes, *, ends: bool) -> None:
        data = struct.pack(">BI", 0, len(request)) + request
        self._out.append(frame(_DATA, _END_STREAM if ends else 0, stream, data))

    def flush(self) -> None:
        if self._out:
            self._socket.sendall(b"".join(self._out))
            self._out.clear()

    def _block(self, rpc: str, timeout_s: int, number: int) -> bytes:
        known = self._blocks.get((rpc, timeout_s))
        request_id = f"{self._id_prefix}{number:012x}"
        if known is not None:
            return known + _text(request_id)
        headers = {":path": f"/{SERVICE}/{rpc}", **self._headers}
        if timeout_s:
            headers["grpc-timeout"] = f"{timeout_s}S"
        block = bytearray(_POST + _HTTP)
        # The name of the last header goes into the table as well, its values do not.
        wanted = [*headers.items(), _REQUEST_ID]
        for each in wanted:
            if each in self._table:
                block.append(0x80 | self._index(each))
            else:
                self._table.insert(0, each)
                self._blocks.clear()  # everything in the table has moved
                block += b"\x40" + _text(each[0]) + _text(each[1])
        # A header with a known name, whose value follows and is not kept.
        last = b"\x0f" + bytes((self._index(_REQUEST_ID) - 15,))
        indexed = bytes(0x80 | self._index(each) for each in headers.items())
        self._blocks[rpc, timeout_s] = _POST + _HTTP + indexed + last
        return bytes(block) + last + _text(request_id)

    def _index(self, header: tuple[str, str]) -> int:
        return _FIRST_DYNAMIC + self._table.index(header)

    # Answers

    def receive(self) -> list[tuple[int, bytes]]:
        """Read once; the calls that are over by it, with everything that they brought."""
        over: list[tuple[int, bytes]] = []
        data = self._socket.recv(1 << 18)
        if not data:
            raise EOFError("the server hung up")
        data = self._in + data if self._in else data
        at, length = 0, len(data)
        while length - at >= 9:
            high, low, kind, flags, stream = _HEAD.unpack_from(data, at)
            start = at + 9
            end = start + (high << 16 | low)
            if end > length:
                break
            at = end
            if kind == _DATA:
                self.messages[stream] += data[start:end]
                if flags & _END_STREAM:
                    over.append((stream, bytes(self.messages.pop(stream))))
            elif kind == _HEADERS:
                if flags & _END_STREAM:
                    over.append((stream, bytes(self.messages.pop(stream))))
            elif kind == _SETTINGS and not flags & _ACK:
                self._out.append(frame(_SETTINGS, _ACK, 0))
            elif kind == _PING and not flags & _ACK:
                self._out.append(frame(_PING, _ACK, 0, data[start:end]))
            elif kind == _GOAWAY or (kind == _RST and stream in self.messages):
                raise RuntimeError(f"the server ended a connection or call: {data[start:end]!r}")
        self._in = data[at:]
        return over

    def call(self, rpc: str, **fields: Any) -> Any:
        """One call and its only answer."""
        asked = self.begin(rpc, RPCS[rpc].request_type(**fields).SerializeToString())
        self.flush()
        while True:
            for stream, data in self.receive():
                if stream == asked:
                    return RPCS[rpc].answer_type.FromString(split(data)[0])

    def take(self, stream: int) -> list[bytes]:
        """The messages of an open stream that have arrived."""
        buffer = self.messages[stream]
        found = split(buffer)
        del buffer[: sum(5 + len(each) for each in found)]
        return found


def split(data: bytes | bytearray) -> list[bytes]:
    """The whole messages of a call's bytes."""
    found: list[bytes] = []
    at = 0
    while len(data) - at >= 5:
        end = at + 5 + int.from_bytes(data[at + 1 : at + 5], "big")
        if end > len(data):
            break
        found.append(bytes(data[at + 5 : end]))
        at = end
    return found


def percentile(values: Sequence[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(len(values) * share))] if values else 0.0
