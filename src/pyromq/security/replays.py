"""Whether a fully signed request was sent before: one number for each connection, and a bounded memory.

A session belongs to the connection on which its first request came, and its numbers increase there. When the
connection has ended, the session is remembered until all of its requests are too old to be accepted anyway.
If there are too many to remember, nothing that is as old as a forgotten one is accepted any more.
"""

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any, Final, Protocol

from pyromq.errors import PyroError
from pyromq.security.full_signature import Stamp

MAX_SESSIONS: Final = 65_536
"""The limit for each user."""


class Replayed(PyroError):
    """The request was sent before, or this cannot be excluded."""


class Ends(Protocol):
    """A connection."""

    def on_close(self, callback: Callable[[Any], None]) -> None: ...


class SignedSession:
    """The requests that were signed for one connection, as far as they are remembered."""

    __slots__ = ("connection", "latest_ms", "name", "number")

    def __init__(self, name: bytes, connection: Ends) -> None:
        self.name = name
        self.connection: Ends | None = connection
        """None when it has ended."""
        self.number = -1
        """Of the last request that was accepted."""
        self.latest_ms = 0

    def __repr__(self) -> str:
        state = "ended" if self.connection is None else "open"
        return f"<SignedSession {self.name.decode()} {state} number={self.number}>"


class _OfUser:
    def __init__(self) -> None:
        self.by_name: dict[bytes, SignedSession] = {}
        self.ended: deque[SignedSession] = deque()
        self.forgotten_ms = -1
        """The time of the latest request that was forgotten too early."""


class Replays:
    def __init__(self, max_age_ms: int, max_sessions: int = MAX_SESSIONS) -> None:
        """`max_age_ms`: how far the time of a request may be from now."""
        self.max_age_ms = max_age_ms
        self._max_sessions = max_sessions
        self._users: dict[str, _OfUser] = {}

    def __repr__(self) -> str:
        return f"<Replays users={len(self._users)} sessions={len(self)}>"

    def __len__(self) -> int:
        return sum(len(each.by_name) for each in self._users.values())

    def accept(self, user: str, stamp: Stamp, connection: Ends, now_ms: int) -> SignedSession:
        """Remember a request whose signature is right; raises Replayed."""
        age_ms = now_ms - stamp.time_ms
        if abs(age_ms) > self.max_age_ms:
            raise Replayed(
                f"it was signed {age_ms} ms ago by the clock of this server, which accepts"
                f" {self.max_age_ms} ms (maxRequestAgeMillis)"
            )
        sessions = self._users.get(user)
        if sessions is None:
            sessions = self._users[user] = _OfUser()
        session = sessions.by_name.get(stamp.session)
        if session is None:
            session = self._begin(sessions, stamp, connection, now_ms)
        elif session.connection is not connection:
            raise Replayed("it was signed for another connection")
        elif stamp.number <= session.number:
            raise Replayed("it was sent before on this connection")
        session.number = stamp.number
        session.latest_ms = max(session.latest_ms, stamp.time_ms)
        return session

    def _begin(self, sessions: _OfUser, stamp: Stamp, connection: Ends, now_ms: int) -> SignedSession:
        ended = sessions.ended
        while ended and ended[0].latest_ms < now_ms - self.max_age_ms:
            del sessions.by_name[ended.popleft().name]
        if len(sessions.by_name) >= self._max_sessions:
            if not ended:
                raise Replayed(f"its user has {self._max_sessions} signed connections already")
            oldest = ended.popleft()
            del sessions.by_name[oldest.name]
            sessions.forgotten_ms = max(sessions.forgotten_ms, oldest.latest_ms)
        if stamp.time_ms <= sessions.forgotten_ms:
            raise Replayed("its user had too many connections since then, and this server has forgotten them")
        session = sessions.by_name[stamp.session] = SignedSession(stamp.session, connection)
        connection.on_close(partial(self._ended, sessions, session))
        return session

    @staticmethod
    def _ended(sessions: _OfUser, session: SignedSession, _: object) -> None:
        session.connection = None
        sessions.ended.append(session)
