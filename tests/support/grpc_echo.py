"""A small gRPC service of every shape on a port of ours, for C-core's client to call."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import grpc
import grpc.aio
from tests.support.echo_service import UNSERVED, EchoService

from pyromq.protocol.catalogue import BROKER
from pyromq.proxy.grpc.call import Call, Method, Shape
from pyromq.proxy.grpc.server import GrpcServer
from pyromq.proxy.grpc.status import GrpcCode, GrpcError
from pyromq.proxy.messages import message
from pyromq.remoting.routing import Routes
from pyromq.remoting.server import Server
from pyromq.remoting.tls import TlsServer

Text = message("Resource")


class EchoCalls:
    """Answers with what it got; `name` tells what else to do."""

    def __init__(self) -> None:
        self.waiting = asyncio.Event()
        self.cancelled = asyncio.Event()
        self.release = asyncio.Event()

    def methods(self) -> dict[str, Method]:
        return {
            "/echo/Once": Method(Shape.UNARY, Text, self.once),
            "/echo/Wait": Method(Shape.UNARY, Text, self.wait),
            "/echo/Fail": Method(Shape.UNARY, Text, self.fail),
            "/echo/Break": Method(Shape.UNARY, Text, self.break_down),
            "/echo/Many": Method(Shape.ANSWER_STREAM, Text, self.many),
            "/echo/Both": Method(Shape.BOTH_STREAMS, Text, self.both),
        }

    async def once(self, request: Any, call: Call) -> Any:
        return Text(name=request.name, resource_namespace=call.metadata.get(b"x-note"))

    async def wait(self, request: Any, call: Call) -> Any:
        self.waiting.set()
        try:
            await self.release.wait()
        except asyncio.CancelledError:
            self.cancelled.set()
            raise
        return request

    async def fail(self, request: Any, call: Call) -> Any:
        raise GrpcError(GrpcCode.INVALID_ARGUMENT, request.name)

    async def break_down(self, request: Any, call: Call) -> Any:
        raise ValueError("a bug")

    async def many(self, request: Any, call: Call) -> None:
        count, size = map(int, request.name.split())
        for number in range(count):
            await call.send(Text(name=str(number), resource_namespace="x" * size))

    async def both(self, call: Call) -> None:
        self.waiting.set()
        async for each in call:
            await call.send(Text(name=each.name.upper()))


class EchoPort:
    def __init__(self, server: Server, calls: EchoCalls, grpc_server: GrpcServer) -> None:
        self.server = server
        self.calls = calls
        self.grpc_server = grpc_server

    @property
    def target(self) -> str:
        return f"127.0.0.1:{self.server.address[1]}"


@asynccontextmanager
async def echo_port(
    *, tls: TlsServer | None = None, make: Callable[..., GrpcServer] = GrpcServer
) -> AsyncIterator[EchoPort]:
    calls = EchoCalls()
    grpc_server = make(calls.methods())
    server = Server(Routes(EchoService(), serving=BROKER, unserved=UNSERVED), tls=tls, http2=grpc_server)
    await server.start("127.0.0.1", 0)
    try:
        yield EchoPort(server, calls, grpc_server)
    finally:
        await grpc_server.stop(0.5)
        await server.stop(0.5)


class EchoClient:
    """C-core's client."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self.channel = channel

    def once(self, method: str = "Once") -> Any:
        return self.channel.unary_unary(f"/echo/{method}", Text.SerializeToString, Text.FromString)

    def many(self) -> Any:
        return self.channel.unary_stream("/echo/Many", Text.SerializeToString, Text.FromString)

    def both(self) -> Any:
        return self.channel.stream_stream("/echo/Both", Text.SerializeToString, Text.FromString)


_OPTIONS = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]


@asynccontextmanager
async def echo_client(
    target: str, trust: bytes | None = None, **options: object
) -> AsyncIterator[EchoClient]:
    chosen = [*_OPTIONS, *options.items()]
    if trust is None:
        channel = grpc.aio.insecure_channel(target, options=chosen)
    else:
        channel = grpc.aio.secure_channel(target, grpc.ssl_channel_credentials(trust), options=chosen)
    async with channel:
        yield EchoClient(channel)
