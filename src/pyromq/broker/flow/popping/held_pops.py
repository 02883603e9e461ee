"""Pops that wait for messages, in one line for each topic and group.

New messages, retries among them, wake the first pop of each line that may take them. It takes what there is,
and if it leaves some, it wakes the next one. So a message costs one look, however many pops wait.
"""

import asyncio
from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field
from functools import partial

from pyromq.broker.flow.held_pulls import Attempt, Outcome
from pyromq.protocol import names
from pyromq.remoting.slices import Slices
from pyromq.store.results import QueueAdvance

ANY_QUEUE = -1


@dataclass(slots=True, eq=False)
class _Held:
    attempt: Attempt
    queue_id: int
    owner: Hashable
    line: "_Line"
    timer: asyncio.TimerHandle | None = None
    """None once the pop no longer waits."""
    is_due: bool = False
    """Whether it already waits for its slice."""


@dataclass(slots=True, eq=False)
class _Line:
    topics: tuple[str, ...]
    """The topic, and those with its retries."""
    group: str
    waiting: dict[_Held, None] = field(default_factory=dict)
    alarm: asyncio.TimerHandle | None = None


class HeldPops:
    def __init__(self, slices: Slices) -> None:
        self._slices = slices
        self._loop = asyncio.get_running_loop()
        self._lines: dict[tuple[str, str], _Line] = {}
        self._by_topic: dict[str, dict[_Line, None]] = {}
        self._owned: dict[Hashable, dict[_Held, None]] = {}
        self.held_count = 0

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
        held = _Held(attempt, queue_id, owner, line)
        held.timer = self._loop.call_later(timeout_s, self._expire, held)
        line.waiting[held] = None
        self._owned.setdefault(owner, {})[held] = None
        self.held_count += 1

    # Waking

    def advanced(self, advance: QueueAdvance) -> None:
        """A queue has new messages."""
        lines = self._by_topic.get(advance.topic)
        if lines is not None:
            for line in list(lines):
                is_retry = advance.topic != line.topics[0]
                self._wake(line, ANY_QUEUE if is_retry else advance.queue_id)

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

    def _ring(self, line: _Line) -> None:
        line.alarm = None
        for held in list(line.waiting):  # each may wait for another queue
            self._look_soon(held)

    def _wake(self, line: _Line, queue_id: int) -> None:
        for held in line.waiting:
            if queue_id == ANY_QUEUE or held.queue_id in (ANY_QUEUE, queue_id):
                self._look_soon(held)
                return

    def _look_soon(self, held: _Held) -> None:
        if not held.is_due and held.timer is not None:
            held.is_due = True
            self._slices.run(partial(self._look, held))

    def _look(self, held: _Held) -> bool:
        if held.timer is not None:
            outcome = held.attempt(False)
            if outcome is Outcome.GOES_ON:
                return False
            if outcome is not Outcome.WAITS:
                self._forget(held)
            if outcome is Outcome.LEFT_SOME:
                self._wake(held.line, ANY_QUEUE)
        held.is_due = False
        return True

    # Ending

    def release(self, topic: str) -> None:
        """Answer all pops of a topic, because it changed or was deleted."""
        self._expire_all(held for line in self._by_topic.get(topic, ()) for held in line.waiting)

    def release_owner(self, owner: Hashable, group: str | None = None) -> None:
        """Answer all pops of this owner, or those of a group that it leaves: nobody takes their messages."""
        owned = self._owned.get(owner, ())
        self._expire_all(held for held in owned if group in (None, held.line.group))

    def release_all(self) -> None:
        self._expire_all(held for line in self._lines.values() for held in line.waiting)

    def _expire_all(self, all_held: Iterable[_Held]) -> None:
        for held in list(all_held):
            self._expire(held)

    def _expire(self, held: _Held) -> None:
        self._forget(held)
        self._slices.run(partial(self._look_for_the_last_time, held))

    def _look_for_the_last_time(self, held: _Held) -> bool:
        if held.attempt(True) is Outcome.LEFT_SOME:
            self._wake(held.line, ANY_QUEUE)
        return True

    def _forget(self, held: _Held) -> None:
        if held.timer is None:
            return
        held.timer.cancel()
        held.timer = None
        self.held_count -= 1
        owned = self._owned[held.owner]
        del owned[held]
        if not owned:
            del self._owned[held.owner]
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
