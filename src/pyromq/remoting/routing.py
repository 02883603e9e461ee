"""Which method answers which request: one table, built from the methods marked with `@handles`.

A plain method answers at once and runs where the request was read. A method that may have to wait is an
`async def`, which costs a task, or has `may_wait` and returns a future only when it has to wait.
"""

from asyncio import Future
from collections.abc import Callable, Coroutine, Hashable, Mapping
from functools import cache, partial
from inspect import getmembers_static, iscoroutinefunction
from math import inf
from types import MappingProxyType
from typing import Any, TypeAlias, TypeVar, cast

import msgspec

from pyromq.errors import LocalProtocolError
from pyromq.protocol.catalogue import (
    CATALOGUE,
    Answer,
    Declaration,
    Peer,
    RawAnswer,
    Request,
    declaration_of,
)
from pyromq.protocol.frame import Frame
from pyromq.protocol.needs import Action, Need, ResourceType, need_of
from pyromq.remoting.channel import Channel
from pyromq.security.replays import SignedSession

Reply: TypeAlias = Answer | RawAnswer | None
"""The result of a handler; None means SUCCESS without anything else."""


class Caller(msgspec.Struct, gc=False, eq=False):
    """The sender of a request: its channel and the request's frame."""

    channel: Channel
    frame: Frame
    received_at: float = inf
    """When the frame was read, by the monotonic clock: it may have waited while others had their turn."""
    user: str = ""
    """The user, under access control."""
    session: SignedSession | None = None
    """Of its full signature, if others could have overheard it: it was not sent before."""
    authority: Callable[["Caller", Need], object] | None = None
    """Raises Refused; None without access control. It does not hold the caller: the garbage collector does
    not see a cycle here."""
    allowed: str = ""
    """The audit log's words for it, if it is a change."""
    changed: str = ""
    """The change, from which value to which, for the audit log."""

    @property
    def check(self) -> Callable[[Need], object] | None:
        return None if self.authority is None else partial(self.authority, self)

    def require(self, *actions: Action, topic: str) -> None:
        """For topics that only the handler finds out; raises Refused."""
        if self.authority is not None:
            self.authority(self, need_of(actions, ResourceType.TOPIC, topic))

    @property
    def address(self) -> str:
        return self.channel.peer_address

    @property
    def version(self) -> int:
        return self.frame.version

    @property
    def language(self) -> int:
        return self.frame.language


Handler: TypeAlias = Callable[[Any, Caller], Any]

R = TypeVar("R", bound=Request[Any])
S = TypeVar("S")
T = TypeVar("T", bound="Reply | Future[Any] | Coroutine[Any, Any, Reply]")

_MARK = "_handles_requests"


def handles(
    request_type: type[R], *, may_wait: bool = False
) -> Callable[[Callable[[S, R, Caller], T]], Callable[[S, R, Caller], T]]:
    """Mark the method that answers a request.

    `may_wait`: the method is a plain `def` that sometimes returns a future of its answer.
    """

    def mark(method: Callable[[S, R, Caller], T]) -> Callable[[S, R, Caller], T]:
        setattr(method, _MARK, (declaration_of(request_type), may_wait))
        return method

    return mark


class RequestRoute:
    __slots__ = ("declaration", "handler", "is_async", "may_answer_later", "may_wait")

    def __init__(
        self,
        declaration: Declaration,
        handler: Callable[[Any, Caller], Any],
        may_wait: bool,
        may_answer_later: bool = False,
    ) -> None:
        self.declaration = declaration
        self.handler = handler
        self.is_async = iscoroutinefunction(handler)
        self.may_wait = may_wait or self.is_async
        """Whether it is refused under too much load."""
        self.may_answer_later = self.may_wait or may_answer_later

    def __repr__(self) -> str:
        kind = "async" if self.is_async else "may wait" if self.may_wait else "inline"
        return f"<RequestRoute {self.declaration.name} code={self.declaration.code} {kind}>"


_NOTHING: Mapping[int, str] = MappingProxyType({})


@cache
def _marks(service: Any) -> list[tuple[str, tuple[Declaration, bool]]]:
    """The marked methods of a class; looking at all its members takes a while, and a front has a table for
    each client."""
    members = ((name, getattr(member, _MARK, None)) for name, member in getmembers_static(service))
    return [(name, mark) for name, mark in members if mark is not None]


class Routes:
    """The table of one server: every marked method of its services, by request code.

    `unserved` gives, by code, the reason why a request addressed to this server is not supported.
    """

    def __init__(self, *services: object, serving: Peer, unserved: Mapping[int, str] = _NOTHING) -> None:
        self.by_code: dict[int, RequestRoute] = {}
        self.serving = serving
        self.unserved = dict(unserved)
        for service in services:
            for name, (declaration, may_wait) in _marks(cast(Hashable, type(service))):
                self._add(declaration, getattr(service, name), may_wait)

    def __repr__(self) -> str:
        return f"<Routes of {self.serving} handled={len(self.by_code)} unserved={len(self.unserved)}>"

    def _add(self, declaration: Declaration, handler: Handler, may_wait: bool) -> None:
        if not declaration.to & self.serving:
            raise LocalProtocolError(f"{declaration} is not addressed to {self.serving}")
        if declaration.code in self.by_code:
            raise LocalProtocolError(f"{declaration} is handled twice")
        if declaration.code in self.unserved:
            raise LocalProtocolError(f"{declaration} is handled, but also listed as unserved")
        self.by_code[declaration.code] = RequestRoute(declaration, handler, may_wait)

    def stand_before(self, request_type: type[Request[Any]], wrap: Callable[[Handler], Handler]) -> None:
        """Let `wrap` of a handler answer instead of it, now or later, if this server has one.

        What stands before an `async def` refuses, or returns its coroutine."""
        code = declaration_of(request_type).code
        if (route := self.by_code.get(code)) is not None:
            before = RequestRoute(route.declaration, wrap(route.handler), route.may_wait, True)
            before.is_async = route.is_async
            self.by_code[code] = before

    def missing(self) -> list[Declaration]:
        """Requests that the catalogue addresses to this server and that are neither handled nor unserved."""
        return [
            declaration
            for code, declaration in sorted(CATALOGUE.items())
            if declaration.to & self.serving and code not in self.by_code and code not in self.unserved
        ]
