"""From an accepted socket to its first frame: the connection limit, a PROXY preamble, TLS or plain.

The first byte decides. A preamble is read from trusted proxies only; from any other address it closes the
connection. A plain connection replaces the protocol of its transport, so the handshake costs nothing later.
"""

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import cast

from pyromq.errors import RemoteProtocolError
from pyromq.remoting.addresses import format_socket_address
from pyromq.remoting.connection import Connection
from pyromq.remoting.connection_group import ConnectionGroup
from pyromq.remoting.networks import Networks
from pyromq.remoting.outbox import NOT_CONNECTED
from pyromq.remoting.proxy_protocol import read_preamble, starts_like_preamble
from pyromq.remoting.tls import TlsServer
from pyromq.remoting.tls_stream import TlsStream

_log = logging.getLogger(__name__)

_TLS_HANDSHAKE = 0x16


class Handshake:
    """The pending connections of one server: accepted sockets that have not sent a frame yet."""

    def __init__(
        self,
        group: ConnectionGroup,
        tls: TlsServer | None,
        on_accept: Callable[[Connection], None],
        trusted_proxies: Networks,
    ) -> None:
        """`on_accept` is called with every accepted connection before its first frame is handled."""
        self.group = group
        self.tls = tls
        self.on_accept = on_accept
        self._trusted_proxies = trusted_proxies
        self._has_warned = False
        self.pending: set[PendingConnection] = set()
        self.rejected = 0
        self.is_closed = False

    def __repr__(self) -> str:
        return f"<Handshake pending={len(self.pending)} rejected={self.rejected} tls={self.tls}>"

    def new_connection(self) -> "PendingConnection":
        return PendingConnection(self)

    @property
    def has_room(self) -> bool:
        limit = self.group.limits.max_connections
        return not self.is_closed and (not limit or len(self.pending) + len(self.group.connections) < limit)

    def trusts(self, host: str) -> bool:
        """Whether this address may send a PROXY preamble."""
        if host in self._trusted_proxies:
            return True
        if not self._has_warned:
            self._has_warned = True
            _log.warning(
                "%s sent a PROXY preamble but is not in proxyProtocolTrustedAddresses; "
                "such connections are closed",
                host,
            )
        return False

    def close_overdue(self) -> None:
        """Close connections that sent nothing, or did not finish their handshake, in time."""
        now = self.group.clock.monotonic()
        for connection in list(self.pending):
            if now >= connection.deadline:
                connection.reject("the handshake took too long")

    def close(self) -> None:
        """Reject all pending connections, and all new ones."""
        self.is_closed = True
        for connection in list(self.pending):
            connection.reject("the server is stopping")


class PendingConnection(asyncio.Protocol):
    """An accepted socket whose protocol is not known yet."""

    def __init__(self, handshake: Handshake) -> None:
        self.deadline = 0.0
        self._handshake = handshake
        self._transport = NOT_CONNECTED
        self._peer = ""
        self._host = ""
        self._held = b""
        self._is_rejected = False
        self._is_preamble_read = False
        self._has_spoken = False
        self._source: str | None = None

    def __repr__(self) -> str:
        return (
            f"<PendingConnection from {self._peer} held_bytes={len(self._held)} deadline={self.deadline:.1f}>"
        )

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        name = transport.get_extra_info("peername")
        self._peer = format_socket_address(name)
        self._host = str(name[0]) if name else ""
        group = self._handshake.group
        self.deadline = group.clock.monotonic() + group.limits.idle_s
        if not self._handshake.has_room:
            self.reject("the server has too many connections, or is stopping")
        else:
            self._handshake.pending.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._handshake.pending.discard(self)

    def data_received(self, data: bytes) -> None:
        if not self._has_spoken:
            self._has_spoken = True
            group = self._handshake.group
            self.deadline = group.clock.monotonic() + group.limits.handshake_s
        data = self._held + data
        if not self._is_preamble_read and starts_like_preamble(data):
            if not self._handshake.trusts(self._host):
                self.reject("a PROXY preamble from an address that is not trusted")
                return
            try:
                preamble = read_preamble(data)
            except RemoteProtocolError as problem:
                self.reject(str(problem))
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
        self._choose_protocol(data)

    def _choose_protocol(self, data: bytes) -> None:
        tls = self._handshake.tls
        connection = Connection(self._handshake.group, self._source)
        if data[0] != _TLS_HANDSHAKE:
            if tls is not None and tls.is_enforced:
                self.reject("it does not speak TLS, which is required")
                return
            self._accept(connection)
            self._transport.set_protocol(connection)
            connection.connection_made(self._transport)
            connection.data_received(data)
            return
        context = tls.context() if tls is not None else None
        if context is None:
            self.reject("it speaks TLS, which is not enabled")
            return
        end = partial(self._end_handshake, connection)
        stream = TlsStream(context, self._transport, connection, end)
        self._transport.set_protocol(stream)
        stream.data_received(data)

    def _end_handshake(self, connection: Connection, problem: Exception | None) -> None:
        if problem is None:
            self._accept(connection)
        else:
            self._handshake.pending.discard(self)
            if not self._is_rejected:
                self._note_rejection(f"the TLS handshake failed: {problem}")

    def _accept(self, connection: Connection) -> None:
        self._handshake.pending.discard(self)
        self._handshake.on_accept(connection)

    def reject(self, reason: str) -> None:
        self._note_rejection(reason)
        self._transport.abort()

    def _note_rejection(self, reason: str) -> None:
        self._is_rejected = True
        self._handshake.rejected += 1
        _log.info("rejected a connection peer=%s: %s", self._peer, reason)
