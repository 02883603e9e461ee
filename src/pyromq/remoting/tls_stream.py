"""TLS between a transport and a protocol.

A `TlsStream` is the protocol of the socket's transport, and the transport of the protocol above it. The
protocol above gets `connection_made` when the TLS handshake is done.
"""

import asyncio
import ssl
from collections.abc import Callable
from contextlib import suppress
from typing import Any

_READ_BYTES = 256 * 1024


class TlsStream(asyncio.Transport, asyncio.Protocol):
    def __init__(
        self,
        context: ssl.SSLContext,
        transport: asyncio.Transport,
        on_handshake_end: Callable[[str | None, Exception | None], asyncio.Protocol | None],
    ) -> None:
        """`on_handshake_end` is called once, with the protocol that was agreed with the peer, if any, or with
        the error. After a success it returns the protocol above.
        """
        super().__init__()
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self._transport = transport
        self._protocol: asyncio.Protocol = asyncio.Protocol()
        self._on_handshake_end = on_handshake_end
        self._is_ready = False
        self._is_closing = False
        self._problem: Exception | None = None

    def __repr__(self) -> str:
        state = "closing" if self._is_closing else "ready" if self._is_ready else "shaking hands"
        return f"<TlsStream {state} version={self._tls.version()}>"

    # Towards the socket

    def data_received(self, data: bytes) -> None:
        if self._is_closing:
            return
        self._incoming.write(data)
        try:
            if not self._is_ready:
                self._shake_hands()
            if self._is_ready:
                self._read()
        except ssl.SSLError as problem:
            self._problem = problem
            self._send()
            self._is_closing = True
            self._transport.close()

    def _shake_hands(self) -> None:
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            self._send()
            return
        self._is_ready = True
        self._send()
        self._protocol = self._on_handshake_end(self._tls.selected_alpn_protocol(), None) or self._protocol
        self._protocol.connection_made(self)

    def _read(self) -> None:
        pieces: list[bytes] = []
        has_ended = False
        try:
            while piece := self._tls.read(_READ_BYTES):
                pieces.append(piece)
            has_ended = True
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLZeroReturnError:
            has_ended = True
        finally:
            # Handle what arrived completely even if an error follows, as on a plain connection.
            if pieces:
                self._protocol.data_received(b"".join(pieces))
        self._send()
        if has_ended:
            self.close()

    def _send(self) -> None:
        if self._outgoing.pending:
            self._transport.write(self._outgoing.read())

    def connection_lost(self, exc: Exception | None) -> None:
        self._is_closing = True
        if self._is_ready:
            self._protocol.connection_lost(self._problem or exc)
        else:
            lost = (
                self._problem
                or exc
                or ConnectionResetError("the peer closed the connection during the handshake")
            )
            self._on_handshake_end(None, lost)

    def pause_writing(self) -> None:
        if self._is_ready:
            self._protocol.pause_writing()

    def resume_writing(self) -> None:
        if self._is_ready:
            self._protocol.resume_writing()

    # Towards the protocol

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if self._is_closing:
            return
        view = memoryview(data)
        while view:
            view = view[self._tls.write(view) :]
        self._send()

    def close(self) -> None:
        if self._is_closing:
            return
        self._is_closing = True
        # `unwrap` sends close_notify, then fails because the peer has not sent its own. Do not wait for it.
        with suppress(ssl.SSLError):
            self._tls.unwrap()
        self._send()
        self._transport.close()

    def abort(self) -> None:
        self._is_closing = True
        self._transport.abort()

    def is_closing(self) -> bool:
        return self._is_closing

    def pause_reading(self) -> None:
        self._transport.pause_reading()

    def resume_reading(self) -> None:
        self._transport.resume_reading()

    def get_write_buffer_size(self) -> int:
        return self._transport.get_write_buffer_size()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._transport.set_write_buffer_limits(high, low)

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        if name == "ssl_object":
            return self._tls
        return self._transport.get_extra_info(name, default)
