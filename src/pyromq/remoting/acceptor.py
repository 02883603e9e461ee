"""Accepts all waiting connections in one turn of the event loop.

By itself, an event loop may accept only one connection per turn. With long turns, a hundred clients that
connect at once would wait for a hundred turns.
"""

import asyncio
import errno
import logging
import resource
import socket
import ssl
from collections.abc import Callable
from math import inf

_log = logging.getLogger(__name__)

_MAX_PER_TURN = 256
"""After this many new connections, the open ones have their turn."""

RESERVED_DESCRIPTORS = 64
"""File descriptors that are never used for connections: a server that cannot open files is useless."""

_PAUSE_S = 1.0
_TLS_S = 10.0
"""A peer that has not proved itself by then is not served."""
_SHORTAGES = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
"""Shortages that usually pass after a while."""


class Acceptor:
    """Owns the socket `listening` and closes it in the end."""

    def __init__(
        self,
        listening: socket.socket,
        backlog: int,
        make_protocol: Callable[[], asyncio.Protocol],
        *,
        tls: Callable[[], ssl.SSLContext | None] | None = None,
        max_per_turn: int = _MAX_PER_TURN,
        reserved_descriptors: int = RESERVED_DESCRIPTORS,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._listening = listening
        self._make_protocol = make_protocol
        self._tls = tls
        self._max_per_turn = max_per_turn
        self._connecting: set[asyncio.Task[None]] = set()
        self._pause: asyncio.TimerHandle | None = None
        self._is_closed = False
        self._descriptors = _descriptors_for_connections(reserved_descriptors)
        listening.setblocking(False)
        listening.listen(backlog)
        self._loop.add_reader(listening, self._accept)

    def __repr__(self) -> str:
        state = "closed" if self._is_closed else "pausing" if self._pause is not None else "open"
        return f"<Acceptor {state} connecting={len(self._connecting)}>"

    def _accept(self) -> None:
        for _ in range(self._max_per_turn):
            try:
                accepted, _address = self._listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as problem:
                if problem.errno not in _SHORTAGES:
                    raise
                self._pause_after(problem)
                return
            if accepted.fileno() >= self._descriptors:
                accepted.close()
                self._pause_after(OSError(errno.EMFILE, "the last descriptors are reserved for files"))
                return
            accepted.setblocking(False)
            task = self._loop.create_task(self._connect(accepted))
            # The loop itself holds tasks only weakly.
            self._connecting.add(task)
            task.add_done_callback(self._connecting.discard)

    async def _connect(self, accepted: socket.socket) -> None:
        try:
            context = None if self._tls is None else self._tls()
            await self._loop.connect_accepted_socket(
                self._make_protocol,
                accepted,
                ssl=context,
                ssl_handshake_timeout=None if context is None else _TLS_S,
            )
        except OSError as problem:
            accepted.close()
            _log.info("a connection ended while it was accepted: %s", problem)

    def _pause_after(self, problem: OSError) -> None:
        """Pause: the sockets stay ready, so the loop would call again at once, and accepting would fail."""
        _log.error("no connections are accepted for %s s: %s", _PAUSE_S, problem)
        self._loop.remove_reader(self._listening)
        self._pause = self._loop.call_later(_PAUSE_S, self._resume)

    def _resume(self) -> None:
        self._pause = None
        self._loop.add_reader(self._listening, self._accept)

    async def close(self) -> None:
        """Accept no more connections; those already accepted are finished."""
        if self._is_closed:
            return
        self._is_closed = True
        if self._pause is not None:
            self._pause.cancel()
        self._loop.remove_reader(self._listening)
        self._listening.close()
        if self._connecting:
            await asyncio.wait(self._connecting)


def _descriptors_for_connections(reserved: int = RESERVED_DESCRIPTORS) -> float:
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return (
        inf
        if limit == resource.RLIM_INFINITY
        else limit - min(reserved, limit * reserved // (4 * RESERVED_DESCRIPTORS))
    )
