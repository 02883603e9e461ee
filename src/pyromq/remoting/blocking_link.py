"""One blocking connection to a server with many requests in flight, for synchronous programs.

Answers may come in any order; each belongs to the request with the same number. `receive` returns a body
without copying it, as a view of the buffer it was read into.
"""

import itertools
import select
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from struct import Struct
from typing import Any, TypeVar

from pyromq.errors import CallTimeout, ConnectFailed, ConnectionLost, Refused, RemoteProtocolError
from pyromq.protocol.binary_header import decode_binary_header
from pyromq.protocol.catalogue import Answer, Request, decode_answer, encode_request
from pyromq.protocol.frame import Frame, HeaderForm
from pyromq.protocol.framing import encode_head
from pyromq.protocol.json_header import decode_json_header
from pyromq.remoting.addresses import parse_address
from pyromq.remoting.tls import TlsClient

A = TypeVar("A", bound=Answer)

MAX_FRAME_BYTES = 256 * 1024 * 1024
"""Answers may be larger than a server's limit for requests, but not unlimited."""

Data = bytes | memoryview

_PREFIX = Struct(">iI")
_COPIED_BYTES = 16 * 1024


def _allocate(size_bytes: int) -> memoryview:
    return memoryview(bytearray(size_bytes))


@dataclass(frozen=True, slots=True)
class LinkOptions:
    timeout_ms: int = 30_000
    """For connecting, and for every wait for the server."""
    tls: TlsClient | None = None
    new_signer: Callable[[], Callable[[Frame], None]] | None = None
    """Called for each connection: what it returns gets every request before it is sent, to sign it."""
    allocate: Callable[[int], memoryview] = _allocate
    """Returns a buffer of that many bytes to read into."""
    connect: Callable[[tuple[str, int], float], socket.socket] = socket.create_connection
    wait: Callable[[float], object] = threading.Event().wait
    """Passes the seconds before another attempt."""
    monotonic: Callable[[], float] = time.monotonic
    """Seconds for deadlines, of the clock of whoever waits."""


class Link:
    """A connection that one thread uses."""

    def __init__(self, address: str, options: LinkOptions) -> None:
        self.address = address
        self.waiting = 0
        """Requests whose answers have not been read."""
        self._options = options
        self._numbers = itertools.count(1)
        self._sign = options.new_signer() if options.new_signer is not None else None
        context = options.tls.context() if options.tls is not None else None
        try:
            plain = options.connect(parse_address(address), options.timeout_ms / 1000)
        except (OSError, ValueError) as problem:
            raise ConnectFailed(f"{address}: {problem}") from problem
        try:
            plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._socket: socket.socket = context.wrap_socket(plain) if context is not None else plain
        except OSError as problem:
            plain.close()
            raise ConnectFailed(f"{address}: {problem}") from problem

    def __repr__(self) -> str:
        return f"<Link {self.address} waiting={self.waiting}>"

    def close(self) -> None:
        self._socket.close()

    def is_closed_by_peer(self) -> bool:
        """Whether the peer has closed; always False with TLS, where only the next use can tell."""
        if isinstance(self._socket, ssl.SSLSocket):
            return False
        self._socket.settimeout(0)
        try:
            return not self._socket.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return False
        except OSError:
            return True
        finally:
            self._socket.settimeout(self._options.timeout_ms / 1000)

    def call(self, request: Request[A]) -> A:
        number = self.send(request)
        frame, body = self.receive()
        if frame.opaque != number:
            raise RemoteProtocolError(f"{self.address} answered request {frame.opaque}, not {number}")
        frame.body = bytes(body)
        return decode_answer(type(request), frame, self.address)

    def call_all(self, requests: Sequence[Request[A]]) -> list[A | Refused]:
        """Send all requests in one write, so that the server answers them at about the same moment. Returns
        answers and refusals in the order of the requests.
        """
        order: dict[int, int] = {}
        written = bytearray()
        for index, request in enumerate(requests):
            frame, body = self._frame(request)
            order[frame.opaque] = index
            written += encode_head(frame, len(body), MAX_FRAME_BYTES) + body
        self._write(written)
        self.waiting += len(requests)
        answers: list[Any] = [None] * len(requests)
        while self.waiting:
            frame, body = self.receive()
            if frame.opaque not in order:
                raise RemoteProtocolError(
                    f"{self.address} answered request {frame.opaque}, which was not sent"
                )
            index = order.pop(frame.opaque)
            frame.body = bytes(body)
            try:
                answers[index] = decode_answer(type(requests[index]), frame, self.address)
            except Refused as refusal:
                answers[index] = refusal
        return answers

    def send(self, request: Request[Any], body: Data | None = None, *, oneway: bool = False) -> int:
        """Send without waiting; returns the number of the answer to come. Does not copy a large `body`."""
        frame, body = self._frame(request, body, oneway=oneway)
        head = encode_head(frame, len(body), MAX_FRAME_BYTES)
        if len(body) < _COPIED_BYTES:
            self._write(head + bytes(body))
        else:
            self._write(head)
            self._write(body)
        if not oneway:
            self.waiting += 1
        return frame.opaque

    def _frame(
        self, request: Request[Any], body: Data | None = None, *, oneway: bool = False
    ) -> tuple[Frame, Data]:
        frame = encode_request(request, next(self._numbers), oneway=oneway)
        body = frame.body if body is None else body
        if self._sign is not None:
            frame.body = bytes(body)
            self._sign(frame)
        return frame, body

    def _write(self, data: Data | bytearray) -> None:
        try:
            self._socket.sendall(data)
        except TimeoutError:
            raise CallTimeout(f"{self.address}: nothing sent for {self._options.timeout_ms} ms") from None
        except OSError as problem:
            raise ConnectionLost(f"{self.address}: {problem}") from problem

    def receive(self) -> tuple[Frame, memoryview]:
        """The next answer. Servers also send requests, which are passed over."""
        while True:
            frame, body = self._receive_frame()
            if frame.is_response:
                self.waiting -= 1
                return frame, body

    def receive_request(self, timeout_s: float) -> Frame | None:
        """The next frame if the server asks something in it; None if nothing begins to come for that long."""
        is_buffered = isinstance(self._socket, ssl.SSLSocket) and self._socket.pending()
        if not is_buffered:
            poll = select.poll()
            poll.register(self._socket, select.POLLIN)
            if not poll.poll(timeout_s * 1000):
                return None
        frame, body = self._receive_frame()
        if frame.is_response:
            return None
        frame.body = bytes(body)
        return frame

    def _receive_frame(self) -> tuple[Frame, memoryview]:
        prefix = self._read(_PREFIX.size)
        length, form_and_header = _PREFIX.unpack(prefix)
        header_length, form = form_and_header & 0xFFFFFF, form_and_header >> 24
        if not 4 <= length <= MAX_FRAME_BYTES or header_length > length - 4 or form > HeaderForm.BINARY:
            raise RemoteProtocolError(f"{self.address} sent bytes that are not a frame")
        content = self._read(length - 4)
        header = bytes(content[:header_length])
        is_json = form == HeaderForm.JSON
        frame = decode_json_header(header) if is_json else decode_binary_header(header)
        return frame, content[header_length:]

    def _read(self, size_bytes: int) -> memoryview:
        whole = self._options.allocate(size_bytes)
        read = 0
        try:
            while read < size_bytes:
                count = self._socket.recv_into(whole[read:], size_bytes - read)
                if not count:
                    raise ConnectionLost(f"{self.address} closed the connection")
                read += count
        except TimeoutError:
            raise CallTimeout(f"{self.address}: no answer for {self._options.timeout_ms} ms") from None
        except ConnectionLost:
            raise
        except OSError as problem:
            raise ConnectionLost(f"{self.address}: {problem}") from problem
        return whole


class Links:
    """Open connections by address. A connection with outstanding answers is closed, not reused."""

    def __init__(self, options: LinkOptions) -> None:
        self._options = options
        self._open: dict[str, Link] = {}
        self.wait = options.wait

    def __repr__(self) -> str:
        return f"<Links {sorted(self._open)}>"

    def take(self, address: str) -> Link:
        """An idle connection, opened if there is none; it belongs to the caller until `give_back`."""
        link = self._open.pop(address, None)
        if link is not None and link.is_closed_by_peer():
            # Servers close idle connections; that is not a failure.
            link.close()
            link = None
        return link if link is not None else Link(address, self._options)

    def give_back(self, link: Link) -> None:
        if link.waiting or link.address in self._open:
            link.close()
        else:
            self._open[link.address] = link

    @contextmanager
    def borrow(self, address: str) -> Iterator[Link]:
        """Take a connection for the length of a `with`; one that failed inside is closed."""
        link = self.take(address)
        try:
            yield link
        except Refused:
            self.give_back(link)
            raise
        except BaseException:
            link.close()
            raise
        self.give_back(link)

    def close(self) -> None:
        for link in self._open.values():
            link.close()
        self._open.clear()
