"""Pops that wait for messages, in one line for each topic and group.

New messages, retries among them, wake the first pop of each line that may take them. It takes what there is,
and if it leaves some, it wakes the next one. So a message costs one look, however many pops wait.
"""

import asyncio
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field

from pyromq.broker.flow.held_requests import Attempt, HeldRequest, HeldRequests
from pyromq.protocol import names
from pyromq.remoting.slices import Slices
from pyromq.store.results import QueueAdvance

ANY_QUEUE = -1


@dataclass(slots=True, eq=False)
class _Line:
    topics: tuple[str, ...]
    """The topic, and those with its retries."""
    group: str
    waiting: "dict[_HeldPop, None]" = field(default_factory=dict)
    alarm: asyncio.TimerHandle | None = None


@dataclass(slots=True, eq=False, kw_only=True)
class _HeldPop(HeldRequest):
    queue_id: int
    line: _Line


class HeldPops(HeldRequests[_HeldPop]):
    def __init__(self, slices: Slices) -> None:
        super().__init__(slices)
        self._lines: dict[tuple[str, str], _Line] = {}
        self._by_topic: dict[str, dict[_Line, None]] = {}

    def __repr__(self) -> str:
        return f"<HeldPops held={self.held_count} lines={len(self._lines)}>"

    def count(self, topic: str, group: str, queue_id: int) -> int:
        """How many pops wait for a queue, or for any queue if it is -1."""
        line = self._lines.get((topic, group))
        return sum(held.queue_id == queue_id for held in line.waiting) if line is not None else 0

    def hold(
        self, topic: str, group: str, queue_id: int, attempt: Attempt, timeout_s: float, owner: Hashable
    ) -> None:
        """Try again when there may be messages, and for the last time after the time-out or when the owner
        leaves."""
        line = self._lines.get((topic, group))
        if line is None:
            line = self._lines[topic, group] = _Line((topic, *names.pop_retry_topics(topic, group)), group)
            for each in line.topics:
                self._by_topic.setdefault(each, {})[line] = None
        held = _HeldPop(attempt, owner, queue_id=queue_id, line=line)
        line.waiting[held] = None
        self._keep(held, timeout_s)

    # Waking

    def advanced(self, advance: QueueAdvance) -> None:
        """A queue has new messages."""
        lines = self._by_topic.get(advance.topic)
        if lines is not None:
            for line in list(lines):
                is_retry = advance.topic != line.topics[0]
                self._wake(line, ANY_QUEUE if is_retry else advance.queue_id)

    def light_advanced(self, ends: Mapping[str, int]) -> None:
        """Light queues have new messages."""
        for name in self._by_topic.keys() & ends.keys():
            self.advanced(QueueAdvance(name, 0, ends[name]))

    def wake(self, topic: str, group: str, queue_id: int = ANY_QUEUE) -> None:
        """There may be messages for a group: in a certain queue, or in any."""
        line = self._lines.get((topic, group))
        if line is not None:
            self._wake(line, queue_id)

    def wake_at(self, topic: str, group: str, in_s: float) -> None:
        """Wake the first pop of a line later; only the earliest such time counts."""
        line = self._lines.get((topic, group))
        if line is None:
            return
        when = self._loop.time() + max(in_s, 0)
        if line.alarm is not None:
            if not line.alarm.cancelled() and line.alarm.when() <= when:
                return
            line.alarm.cancel()
        line.alarm = self._loop.call_at(when, self._ring, line)

    def wake_all(self) -> None:
        """Time has passed at once: a queue may be free again that was in use."""
        for line in list(self._lines.values()):
            self._ring(line)

    def _ring(self, line: _Line) -> None:
        line.alarm = None
        for held in list(line.waiting):  # each may wait for another queue
            self._look_soon(held)

    def _wake(self, line: _Line, queue_id: int) -> None:
        for held in line.waiting:
            if queue_id == ANY_QUEUE or held.queue_id in (ANY_QUEUE, queue_id):
                self._look_soon(held)
                return

    def _left_some(self, held: _HeldPop) -> None:
        self._wake(held.line, ANY_QUEUE)

    # Ending

    def release(self, topic: str) -> None:
        """Answer all pops of a topic, because it changed or was deleted."""
        self._expire_all(held for line in self._by_topic.get(topic, ()) for held in line.waiting)

    def release_member(self, owner: Hashable, group: str) -> None:
        """Answer the pops of a group that their owner leaves: it would not read their messages."""
        self._expire_all(held for held in self._owned.get(owner, ()) if held.line.group == group)

    def _take_out(self, held: _HeldPop) -> None:
        line = held.line
        del line.waiting[held]
        if not line.waiting:
            del self._lines[line.topics[0], line.group]
            for topic in line.topics:
                lines = self._by_topic[topic]
                del lines[line]
                if not lines:
                    del self._by_topic[topic]
            if line.alarm is not None:
                line.alarm.cancel()
