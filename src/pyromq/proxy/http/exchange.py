"""One request and its answer, whichever version of HTTP carries them.

An answer begins once, may be written in parts, and ends. A part waits until the peer has read enough of what
came before it; a peer that takes too long is cut off, and its handler gets `PeerGone`.
"""

import asyncio
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Protocol
from urllib.parse import parse_qsl, unquote

import msgspec

from pyromq.proxy.http.problems import HttpError

if TYPE_CHECKING:
    from pyromq.proxy.http.websocket import WebSocket

Headers = list[tuple[bytes, bytes]]


class Head(msgspec.Struct, frozen=True):
    """The head of a request: everything before its body."""

    method: str
    path: tuple[str, ...]
    """Its parts, decoded."""
    query: Mapping[str, str]
    headers: Mapping[str, str]
    """Names in lower case; values of equal names are joined with commas."""
    peer_address: str
    is_secure: bool

    @classmethod
    def of(
        cls,
        method: bytes,
        target: bytes,
        headers: list[tuple[bytes, bytes]],
        peer_address: str,
        is_secure: bool,
    ) -> "Head":
        path, _, query = target.decode("latin-1").partition("?")
        named: dict[str, str] = {}
        for name, value in headers:
            key, text = name.decode("latin-1").lower(), value.decode("latin-1")
            named[key] = f"{named[key]}, {text}" if key in named else text
        parts = tuple(unquote(part) for part in path.split("/")[1:])
        asked = dict(parse_qsl(query, keep_blank_values=True, max_num_fields=32))
        return cls(method.decode("latin-1"), parts, asked, named, peer_address, is_secure)


class RequestBody:
    """The body of a request as it comes in, within limits."""

    def __init__(self, max_bytes: int, seconds: float, hold: Callable[[int], bool]) -> None:
        """`hold` takes bytes that are kept now, or given up if negative; it returns whether there is room."""
        self.max_bytes = max_bytes
        self._seconds = seconds
        self._hold = hold
        self._pieces = bytearray()
        self._problem: HttpError | None = None
        self._ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    @property
    def is_whole(self) -> bool:
        """Whether all of it has come, and nothing was thrown away."""
        return self._ended.done() and self._problem is None

    def feed(self, data: bytes) -> None:
        if self._problem is not None or not data:
            return
        if len(self._pieces) + len(data) > self.max_bytes:
            self._refuse(HttpError(413, f"the body is larger than {self.max_bytes} bytes"))
        elif not self._hold(len(data)):
            self._refuse(HttpError(503, "the unfinished requests of others take all the room"))
        else:
            self._pieces += data

    def _refuse(self, problem: HttpError) -> None:
        self.forget()
        self._problem = problem
        self.end()

    def end(self) -> None:
        if not self._ended.done():
            self._ended.set_result(None)

    def take(self) -> bytes:
        """The bytes so far; the rest is not a body."""
        taken = bytes(self._pieces)
        self.forget()
        return taken

    def forget(self) -> None:
        self._hold(-len(self._pieces))
        self._pieces.clear()

    async def read(self) -> bytes:
        """All of it. Raises HttpError if it is too large or takes too long."""
        try:
            async with asyncio.timeout(self._seconds):
                await asyncio.shield(self._ended)
        except TimeoutError:
            raise HttpError(408, f"the body did not arrive within {self._seconds:g} s") from None
        if self._problem is not None:
            raise self._problem
        return bytes(self._pieces)


class Exchange(Protocol):
    head: Head
    body: RequestBody
    answer_has_begun: bool
    """Whether the answer has begun."""

    async def begin(self, status: int, headers: Headers) -> None: ...

    async def write(self, data: bytes) -> None:
        """Send a part of the answer. Raises PeerGone."""
        ...

    def end(self) -> None:
        """The answer is complete."""
        ...

    def socket(self) -> "WebSocket | None":
        """The exchange as a WebSocket, if the peer asks for one and this version of HTTP has them."""
        ...
