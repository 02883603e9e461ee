"""From an accepted socket to its first frame: the connection limit, a PROXY preamble, TLS, HTTP or plain.

The first bytes decide; after TLS, the protocol that was agreed with it. A preamble is read from trusted
proxies only; from any other address it closes the connection. A plain connection replaces the protocol of its
transport, so the handshake costs nothing later.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Protocol, cast

from pyromq.errors import RemoteProtocolError
from pyromq.remoting.addresses import format_socket_address
from pyromq.remoting.connection import Connection
from pyromq.remoting.connection_group import ConnectionGroup
from pyromq.remoting.networks import Networks
from pyromq.remoting.outbox import NOT_CONNECTED
from pyromq.remoting.proxy_protocol import read_preamble, starts_like_preamble
from pyromq.remoting.tls import HTTP1_IN_TLS, HTTP2_IN_TLS, TlsServer
from pyromq.remoting.tls_stream import TlsStream

_log = logging.getLogger(__name__)

_TLS_HANDSHAKE = 0x16
_HTTP2 = b"PRI"
"""How HTTP/2 begins. As a frame of our protocol it would have more than a gigabyte."""
_HTTP1 = (b"GET", b"POS", b"PUT", b"HEA", b"DEL", b"OPT", b"PAT")
"""How requests of HTTP/1.1 begin; the same holds for them."""


class HttpFront(Protocol):
    """Serves the HTTP/2 connections of a port, and those of HTTP/1.1 if it wants them."""

    @property
    def speaks_http1(self) -> bool: ...

    def __len__(self) -> int:
        """The number of open connections."""
        ...

    def new_connection(self, source: str | None) -> asyncio.Protocol:
        """`source`: the address that a trusted proxy gave for the peer."""
        ...

    def new_http1_connection(self, source: str | None) -> asyncio.Protocol: ...


class Handshake:
    """The pending connections of one server: accepted sockets that have not sent a frame yet."""

    def __init__(
        self,
        group: ConnectionGroup,
        tls: TlsServer | None,
        on_accept: Callable[[Connection], None],
        trusted_proxies: Networks,
        http: HttpFront | None = None,
    ) -> None:
        """`on_accept` is called with every accepted connection before its first frame is handled."""
        self.http = http
        self._openings = () if http is None else (_HTTP2, *_HTTP1) if http.speaks_http1 else (_HTTP2,)
        self.group = group
        self.tls = tls
        self.on_accept = on_accept
        self._trusted_proxies = trusted_proxies
        self._has_warned = False
        self.pending: dict[PendingConnection, None] = {}
        self.rejected = 0
        self.is_closed = False

    def __repr__(self) -> str:
        return f"<Handshake pending={len(self.pending)} rejected={self.rejected} tls={self.tls}>"

    def new_connection(self) -> "PendingConnection":
        return PendingConnection(self)

    @property
    def has_room(self) -> bool:
        limit = self.group.limits.max_connections
        count = (
            len(self.pending) + len(self.group.connections) + (len(self.http) if self.http is not None else 0)
        )
        return not self.is_closed and (not limit or count < limit)

    def begins_http(self, data: bytes) -> bool | None:
        """Whether a connection begins as HTTP; None if more bytes must decide."""
        found = [each for each in self._openings if each[: len(data)] == data[:3]]
        return None if found and len(data) < len(_HTTP2) else bool(found)

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
            self._handshake.pending[self] = None

    def connection_lost(self, exc: Exception | None) -> None:
        self._handshake.pending.pop(self, None)

    def data_received(self, data: bytes) -> None:
        if not self._has_spoken:
            self._has_spoken = True
            group = self._handshake.group
            self.deadline = group.clock.monotonic() + group.limits.handshake_s
        data = self._held + data
        begins_http = self._handshake.begins_http(data)
        if begins_http is None:
            self._held = data
            return
        if begins_http:
            self._choose_protocol(data)
            return
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
            if data:
                self.data_received(data)
            return
        self._choose_protocol(data)

    def _choose_protocol(self, data: bytes) -> None:
        tls = self._handshake.tls
        if data[0] != _TLS_HANDSHAKE:
            if tls is not None and tls.is_enforced:
                self.reject("it does not speak TLS, which is required")
                return
            protocol = self._new_protocol(_agreed(data) if self._handshake.begins_http(data) else None)
            self._transport.set_protocol(protocol)
            protocol.connection_made(self._transport)
            protocol.data_received(data)
            return
        context = tls.context() if tls is not None else None
        if context is None:
            self.reject("it speaks TLS, which is not enabled")
            return
        stream = TlsStream(context, self._transport, self._end_handshake)
        self._transport.set_protocol(stream)
        stream.data_received(data)

    def _end_handshake(self, agreed: str | None, problem: Exception | None) -> asyncio.Protocol | None:
        if problem is None:
            return self._new_protocol(agreed)
        self._handshake.pending.pop(self, None)
        if not self._is_rejected:
            self._note_rejection(f"the TLS handshake failed: {problem}")
        return None

    def _new_protocol(self, agreed: str | None) -> asyncio.Protocol:
        """`agreed`: the name of a protocol in TLS."""
        self._handshake.pending.pop(self, None)
        http = self._handshake.http
        if http is not None and agreed == HTTP2_IN_TLS:
            return http.new_connection(self._source)
        if http is not None and agreed == HTTP1_IN_TLS and http.speaks_http1:
            return http.new_http1_connection(self._source)
        connection = Connection(self._handshake.group, self._source)
        self._handshake.on_accept(connection)
        return connection

    def reject(self, reason: str) -> None:
        self._note_rejection(reason)
        self._transport.abort()

    def _note_rejection(self, reason: str) -> None:
        self._is_rejected = True
        self._handshake.rejected += 1
        _log.info("rejected a connection peer=%s: %s", self._peer, reason)


def _agreed(data: bytes) -> str:
    """Which version of HTTP a plain connection begins with, by its name in TLS."""
    return HTTP2_IN_TLS if data[:3] == _HTTP2 else HTTP1_IN_TLS
