"""One connection of a gRPC client, without a socket: what it writes, and when."""

import asyncio
from typing import Any

from tests.support.loop import turn_until

from pyromq.clock import ManualClock
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
        self.reads: list[bool] = []

    def write(self, data: Any) -> None:
        self.writes.append(bytes(data))
        self.has_written.set()

    def get_write_buffer_size(self) -> int:
        return 0

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None: ...

    def is_closing(self) -> bool:
        return False

    def pause_reading(self) -> None:
        self.reads.append(False)

    def resume_reading(self) -> None:
        self.reads.append(True)

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


class Hurried(ManualClock):
    """A millisecond passes whenever somebody looks."""

    def monotonic(self) -> float:
        self.advance(0.001)
        return super().monotonic()


async def test_a_flood_of_streams_in_one_read_leaves_turns_for_other_connections() -> None:
    served: list[str] = []

    async def note(call: Call) -> None:
        served.append(call.metadata.get(b"who"))
        await asyncio.Event().wait()

    server = GrpcServer({"/Stream": Method(Shape.BOTH_STREAMS, Command, note)}, clock=Hurried())
    flooding, decent = (Written(server.new_connection(None)) for _ in range(2))

    def streams(who: bytes, count: int) -> bytes:
        block = hpack.encode([*HEADERS, (b"who", who)])
        opened = [frames.frame(frames.HEADERS, frames.END_HEADERS, 2 * n + 1, block) for n in range(count)]
        return frames.PREFACE + frames.settings({}) + b"".join(opened)

    for each in (flooding, decent):
        each.protocol.connection_made(each)
    flooding.protocol.data_received(streams(b"flood", 1000))
    assert flooding.reads == [False], "what it has sent comes first"
    decent.protocol.data_received(streams(b"decent", 1))
    await turn_until(lambda: "decent" in served)
    assert served.count("flood") < 100
    await turn_until(lambda: len(served) == 1001)
    assert flooding.reads == [False, True]
    for each in (flooding, decent):
        each.close()
    await asyncio.sleep(0)


async def test_what_waits_for_its_turn_ends_with_its_connection() -> None:
    server = GrpcServer({}, clock=Hurried())
    gone = Written(server.new_connection(None))
    gone.protocol.connection_made(gone)
    block = hpack.encode(HEADERS)
    opened = [frames.frame(frames.HEADERS, frames.END_HEADERS, 2 * n + 1, block) for n in range(1000)]
    gone.protocol.data_received(frames.PREFACE + frames.settings({}) + b"".join(opened))
    assert server.slices.waiting
    gone.protocol.connection_lost(None)
    await turn_until(lambda: not server.slices.waiting)
    assert len(server) == 0
