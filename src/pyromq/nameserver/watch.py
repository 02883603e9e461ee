"""Clients that watch routes, and the changes that have not been sent to them yet.

All changes of one turn of the loop go to a connection in one message.
"""

from collections.abc import Callable, Hashable, Iterable
from typing import Generic, TypeVar

from pyromq.nameserver.queue_layouts import Topics

MAX_PER_CONNECTION = 16_384
MAX_IN_TOTAL = 4_000_000
MAX_TOPIC_CHARS = 255

C = TypeVar("C", bound=Hashable)


class Watches(Generic[C]):
    """Topic → connections and back. `flush_soon` is called when there is something to take."""

    def __init__(
        self,
        flush_soon: Callable[[], None],
        *,
        max_per_connection: int = MAX_PER_CONNECTION,
        max_in_total: int = MAX_IN_TOTAL,
    ) -> None:
        self._flush_soon = flush_soon
        self._max_per_connection = max_per_connection
        self._max_in_total = max_in_total
        self._watchers: dict[str, dict[C, None]] = {}
        self._topics: dict[C, dict[str, None]] = {}
        self._pending: dict[C, dict[str, None]] = {}
        self._total = 0

    def __repr__(self) -> str:
        return f"<Watches topics={len(self._watchers)} connections={len(self._topics)} total={self._total}>"

    def __len__(self) -> int:
        return self._total

    @property
    def connections(self) -> int:
        return len(self._topics)

    def add(self, topic: str, connection: C) -> bool:
        """Watch a topic; returns False at a limit."""
        watched = self._topics.get(connection)
        if watched is None:
            watched = {}
        elif topic in watched:
            return True
        if (
            len(watched) >= self._max_per_connection
            or self._total >= self._max_in_total
            or len(topic) > MAX_TOPIC_CHARS
        ):
            return False
        self._topics[connection] = watched
        watched[topic] = None
        self._watchers.setdefault(topic, {})[connection] = None
        self._total += 1
        return True

    def forget(self, connection: C) -> None:
        self._pending.pop(connection, None)
        for topic in self._topics.pop(connection, ()):
            watchers = self._watchers[topic]
            del watchers[connection]
            if not watchers:
                del self._watchers[topic]
            self._total -= 1

    def note(self, changed: Iterable[Topics]) -> None:
        """Note changed routes. Iterates over the changed or the watched topics, whichever are fewer."""
        watchers = self._watchers
        if not watchers:
            return
        had_pending = bool(self._pending)
        for topics in changed:
            if len(topics) > len(watchers):
                concerned: Iterable[str] = [topic for topic in watchers if topic in topics]
            else:
                concerned = [topic for topic in topics if topic in watchers]
            for topic in concerned:
                for connection in watchers[topic]:
                    self._pending.setdefault(connection, {})[topic] = None
        if self._pending and not had_pending:
            self._flush_soon()

    def note_everything(self) -> None:
        self.note([list(self._watchers)])

    def take_pending(self) -> dict[C, list[str]]:
        """The changed topics of each connection; each is returned once."""
        pending, self._pending = self._pending, {}
        return {connection: list(topics) for connection, topics in pending.items()}
