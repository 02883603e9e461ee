"""Whether a caller may send a request; the server asks for every request, on every path.

The fast path does not read enough of a request to ask. A connection may use it only while the admission
vouches for it, and only for what its grants say.
"""

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

from pyromq.protocol.catalogue import Declaration, Request
from pyromq.remoting.routing import Caller
from pyromq.security.replays import SignedSession
from pyromq.security.signature import SigningKey

MAX_GRANTS = 10_000
"""The limit of each kind of grants on one connection."""


class Proof(NamedTuple):
    """The checks of the fast path for each request on a connection that others could write to."""

    key: SigningKey
    """Of RocketMQ's signature; a full one is checked instead, if the request has it."""
    full_key: SigningKey
    session: SignedSession | None
    """Of the full signatures that it accepts; the general path decides about others."""
    requires_full: bool
    max_send_age_ms: int
    """How far the time of a send may be from now; 0 means no limit."""
    max_age_ms: int
    """The same for the time of a full signature."""
    now_ms: Callable[[], int]


class Grants:
    """The requests that the fast path may accept from a connection: those like earlier authorized ones."""

    __slots__ = ("access_key", "proof", "pulls", "sends")

    def __init__(self, access_key: bytes, proof: Proof | None = None) -> None:
        """`access_key`: the field that each request must have; empty means that it must have none."""
        self.access_key = access_key
        self.proof = proof
        """None if no one else can write to the connection."""
        self.sends: set[bytes] = set()
        """Topics of sends, and of transactions that end."""
        self.pulls: set[tuple[bytes, bytes]] = set()
        """Topics and groups, also of acknowledgements."""

    def __repr__(self) -> str:
        return f"<Grants of {self.access_key!r} sends={len(self.sends)} pulls={len(self.pulls)}>"

    def allow_send(self, topic: str) -> None:
        if len(self.sends) >= MAX_GRANTS:
            self.sends.clear()
        self.sends.add(topic.encode("utf-8", "replace"))

    def allow_pull(self, topic: str, group: str) -> None:
        if len(self.pulls) >= MAX_GRANTS:
            self.pulls.clear()
        self.pulls.add((topic.encode("utf-8", "replace"), group.encode("utf-8", "replace")))


class Admission(Protocol):
    """`identify` and `authorize` return to say yes and raise Refused to say no."""

    version: int
    """Changes when the rules change. A connection is vouched for while its `vouched_version` equals this
    number: everything that its grants allow, or simply everything without grants, would be authorized.
    `identify` and `authorize` set both; a change of the rules invalidates them on all connections at once."""

    def identify(self, caller: Caller) -> None:
        """Check who the caller is. Called before the request is decoded, and also for unsupported codes."""
        ...

    def authorize(self, declaration: Declaration, request: Request[Any], caller: Caller) -> None:
        """Check that the caller may do what `declaration.needs_of(request)` lists."""
        ...

    def finished(self, caller: Caller, declaration: Declaration, code: int) -> None:
        """A change was answered with this code; called if `authorize` has set `caller.allowed`."""
        ...
