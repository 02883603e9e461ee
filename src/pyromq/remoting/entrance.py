"""From accepting a socket to its first frame: too many? a preamble? TLS or not?

The first byte decides. A preamble counts from proxies that the settings name, and closes the connection from
anywhere else. Plain connections leave by replacing the protocol of their transport, so that they
pay nothing for having passed here.
"""

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import cast

from pyromq.errors import RemoteProtocolError
from pyromq.remoting.addresses import format_socket_address
from pyromq.remoting.connection import Connection
from pyromq.remoting.networks import Networks
from pyromq.remoting.outbox import NOT_CONNECTED
from pyromq.remoting.proxy_protocol import read_preamble, starts_like_preamble
from pyromq.remoting.tls import TlsServer
from pyromq.remoting.tls_stream import TlsStream
from pyromq.remoting.traffic import Traffic

_log = logging.getLogger(__name__)

_TLS_HANDSHAKE = 0x16


class Entrance:
    """Holds the arrivals of one server, those that have not become connections yet."""

    def __init__(
        self,
        traffic: Traffic,
        tls: TlsServer | None,
        welcome: Callable[[Connection], None],
        trusted_proxies: Networks,
    ) -> None:
        """`welcome` sees every connection that came through, before its first frame is handled."""
        self.traffic = traffic
        self.tls = tls
        self.welcome = welcome
        self._trusted_proxies = trusted_proxies
        self._has_told_of_proxies = False
        self.arrivals: set[Arrival] = set()
        self.turned_away = 0
        self.is_closed = False

    def __repr__(self) -> str:
        return f"<Entrance arrivals={len(self.arrivals)} turned_away={self.turned_away} tls={self.tls}>"

    def accept(self) -> "Arrival":
        return Arrival(self)

    @property
    def has_room(self) -> bool:
        limit = self.traffic.limits.max_connections
        return not self.is_closed and (
            not limit or len(self.arrivals) + len(self.traffic.connections) < limit
        )

    def believes(self, host: str) -> bool:
        """Whether this address may say for whom it opens a connection."""
        if host in self._trusted_proxies:
            return True
        if not self._has_told_of_proxies:
            self._has_told_of_proxies = True
            _log.warning(
                "a PROXY preamble came from %s, which is not among proxyProtocolTrustedAddresses; "
                "such connections are closed",
                host,
            )
        return False

    def close_late(self) -> None:
        """Close arrivals that said nothing for too long, or do not come to the point."""
        now = self.traffic.clock.monotonic()
        for arrival in list(self.arrivals):
            if now >= arrival.deadline:
                arrival.turn_away("it took too long")

    def close(self) -> None:
        """Let nobody in any more."""
        self.is_closed = True
        for arrival in list(self.arrivals):
            arrival.turn_away("the server stops")


class Arrival(asyncio.Protocol):
    """An accepted socket of which we do not know yet what it speaks."""

    def __init__(self, entrance: Entrance) -> None:
        self.deadline = 0.0
        self._entrance = entrance
        self._transport = NOT_CONNECTED
        self._peer = ""
        self._host = ""
        self._held = b""
        self._is_turned_away = False
        self._is_preamble_read = False
        self._has_spoken = False
        self._source: str | None = None

    def __repr__(self) -> str:
        return f"<Arrival from {self._peer} held_bytes={len(self._held)} deadline={self.deadline:.1f}>"

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        name = transport.get_extra_info("peername")
        self._peer = format_socket_address(name)
        self._host = str(name[0]) if name else ""
        traffic = self._entrance.traffic
        self.deadline = traffic.clock.monotonic() + traffic.limits.idle_s
        if not self._entrance.has_room:
            self.turn_away("no room for another connection")
        else:
            self._entrance.arrivals.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._entrance.arrivals.discard(self)

    def data_received(self, data: bytes) -> None:
        if not self._has_spoken:
            self._has_spoken = True
            traffic = self._entrance.traffic
            self.deadline = traffic.clock.monotonic() + traffic.limits.handshake_s
        data = self._held + data
        if not self._is_preamble_read and starts_like_preamble(data):
            if not self._entrance.believes(self._host):
                self.turn_away("a PROXY preamble from an address that is not trusted")
                return
            try:
                preamble = read_preamble(data)
            except RemoteProtocolError as problem:
                self.turn_away(str(problem))
                return
            if preamble is None:
                self._held = data
                return
            self._is_preamble_read = True
            self._held = b""
            length, self._source = preamble
            data = data[length:]
            if not data:
                return
        self._enter(data)

    def _enter(self, data: bytes) -> None:
        tls = self._entrance.tls
        connection = Connection(self._entrance.traffic, self._source)
        if data[0] != _TLS_HANDSHAKE:
            if tls is not None and tls.is_enforced:
                self.turn_away("it does not speak TLS, which is enforced")
                return
            self._leave(connection)
            self._transport.set_protocol(connection)
            connection.connection_made(self._transport)
            connection.data_received(data)
            return
        context = tls.context() if tls is not None else None
        if context is None:
            self.turn_away("it speaks TLS, which is not on offer")
            return
        end = partial(self._end_handshake, connection)
        stream = TlsStream(context, self._transport, connection, end)
        self._transport.set_protocol(stream)
        stream.data_received(data)

    def _end_handshake(self, connection: Connection, problem: Exception | None) -> None:
        if problem is None:
            self._leave(connection)
        else:
            self._entrance.arrivals.discard(self)
            if not self._is_turned_away:
                self._note_turning_away(f"the TLS handshake failed: {problem}")

    def _leave(self, connection: Connection) -> None:
        self._entrance.arrivals.discard(self)
        self._entrance.welcome(connection)

    def turn_away(self, reason: str) -> None:
        self._note_turning_away(reason)
        self._transport.abort()

    def _note_turning_away(self, reason: str) -> None:
        self._is_turned_away = True
        self._entrance.turned_away += 1
        _log.info("turned a connection away peer=%s: %s", self._peer, reason)
