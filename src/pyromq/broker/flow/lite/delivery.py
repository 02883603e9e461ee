"""Handing out the messages of lite topics: to whom, in which order, and again when they are due.

Every reader of a lite topic learns that it may have messages, and the first that pops takes them. So no event
is lost with a client that does not pop, and there is no limit to how many a client may have.
"""

import asyncio
import heapq
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import count
from typing import Final

import msgspec

from pyromq.broker.context import Context
from pyromq.broker.flow.durability import Durability
from pyromq.broker.flow.lite.held_batches import HeldBatch, HeldBatches, Key
from pyromq.broker.flow.lite.subscriptions import LiteClient, LiteSubscriptions
from pyromq.broker.flow.popping.held_pops import ANY_QUEUE, HeldPops
from pyromq.errors import Refused
from pyromq.protocol import properties as props
from pyromq.protocol.codes import ResponseCode
from pyromq.protocol.names import lite_queue
from pyromq.protocol.properties import get_property
from pyromq.protocol.record import scan_record
from pyromq.store.results import ReadResult, ReadStatus

_MISPLACED: Final = (
    ReadStatus.OFFSET_TOO_SMALL,
    ReadStatus.OFFSET_OVERFLOW_BADLY,
    ReadStatus.OFFSET_FOUND_NULL,
)
_LOOK_AGAIN_MS: Final = 100
"""When a new master looks whether its log is confirmed by now."""


class LitePop(msgspec.Struct, eq=False):
    """One request to pop, and what was found for it."""

    limit: int
    invisible_ms: int
    time_ms: int
    attempt_id: str | None = None
    views: list[memoryview] = []
    counts: list[int] = []
    """How often each message was popped before."""
    is_early: bool = False
    """Whether the queues have what another master may lack: nothing is handed out yet."""


class LiteDelivery:
    def __init__(self, context: Context, durability: Durability, held: HeldPops) -> None:
        """`held`: the pops that wait, in a line for each client."""
        self.subscriptions = LiteSubscriptions()
        self.batches = HeldBatches()
        self._store = context.store
        self._offsets = context.tables.offsets
        self._statistics = context.tables.statistics
        self._slices = context.slices
        self._durability = durability
        self._held = held
        self._loop = asyncio.get_running_loop()
        self._due: list[tuple[int, int, Key, HeldBatch]] = []
        self._numbers = count()
        self._alarm: asyncio.TimerHandle | None = None
        context.tables.role.on_change(lambda _: self._start_over())

    def __repr__(self) -> str:
        return f"<LiteDelivery {self.subscriptions!r} {self.batches!r}>"

    # Who may find messages

    def light_advanced(self, ends: Mapping[str, int]) -> None:
        """Light queues have new messages."""
        for queue in self.subscriptions.read_of(ends):
            self.announce(queue)

    def announce(self, queue: str, group: str | None = None) -> None:
        """A light queue may have messages: for all groups, or for one."""
        readers = self.subscriptions.readers(queue)
        woken: set[str] = set()
        for client in (*readers, *self.subscriptions.readers_of_all(queue)):
            if group is None or client.group == group:
                client.ready[queue] = None
                if client.group not in woken and self._wake(client):
                    woken.add(client.group)

    def _wake(self, client: LiteClient) -> bool:
        """Whether one of its pops waited."""
        if not self._held.count(client.line, client.group, ANY_QUEUE):
            return False
        self._held.wake(client.line, client.group)
        return True

    def look_through(self, client: LiteClient, queues: Iterable[str]) -> Callable[[], bool]:
        """A step that finds which of these queues have messages for the group of a client; to be called until
        it returns True."""
        left, is_over = iter(queues), self._slices.is_over

        def step() -> bool:
            for queue in left:
                if self.lag(client.group, queue):
                    client.ready[queue] = None
                if is_over():
                    self._wake(client)
                    return False
            if client.ready:
                self._wake(client)
            return True

        return step

    def look_through_all(self, client: LiteClient) -> None:
        """The same for a client that reads all lite topics of its parent."""
        light = self._store.light
        if light is not None:
            self._slices.run(self.look_through(client, light.names(lite_queue(client.topic, ""))))

    def release(self, client: LiteClient) -> None:
        """Answer its pops: they waited before it subscribed, and in another line."""
        self._held.release_member(client.channel, client.group)

    def lag(self, group: str, queue: str) -> int:
        """How many messages of a light queue the group has ahead of it."""
        end = self.end(queue)
        return end - self._begin(queue, self._offsets.query(group, queue, 0), end) if end else 0

    def end(self, queue: str) -> int:
        """Behind the last message of a light queue."""
        light = self._store.light
        return light.max_offset(queue) if light is not None else 0

    def _begin(self, queue: str, place: int, end: int) -> int:
        """Where a group continues that has committed an offset, or none. A new group begins with the first
        message. So does one that was further than the end: the lite topic has expired, and starts over."""
        return place if 0 <= place <= end else self._store.queues.min_offset(queue, 0)

    # Popping

    def take(self, client: LiteClient, pop: LitePop) -> None:
        """Take messages for the client, up to the limit of the pop."""
        if not self._durability.is_readable:
            pop.is_early = True
            self._held.wake_at(client.line, client.group, _LOOK_AGAIN_MS / 1000)
            return
        ready = client.ready
        if pop.attempt_id is not None and pop.attempt_id == client.attempt_id:
            # The answer was lost: the same messages again.
            for queue in client.attempted:
                ready[queue] = None
                ready.move_to_end(queue, last=False)
        client.attempt_id, client.attempted = pop.attempt_id, []
        while ready and len(pop.views) < pop.limit:
            queue, _ = ready.popitem(last=False)
            if self._take_from(queue, client, pop):
                client.attempted.append(queue)
        if ready:
            self._wake_another(client)

    def _wake_another(self, client: LiteClient) -> None:
        """It has left some: another reader of the next queue may take it."""
        queue = next(iter(client.ready))
        for other in self.subscriptions.readers(queue):
            if other is not client and other.group == client.group and self._wake(other):
                return

    def _take_from(self, queue: str, client: LiteClient, pop: LitePop) -> bool:
        """Whether there was something to take."""
        offsets, group, key = self._offsets, client.group, (queue, client.group)
        if offsets.resets and (reset := offsets.take_reset(group, queue, 0)) is not None:
            self.reset(queue, group, reset)
        end, place = self.end(queue), offsets.query(group, queue, 0)
        begin = self._begin(queue, place, end) if end else 0
        if place > end:
            self.batches.forget(key)
        if begin >= end or not self.batches.is_free(key, pop.time_ms, pop.attempt_id):
            return False  # it is announced when it has messages, and when it is free
        limit = pop.limit - len(pop.views)
        result = self._store.read(queue, 0, begin, limit)
        if result.status in _MISPLACED:
            begin = result.next_offset
            result = self._store.read(queue, 0, begin, limit)
        before = self.batches.get(key)
        done = before.acknowledged if before is not None else ()
        found = [(offset, view) for offset, view in _numbered(begin, result) if offset not in done]
        if not found:  # the log has lost them
            self.reset(queue, group, result.next_offset)
            if begin < result.next_offset < result.max_offset:
                client.ready[queue] = None
            return False
        numbers = [offset for offset, _ in found]
        held = self.batches.popped(key, numbers, pop.time_ms, pop.invisible_ms, pop.attempt_id)
        offsets.commit(group, queue, 0, begin)
        self._watch(key, held)
        pop.views += [view for _, view in found]
        pop.counts += [held.counts.get(offset, 0) for offset in numbers]
        # java: all lite topics count as queue 0 of their parent
        self._statistics.got(group, client.topic, 0, result.message_count, result.size_bytes)
        return True

    def reset(self, queue: str, group: str, offset: int) -> None:
        """The group continues here; what it holds is not its own any more."""
        self.batches.forget((queue, group))
        self._offsets.commit(group, queue, 0, offset)

    # What became of messages

    def acknowledge(self, queue: str, group: str, offset: int, pop_ms: int) -> None:
        """Raises Refused if the group does not hold the message."""
        if offset < self._offsets.query(group, queue, 0):
            return
        key = (queue, group)
        consumed = self.batches.acknowledge(key, offset, pop_ms)
        if consumed is None:
            raise _not_held(queue, offset)
        self._offsets.commit(group, queue, 0, consumed)
        held = self.batches.get(key)
        if held is None:
            if consumed < self.end(queue):
                self.announce(queue, group)
        else:
            self._watch(key, held)

    def hide(
        self, queue: str, group: str, offset: int, pop_ms: int, visible_ms: int, *, suspends: bool
    ) -> None:
        """Let a message be visible at another time. Raises Refused if the group does not hold it."""
        key = (queue, group)
        if not self.batches.hide(key, offset, pop_ms, visible_ms, suspends=suspends):
            raise _not_held(queue, offset)
        held = self.batches.get(key)
        assert held is not None
        self._watch(key, held)

    def forget(self, queue: str, groups: Iterable[str]) -> None:
        """A light queue is gone."""
        for group in groups:
            self.batches.forget((queue, group))

    def _start_over(self) -> None:
        """Another broker may have led meanwhile: its messages have the numbers of those that are out."""
        keys = iter(self.batches.forget_all())
        self._due.clear()
        self._set_alarm()

        def announce_some() -> bool:
            for key in keys:
                self.announce(*key)
                if self._slices.is_over():
                    return False
            return True

        self._slices.run(announce_some)

    # When batches are visible again

    def _watch(self, key: Key, held: HeldBatch) -> None:
        free_at_ms = held.free_at_ms
        if not held.alarm_ms or free_at_ms < held.alarm_ms:
            held.alarm_ms = free_at_ms
            heapq.heappush(self._due, (free_at_ms, next(self._numbers), key, held))
            if self._due[0][3] is held:
                self._set_alarm()

    def _set_alarm(self) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
        if self._due:
            wait_s = max(self._due[0][0] - self._store.time.now_ms(), 0) / 1000
            self._alarm = self._loop.call_later(wait_s, self.announce_due)

    def announce_due(self) -> None:
        """Announce the queues whose batches are visible again."""
        now_ms = self._store.time.now_ms()
        while self._due and self._due[0][0] <= now_ms:
            at_ms, _, key, held = heapq.heappop(self._due)
            if self.batches.get(key) is not held or held.alarm_ms != at_ms:
                continue
            held.alarm_ms = 0
            if held.free_at_ms <= now_ms:
                self.announce(*key)
            else:
                self._watch(key, held)
        self._set_alarm()

    def close(self) -> None:
        self._due.clear()
        self._set_alarm()


def _numbered(begin: int, result: ReadResult) -> list[tuple[int, memoryview]]:
    """The records of a light queue with their offsets there."""
    offsets: Sequence[int] = range(begin, result.next_offset)
    if len(offsets) != len(result.views):  # the log has lost some
        offsets = [_offset_of(view) for view in result.views]
    return list(zip(offsets, result.views, strict=True))


def _offset_of(view: memoryview) -> int:
    outline = scan_record(view)
    assert outline is not None
    raw = bytes(view[outline.properties_start : outline.properties_end])
    return int(get_property(raw, props.INNER_MULTI_QUEUE_OFFSET) or 0)


def _not_held(queue: str, offset: int) -> Refused:
    return Refused(
        ResponseCode.NO_MESSAGE,
        f"the group does not hold the message at offset {offset} of {queue} by this receipt any more",
    )
