"""The sender of a request as handlers and tables see it: it has an address and takes requests itself.

A connection is a channel. A front for another protocol implements one for each of its clients.
"""

from collections.abc import Callable
from typing import Any, Protocol, TypeVar

from pyromq.protocol.catalogue import Answer, Request

A = TypeVar("A", bound=Answer)


class Channel(Protocol):
    """Hashed and compared by identity: two channels to the same peer are different."""

    def __hash__(self) -> int: ...

    @property
    def number(self) -> int:
        """Later ones have higher numbers."""
        ...

    @property
    def peer_address(self) -> str: ...

    @property
    def is_open(self) -> bool: ...

    @property
    def is_writable(self) -> bool:
        """Whether it is open, and the peer reads what is sent to it."""
        ...

    async def call(self, request: Request[A], timeout_s: float) -> A:
        """Send a request and wait for its answer.

        Raises Refused, CallTimeout, ConnectionLost, or RemoteProtocolError if the answer cannot be read.
        """
        ...

    def send_oneway(self, request: Request[Any]) -> None:
        """Send a request without an answer; raises ConnectionLost."""
        ...

    def on_close(self, callback: "Callable[[Any], None]") -> None:
        """Call `callback` once with this channel when it has closed."""
        ...

    def close(self) -> None: ...


class SocketChannel(Channel, Protocol):
    """A connection, for its own parts and for the group that counts it."""

    @property
    def partial_bytes(self) -> int: ...
    def idle_for(self, now: float) -> float: ...
    def flush(self) -> None: ...
    def flush_soon(self) -> None: ...
    def yield_turn(self) -> None: ...
    def pause_reading_for_load(self) -> None: ...
    def resume_reading_after_load(self) -> None: ...
    def abort(self) -> None: ...
