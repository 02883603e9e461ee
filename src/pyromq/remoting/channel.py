"""Whoever sent a request, as handlers and tables see them: someone with an address who can be asked back.

A connection is one. A front that speaks another protocol to its clients gives each of them one.
"""

from collections.abc import Callable
from typing import Any, Protocol, TypeVar

from pyromq.protocol.catalogue import Answer, Request

A = TypeVar("A", bound=Answer)


class Channel(Protocol):
    """Hashed and compared by identity: two channels of one peer are two."""

    def __hash__(self) -> int: ...

    @property
    def peer_address(self) -> str: ...

    @property
    def is_open(self) -> bool: ...

    async def call(self, request: Request[A], timeout_s: float) -> A:
        """Send a request and wait for its answer.

        Raises Refused, CallTimeout, ConnectionLost, or RemoteProtocolError if the answer cannot be read.
        """
        ...

    def send_oneway(self, request: Request[Any]) -> None:
        """Send a request that nobody answers; raises ConnectionLost."""
        ...

    def on_close(self, callback: "Callable[[Any], None]") -> None:
        """Call back once, with this channel, when it has ended."""
        ...

    def close(self) -> None: ...
