"""One connection of a gRPC client, without a socket: what it writes, and when."""

import asyncio
from typing import Any

from pyromq.http2 import frames, hpack
from pyromq.proxy.grpc.call import Call, Method, Shape
from pyromq.proxy.grpc.connection import GrpcConnection
from pyromq.proxy.grpc.framing import frame_message
from pyromq.proxy.grpc.server import GrpcServer
from pyromq.proxy.messages import message

Command = message("TelemetryCommand")
HEADERS = [
    (b":method", b"POST"),
    (b":scheme", b"http"),
    (b":path", b"/Stream"),
    (b"content-type", b"application/grpc"),
]


class Written(asyncio.Transport):
    """A transport that keeps each write for itself."""

    def __init__(self, protocol: asyncio.Protocol) -> None:
        super().__init__({"peername": ("127.0.0.1", 4711), "sockname": ("127.0.0.1", 8081)})
        self.protocol = protocol
        self.writes: list[bytes] = []
        self.has_written = asyncio.Event()
        self.aborts = 0

    def write(self, data: Any) -> None:
        self.writes.append(bytes(data))
        self.has_written.set()

    def get_write_buffer_size(self) -> int:
        return 0

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None: ...

    def is_closing(self) -> bool:
        return False

    def abort(self) -> None:
        self.aborts += 1

    def close(self) -> None:
        asyncio.get_running_loop().call_soon(self.protocol.connection_lost, None)


def kinds(written: bytes) -> list[int]:
    found, position = [], 0
    while position < len(written):
        size, kind, _, _ = frames.read_header(written, position)
        found.append(kind)
        position += frames.HEADER_BYTES + size
    return found


async def test_the_settings_of_a_connection_and_its_first_answer_leave_in_one_write() -> None:
    async def echo(call: Call) -> None:
        async for command in call:
            await call.send(command)

    server = GrpcServer({"/Stream": Method(Shape.BOTH_STREAMS, Command, echo)})
    transports = [Written(server.new_connection(None)) for _ in range(3)]
    begin = (
        frames.PREFACE
        + frames.settings({})
        + frames.frame(frames.HEADERS, frames.END_HEADERS, 1, hpack.encode(HEADERS))
        + frames.frame(frames.DATA, 0, 1, frame_message(Command().SerializeToString()))
    )
    for each in transports:  # in one turn of the loop
        each.protocol.connection_made(each)
        each.protocol.data_received(begin)
    for each in transports:
        await each.has_written.wait()
        assert [kinds(written) for written in each.writes] == [
            [frames.SETTINGS, frames.WINDOW_UPDATE, frames.SETTINGS, frames.HEADERS, frames.DATA]
        ]
    await server.stop(0)


async def test_a_peer_that_answers_is_asked_again_later_and_one_that_does_not_is_left() -> None:
    connection = GrpcServer({}).new_connection(None)
    assert isinstance(connection, GrpcConnection)
    transport = Written(connection)
    connection.connection_made(transport)
    connection.data_received(frames.PREFACE + frames.frame(frames.SETTINGS, 0, 0))
    for _ in range(2):
        connection.look_for_peer(0, 0)
        connection.data_received(frames.frame(frames.PING, frames.ACK, 0, bytes(8)))
    connection.look_for_peer(0, 3600)
    connection.look_for_peer(0, 3600)
    aborts = [transport.aborts]
    connection.look_for_peer(0, 0)
    assert [*aborts, transport.aborts] == [0, 1]
    await asyncio.sleep(0)
    assert kinds(b"".join(transport.writes)).count(frames.PING) == 3
    connection.connection_lost(None)
