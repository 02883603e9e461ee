"""Serves a table of gRPC methods on the HTTP/2 connections of one or more ports, within limits."""

import asyncio
from collections import Counter
from collections.abc import Mapping

from pyromq.clock import Clock, SystemClock
from pyromq.errors import StateError
from pyromq.http2.limits import Http2Limits
from pyromq.proxy.grpc.call import Method, Shape
from pyromq.proxy.grpc.connection import GrpcConnection, HttpExchanges
from pyromq.proxy.grpc.status import GrpcCode, GrpcError
from pyromq.remoting.limits import ServerLimits
from pyromq.remoting.slices import Slices
from pyromq.remoting.sweep import Sweep

_PATIENCE = 6
"""This part of the idle time a silent peer has for a sign of life."""


class GrpcServer:
    """`methods`: by path. An idle connection, without a call for `limits.idle_s`, is closed; so is one whose
    peer is silent for that time and then gives no sign of life."""

    def __init__(
        self,
        methods: Mapping[str, Method],
        *,
        limits: ServerLimits | None = None,
        http2_limits: Http2Limits | None = None,
        max_message_bytes: int = 130 * 1024 * 1024,
        clock: Clock | None = None,
        http: HttpExchanges | None = None,
    ) -> None:
        self.methods = methods
        self.http = http
        self.slices = Slices(clock if clock is not None else SystemClock())
        self.limits = limits if limits is not None else ServerLimits()
        self.http2_limits = http2_limits if http2_limits is not None else Http2Limits()
        self.max_message_bytes = max_message_bytes
        self.is_draining = False
        self._connections: dict[GrpcConnection, int] = {}
        self._held_bytes = 0
        self._nothing_open: asyncio.Event | None = None
        self._sweep = Sweep(self.limits.idle_s / 12, self.close_idle)

    def __repr__(self) -> str:
        return (
            f"<GrpcServer methods={len(self.methods)} connections={len(self)} held_bytes={self._held_bytes}>"
        )

    def __len__(self) -> int:
        return len(self._connections) + (len(self.http) if self.http is not None else 0)

    @property
    def speaks_http1(self) -> bool:
        return self.http is not None

    def new_http1_connection(self, source: str | None) -> asyncio.Protocol:
        if self.http is None:
            raise StateError("this server speaks HTTP/2 alone")
        return self.http.new_connection(source)

    def new_connection(self, source: str | None) -> asyncio.Protocol:
        self._sweep.start()
        return GrpcConnection(self, source)

    def open_calls(self) -> Counter[str]:
        """How many calls of each method, by its name, are not over."""
        calls = (call for connection in self._connections for call in connection.calls)
        return Counter(call.name.rpartition("/")[2] for call in calls)

    # Called by connections

    def opened(self, connection: GrpcConnection) -> None:
        self._connections[connection] = 0
        if self.is_draining:
            connection.leave()

    def closed(self, connection: GrpcConnection) -> None:
        self._held_bytes -= self._connections.pop(connection, 0)
        self._check_idle()

    def hold(self, connection: GrpcConnection, change: int) -> None:
        if not change or connection not in self._connections:
            return
        held = self._connections[connection] = self._connections[connection] + change
        self._held_bytes += change
        if change > 0 and (
            held > max(self.limits.max_in_flight_bytes_per_connection, self.max_message_bytes)
            or self._held_bytes > self.limits.max_partial_bytes
        ):
            raise GrpcError(
                GrpcCode.RESOURCE_EXHAUSTED, f"{held} bytes of unfinished requests; try again later"
            )

    # Ending

    def close_idle(self) -> None:
        """Close idle connections, and those whose peers are gone; called regularly."""
        idle_s = self.limits.idle_s
        before = asyncio.get_running_loop().time() - idle_s
        for connection in list(self._connections):
            # A peer may vanish without a word, and its open stream would last for ever.
            connection.look_for_peer(idle_s, idle_s / _PATIENCE)
            if not connection.calls and connection.idle_since <= before:
                connection.leave()

    async def stop(self, grace_s: float) -> None:
        """Take no more calls, end streams, and wait for the other calls before all connections are closed."""
        self.is_draining = True
        self._sweep.stop()
        stopping = GrpcError(GrpcCode.UNAVAILABLE, "the server is stopping")
        for connection in list(self._connections):
            for call in connection.calls:
                if call.method.shape is not Shape.UNARY:
                    connection.end_call(call, stopping)
            connection.leave()
        self._nothing_open = asyncio.Event()
        self._check_idle()
        try:
            async with asyncio.timeout(grace_s):
                await self._nothing_open.wait()
        except TimeoutError:
            for connection in list(self._connections):
                connection.abort()

    def _check_idle(self) -> None:
        if self._nothing_open is not None and not self._connections:
            self._nothing_open.set()
