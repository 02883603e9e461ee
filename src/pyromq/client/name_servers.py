"""Which name server is asked: always the same until it fails, then the next; each once for a question."""

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Protocol, TypeVar

from pyromq.errors import ConnectFailed, Refused, TransportError
from pyromq.protocol.catalogue import Answer, Request
from pyromq.protocol.codes import ResponseCode

_log = logging.getLogger(__name__)

A = TypeVar("A", bound=Answer)

_ASK_ANOTHER = frozenset((ResponseCode.SYSTEM_ERROR, ResponseCode.SYSTEM_BUSY, ResponseCode.GO_AWAY))
"""Refusals that say more about the name server than about the question."""


class Call(Protocol):
    def __call__(self, address: str, request: Request[A], timeout_s: float) -> Awaitable[A]: ...


class NameServers:
    def __init__(
        self,
        addresses: Iterable[str],
        call: Call,
        shuffle: Callable[[list[str]], Any] = random.shuffle,
    ) -> None:
        self._call = call
        self._shuffle = shuffle
        self._addresses = list(addresses)
        # Many clients with the same list spread over all of it.
        shuffle(self._addresses)

    def __repr__(self) -> str:
        return f"<NameServers {self}>"

    def __str__(self) -> str:
        return ";".join(sorted(self._addresses))

    @property
    def addresses(self) -> tuple[str, ...]:
        return tuple(self._addresses)

    @property
    def current(self) -> str | None:
        """The one that is asked next."""
        return self._addresses[0] if self._addresses else None

    def update(self, addresses: Iterable[str]) -> bool:
        """Use these from now on, first the one in use if it is among them. Says whether any changed."""
        wanted = list(dict.fromkeys(addresses))
        if set(wanted) == set(self._addresses):
            return False
        current = self.current
        self._shuffle(wanted)
        if current in wanted:
            wanted.remove(current)
            wanted.insert(0, current)
        self._addresses = wanted
        _log.info("name servers changed addresses=%s", self)
        return True

    async def call(self, request: Request[A], timeout_s: float) -> A:
        """Ask one, and the others if it fails; the last failure is raised when all have failed."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_s
        asked = list(self._addresses)
        problem: Exception | None = None
        for position, address in enumerate(asked):
            share_s = (deadline - loop.time()) / (len(asked) - position)
            if share_s <= 0:
                break
            try:
                return await self._call(address, request, share_s)
            except TransportError as failure:
                problem = failure
            except Refused as refusal:
                if refusal.code not in _ASK_ANOTHER:
                    raise
                problem = refusal
            _log.info("name server failed address=%s: %s", address, problem)
            self._put_last(address)
        if isinstance(problem, TransportError):
            raise type(problem)(f"no name server can be reached (namesrv={self}): {problem}") from problem
        raise problem or ConnectFailed("no address of a name server is known yet")

    def _put_last(self, address: str) -> None:
        if self.current == address:
            self._addresses.append(self._addresses.pop(0))
