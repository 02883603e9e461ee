"""Locks for ordered consumption: one client at a time holds a queue, until it stops renewing.

Pure: times are parameters, on the monotonic clock.
"""

from collections.abc import Iterable
from typing import NamedTuple

from pyromq.protocol.body import MessageQueue


class _Lock(NamedTuple):
    client_id: str
    renewed_ms: int


class QueueLocks:
    def __init__(self, max_live_ms: int = 60_000) -> None:
        self._max_live_ms = max_live_ms
        self._groups: dict[str, dict[MessageQueue, _Lock]] = {}
        self._swept_ms = 0

    def __repr__(self) -> str:
        return f"<QueueLocks groups={len(self._groups)} locks={sum(map(len, self._groups.values()))}>"

    def acquire(
        self, group: str, client_id: str, queues: Iterable[MessageQueue], now_ms: int
    ) -> list[MessageQueue]:
        """Lock free queues, renew held ones; returns the queues that the client holds."""
        if now_ms - self._swept_ms > self._max_live_ms:
            self.remove_expired(now_ms)
        locks = self._groups.setdefault(group, {})
        held = []
        for queue in queues:
            lock = locks.get(queue)
            if lock is None or lock.client_id == client_id or self._is_expired(lock, now_ms):
                locks[queue] = _Lock(client_id, now_ms)
                held.append(queue)
        return held

    def release(self, group: str, client_id: str, queues: Iterable[MessageQueue]) -> None:
        locks = self._groups.get(group, {})
        for queue in queues:
            lock = locks.get(queue)
            if lock is not None and lock.client_id == client_id:
                del locks[queue]
        if not locks:
            self._groups.pop(group, None)

    def holds_any(self, group: str, now_ms: int) -> bool:
        """Whether a member of the group holds a lock now."""
        return any(not self._is_expired(lock, now_ms) for lock in self._groups.get(group, {}).values())

    def remove_expired(self, now_ms: int) -> None:
        """Remove expired locks; `acquire` calls this from time to time."""
        self._swept_ms = now_ms
        for group, locks in list(self._groups.items()):
            for queue in [queue for queue, lock in locks.items() if self._is_expired(lock, now_ms)]:
                del locks[queue]
            if not locks:
                del self._groups[group]

    def _is_expired(self, lock: _Lock, now_ms: int) -> bool:
        return now_ms - lock.renewed_ms > self._max_live_ms
