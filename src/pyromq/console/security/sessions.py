"""Sessions: random ids in a table of ours, so that they can be revoked; an idle one ends, a new log-in has
a new id.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from secrets import token_urlsafe

from pyromq.clock import Clock
from pyromq.console.security.roles import Person

_ID_BYTES = 32
_MAX_SESSIONS = 10_000


class TooMany(Exception):
    """A person has as many queries or tails running as one may have, or all people together have."""


class BrowserSession:
    def __init__(self, person: Person, now: float) -> None:
        self.person = person
        self.token = token_urlsafe(_ID_BYTES)
        """A secret that all forms of this session carry."""
        self.used_at = now
        self.running: dict[str, int] = {}
        """Queries and tails of all sessions of the person: another log-in gives no more of them."""

    def __repr__(self) -> str:
        return f"<BrowserSession of {self.person.name}>"

    @contextmanager
    def one_more(self, kind: str, limit: int) -> Iterator[None]:
        """Count a query or a tail while it runs; `TooMany` at the limit."""
        if self.running.get(kind, 0) >= limit:
            raise TooMany(kind)
        self.running[kind] = self.running.get(kind, 0) + 1
        try:
            yield
        finally:
            self.running[kind] -= 1


class Sessions:
    def __init__(self, clock: Clock, idle_s: float) -> None:
        self._clock = clock
        self._idle_s = idle_s
        self._by_id: dict[str, BrowserSession] = {}

    def __repr__(self) -> str:
        return f"<Sessions {len(self._by_id)}>"

    def __len__(self) -> int:
        return len(self._by_id)

    def open(self, person: Person) -> tuple[str, BrowserSession]:
        """A new session under a new id; the least used ones make room at the limit."""
        self._forget_idle()
        while len(self._by_id) >= _MAX_SESSIONS:
            del self._by_id[min(self._by_id, key=lambda each: self._by_id[each].used_at)]
        session_id = token_urlsafe(_ID_BYTES)
        session = BrowserSession(person, self._clock.monotonic())
        for other in self._by_id.values():
            if other.person.name == person.name:
                session.running = other.running
                break
        self._by_id[session_id] = session
        return session_id, session

    def find(self, session_id: str | None) -> BrowserSession | None:
        session = self._by_id.get(session_id or "")
        if session is None:
            return None
        now = self._clock.monotonic()
        if now - session.used_at > self._idle_s:
            del self._by_id[session_id or ""]
            return None
        session.used_at = now
        return session

    def close(self, session_id: str | None) -> None:
        self._by_id.pop(session_id or "", None)

    def close_all_of(self, name: str) -> int:
        """End every session of a user; returns how many there were."""
        found = [key for key, session in self._by_id.items() if session.person.name == name]
        for key in found:
            del self._by_id[key]
        return len(found)

    def _forget_idle(self) -> None:
        now = self._clock.monotonic()
        for key in [key for key, each in self._by_id.items() if now - each.used_at > self._idle_s]:
            del self._by_id[key]
