"""Lets waiting connections in, all of them in the turn in which they are noticed.

An event loop of its own accord may take in only one each turn: with much to do in a turn, a hundred clients
that come at once would wait for a hundred turns.
"""

import asyncio
import errno
import logging
import resource
import socket
from collections.abc import Callable
from math import inf

_log = logging.getLogger(__name__)

_MOST_AT_ONCE = 256
"""After so many, those who are in already have their turn."""

KEPT_FOR_FILES = 64
"""Descriptors that connections do not get, however many come: without files a server is no use to anyone."""

_PAUSE_S = 1.0
_SHORTAGES = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
"""What goes away by itself, but not at once."""


class Acceptor:
    """`listening` is taken over, and closed with it."""

    def __init__(
        self,
        listening: socket.socket,
        backlog: int,
        make_protocol: Callable[[], asyncio.Protocol],
        *,
        most_at_once: int = _MOST_AT_ONCE,
        kept_descriptors: int = KEPT_FOR_FILES,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._listening = listening
        self._make_protocol = make_protocol
        self._most_at_once = most_at_once
        self._entering: set[asyncio.Task[None]] = set()
        self._pause: asyncio.TimerHandle | None = None
        self._is_closed = False
        self._descriptors = _descriptors_for_connections(kept_descriptors)
        listening.setblocking(False)
        listening.listen(backlog)
        self._loop.add_reader(listening, self._accept)

    def __repr__(self) -> str:
        state = "closed" if self._is_closed else "pausing" if self._pause is not None else "open"
        return f"<Acceptor {state} entering={len(self._entering)}>"

    def _accept(self) -> None:
        for _ in range(self._most_at_once):
            try:
                accepted, _address = self._listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as problem:
                if problem.errno not in _SHORTAGES:
                    raise
                self._rest(problem)
                return
            if accepted.fileno() >= self._descriptors:
                accepted.close()
                self._rest(OSError(errno.EMFILE, "the last descriptors are kept for files"))
                return
            accepted.setblocking(False)
            task = self._loop.create_task(self._enter(accepted))
            # The loop itself holds tasks only weakly.
            self._entering.add(task)
            task.add_done_callback(self._entering.discard)

    async def _enter(self, accepted: socket.socket) -> None:
        try:
            await self._loop.connect_accepted_socket(self._make_protocol, accepted)
        except OSError as problem:
            accepted.close()
            _log.info("a connection ended while it was let in: %s", problem)

    def _rest(self, problem: OSError) -> None:
        """What waits stays ready: asked again at once, it would fail again at once."""
        _log.error("no connections are let in for %s s: %s", _PAUSE_S, problem)
        self._loop.remove_reader(self._listening)
        self._pause = self._loop.call_later(_PAUSE_S, self._go_on)

    def _go_on(self) -> None:
        self._pause = None
        self._loop.add_reader(self._listening, self._accept)

    async def close(self) -> None:
        """Let nobody in any more; those who are just entering do so."""
        if self._is_closed:
            return
        self._is_closed = True
        if self._pause is not None:
            self._pause.cancel()
        self._loop.remove_reader(self._listening)
        self._listening.close()
        if self._entering:
            await asyncio.wait(self._entering)


def _descriptors_for_connections(kept: int = KEPT_FOR_FILES) -> float:
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return inf if limit == resource.RLIM_INFINITY else limit - min(kept, limit * kept // (4 * KEPT_FOR_FILES))
