"""The loop side of a connection: pops the queues that kombu consumes, follows exchanges, settles messages.

Every message that is here, waiting or worked on, is renewed until it is settled. A channel has no more of
them than its prefetch count, apart from pops that already wait at a broker. Only `arrived`, `settle` and
`wake` are for other threads.
"""

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Literal, NamedTuple

from pyromq.celery import readers
from pyromq.celery.envelope import Times, new_tag, packed, unpacked
from pyromq.celery.names import group_of, topic_of
from pyromq.celery.options import ClusterTarget
from pyromq.celery.traits import QueueTraits
from pyromq.celery.waiting import WaitingTasks
from pyromq.client.blocking import LoopThread
from pyromq.client.consumer.reading.popping import PoppedMessage
from pyromq.client.consumer.simple import SimpleConsumer
from pyromq.client.producer import Producer
from pyromq.client.reader import Reader
from pyromq.client.values import ReceivedMessage
from pyromq.errors import BadMessage, PyroError
from pyromq.tasks.held import HeldMessages, reject, show

_log = logging.getLogger(__name__)

_MAX_POPPED = 32
_WAIT_S = 15.0
_FIRST_LOOK_S = 0.2
"""How long a reader that was not read before is waited for."""
_AFTER_FAILURE_S = 1.0
_MAX_KEPT = 10_000
_EARLY_MS = 1000
"""A task that comes this much before its time is left to the worker, which waits."""

Settlement = Literal["ack", "reject", "requeue", "show"]


class Arrival(NamedTuple):
    """A message for kombu's thread."""

    feed: "Feed"
    tag: int
    raw: dict[str, Any]


class Feed:
    """One channel's consumption of one queue."""

    def __init__(self, channel: Any, queue: str, traits: QueueTraits, *, no_ack: bool = False) -> None:
        self.channel = channel
        self.queue = queue
        self.traits = traits
        self.no_ack = no_ack
        self.is_active = True
        self.tasks: list[asyncio.Task[None]] = []
        self.wake = asyncio.Event()
        self.kept: deque[Arrival] | None = None
        """Of a private queue that was declared again, and is not consumed yet."""

    def __repr__(self) -> str:
        return f"<Feed {self.queue} {'active' if self.is_active else 'cancelled'}>"


class Inflow:
    def __init__(
        self,
        target: ClusterTarget,
        thread: LoopThread,
        notify: Callable[[], None],
        waiting: WaitingTasks | None = None,
    ) -> None:
        self._target = target
        self._waiting = waiting
        self._thread = thread
        self._notify = notify
        self._feeds: dict[tuple[int, str], Feed] = {}
        self._consumers: dict[str, asyncio.Task[SimpleConsumer]] = {}
        self._readers: list[tuple[str, str, Reader]] = []
        self._held = HeldMessages(target.options.invisible_s)
        self._feed_of: dict[int, Feed] = {}
        """Of each message that is held, by its tag."""
        self._of_channel: dict[int, int] = {}
        """How many messages each channel holds."""
        self._polled: dict[int, tuple[str, dict[str, Any]]] = {}
        """Messages of private queues that were asked for one by one."""
        self._polled_queues: set[str] = set()
        self._settled: deque[tuple[int, Settlement]] = deque()
        self._is_settling = False
        self._producer: Producer | None = None
        self.arrived: deque[Arrival] = deque()
        """For kombu's thread."""

    def __repr__(self) -> str:
        return f"<Inflow feeds={len(self._feeds)} held={len(self._held)} arrived={len(self.arrived)}>"

    # Task queues

    async def consume(self, channel: Any, queue: str, traits: QueueTraits, *, no_ack: bool) -> None:
        key = (id(channel), queue)
        feed = self._feeds.get(key)
        if feed is None:
            feed = self._feeds[key] = Feed(channel, queue, traits)
            feed.tasks.append(asyncio.create_task(self._pop(feed), name=f"consume {queue}"))
        feed.no_ack, feed.is_active = no_ack, True
        feed.wake.set()

    async def _consumer(self, queue: str, traits: QueueTraits) -> SimpleConsumer:
        """One for each queue, started once."""

        async def start() -> SimpleConsumer:
            options = self._target.options
            consumer = SimpleConsumer(
                group_of(queue),
                start_from="first",
                ordered=traits.is_ordered,
                max_retries=options.max_redeliveries,
                invisible_s=options.invisible_s,
                **self._target.client_options,
            )
            consumer.subscribe(topic_of(queue))
            await consumer.start()
            return consumer

        if queue not in self._consumers:
            self._consumers[queue] = asyncio.create_task(start(), name=f"start {queue}")
        try:
            return await asyncio.shield(self._consumers[queue])
        except PyroError:
            self._consumers.pop(queue, None)
            raise

    async def _pop(self, feed: Feed) -> None:
        is_failing = False
        while True:
            room = self._room(feed) if feed.is_active else 0
            if room <= 0:
                feed.wake.clear()
                await feed.wake.wait()
                continue
            try:
                consumer = await self._consumer(feed.queue, feed.traits)
                messages = await consumer.receive(1 if feed.traits.is_ordered else room, wait_s=_WAIT_S)
            except PyroError as problem:
                if not is_failing:
                    _log.warning("cannot consume queue=%s: %s", feed.queue, problem)
                is_failing = True
                await asyncio.sleep(_AFTER_FAILURE_S)
                continue
            is_failing = False
            for message in messages:
                await self._take(feed, consumer, message)

    def _room(self, feed: Feed) -> int:
        """How many more messages a queue may bring: its part of what the channel has left."""
        limit: int = feed.channel.prefetch_limit
        if not limit:
            return _MAX_POPPED - len(self.arrived)
        left = limit - self._of_channel.get(id(feed.channel), 0)
        if left <= 0:
            return 0
        sharing = sum(each.is_active and each.channel is feed.channel for each in self._feeds.values())
        return min(max(left // max(sharing, 1), 1), _MAX_POPPED)

    async def _take(self, feed: Feed, consumer: SimpleConsumer, message: PoppedMessage) -> None:
        if not feed.is_active:
            self._held.start(show(consumer, message))
            return
        raw = await self._ready(feed.queue, consumer, message)
        if raw is not None:
            self.arrived.append(self._hold(feed, consumer, message, raw))
            self._notify()

    async def _ready(
        self, queue: str, consumer: SimpleConsumer, message: PoppedMessage
    ) -> dict[str, Any] | None:
        """The message for kombu; None if it is too old, too early or not one of kombu."""
        try:
            raw, times = unpacked(message)
        except BadMessage as problem:
            _log.error("dead letter queue=%s id=%s: %s", queue, message.message_id, problem)
            self._held.start(reject(consumer, message, str(problem)))
            return None
        now_ms = round(time.time() * 1000)
        if times.expires_ms is not None and times.expires_ms <= now_ms:
            consumer.ack_soon(message)
            return None
        # A message that comes before it is due comes from a broker that knows no times: the worker waits.
        is_timed = times.due_ms is not None and now_ms >= times.due_ms - _EARLY_MS
        if is_timed and times.eta_ms is not None and times.eta_ms > now_ms + _EARLY_MS:
            due_ms = min(times.eta_ms, now_ms + round(self._target.options.max_delay_s * 1000))
            await self._resend(queue, consumer, message, Times(due_ms, times.eta_ms, times.expires_ms))
            return None
        return raw

    def _hold(
        self, feed: Feed, consumer: SimpleConsumer, message: PoppedMessage, raw: dict[str, Any]
    ) -> Arrival:
        tag = raw["properties"]["delivery_tag"]
        self._held.add(tag, consumer, message)
        self._feed_of[tag] = feed
        self._of_channel[id(feed.channel)] = self._of_channel.get(id(feed.channel), 0) + 1
        return Arrival(feed, tag, raw)

    async def get(self, channel: Any, queue: str, traits: QueueTraits, wait_s: float) -> Arrival | None:
        consumer = await self._consumer(queue, traits)
        until = time.monotonic() + wait_s
        while True:
            left_s = max(until - time.monotonic(), 0.0)
            messages = await consumer.receive(1, wait_s=left_s)
            if not messages:
                return None
            if (raw := await self._ready(queue, consumer, messages[0])) is not None:
                return self._hold(Feed(channel, queue, traits), consumer, messages[0], raw)

    async def purge(self, queue: str, traits: QueueTraits) -> int:
        consumer = await self._consumer(queue, traits)
        count = 0
        while messages := await consumer.receive(_MAX_POPPED, wait_s=0.1):
            await consumer.ack_many(messages)
            count += len(messages)
        feeds = [each for each in self._feeds.values() if each.queue == queue]
        return count + sum(self._take_back(each, "ack") for each in feeds)

    def _take_back(self, feed: Feed, how: Settlement) -> int:
        """Settle what has arrived and was not delivered."""
        count = 0
        for arrival in [each for each in self.arrived if each.feed is feed]:
            try:
                self.arrived.remove(arrival)
            except ValueError:
                continue  # it was delivered meanwhile
            self._end(arrival.tag, how)
            count += 1
        return count

    async def cancel(self, channel: Any, queue: str) -> None:
        """Stop; what has arrived and was not delivered goes back, and so does what a waiting pop finds."""
        feed = self._feeds.get((id(channel), queue))
        if feed is None:
            return
        feed.is_active, feed.kept = False, None
        self._take_back(feed, "show")

    # Exchanges

    async def follow(
        self, channel: Any, queue: str, is_wanted: Callable[[str, dict[str, Any]], bool]
    ) -> None:
        key = (id(channel), queue)
        feed = self._feeds.get(key)
        if feed is None:
            feed = self._feeds[key] = Feed(channel, queue, QueueTraits(), no_ack=True)
        feed.is_active = True
        if feed.kept:
            self.arrived.extend(feed.kept)
            self._notify()
        feed.kept = None
        returned = readers.returned(self._target, queue)
        while returned:
            raw = returned.popleft()
            self.arrived.append(Arrival(feed, raw["properties"]["delivery_tag"], raw))
            self._notify()
        for exchange, reader in readers.take(self._target, queue, self).items():
            self._readers.append((queue, exchange, reader))
            feed.tasks.append(asyncio.create_task(self._read(feed, exchange, reader, is_wanted)))

    async def poll(
        self, queue: str, is_wanted: Callable[[str, dict[str, Any]], bool]
    ) -> dict[str, Any] | None:
        """The next message of a private queue, also if another connection of this process consumes it."""
        raw = await self._next_private(queue, is_wanted)
        if raw is not None:
            raw["properties"]["delivery_tag"] = tag = new_tag()
            self._polled[tag] = queue, raw
        return raw

    async def _next_private(
        self, queue: str, is_wanted: Callable[[str, dict[str, Any]], bool]
    ) -> dict[str, Any] | None:
        if returned := readers.returned(self._target, queue):
            return returned.popleft()
        for inflow in readers.consuming(self._target, queue):
            for arrival in inflow.arrived.copy():
                with suppress(ValueError):  # it was delivered meanwhile
                    if arrival.feed.queue == queue:
                        inflow.arrived.remove(arrival)
                        found_there: dict[str, Any] = arrival.raw
                        return found_there
        wait_s = 0.0 if queue in self._polled_queues else _FIRST_LOOK_S
        self._polled_queues.add(queue)
        for exchange, reader in readers.waiting(self._target, queue).items():
            while found := await reader.receive(1, wait_s=wait_s):
                raw = _readable(found[0])
                if raw is not None and is_wanted(exchange, raw):
                    return raw
        return None

    def keep(self, queue: str) -> None:
        """A private queue that is no longer consumed was declared again; from any thread."""
        self._thread.call_soon(lambda: self._keep(queue))

    def _keep(self, queue: str) -> None:
        for feed in self._feeds.values():
            if feed.queue == queue and not feed.is_active and feed.kept is None:
                feed.kept = deque(maxlen=_MAX_KEPT)

    async def _read(
        self,
        feed: Feed,
        exchange: str,
        reader: Reader,
        is_wanted: Callable[[str, dict[str, Any]], bool],
    ) -> None:
        while messages := await reader.receive(_MAX_POPPED):
            for message in messages:
                self._pass_on(feed, exchange, message, is_wanted)
            self._notify()

    def _pass_on(
        self,
        feed: Feed,
        exchange: str,
        message: ReceivedMessage,
        is_wanted: Callable[[str, dict[str, Any]], bool],
    ) -> None:
        raw = _readable(message)
        to = self.arrived if feed.is_active else feed.kept
        if raw is not None and to is not None and is_wanted(exchange, raw):
            to.append(Arrival(feed, raw["properties"]["delivery_tag"], raw))

    # Settling

    def wake(self, channel: Any) -> None:
        """The prefetch count of a channel has changed; from any thread."""
        if self._thread.is_of_this_process:
            self._thread.call_soon(lambda: self._wake(channel))

    def _wake(self, channel: Any) -> None:
        for feed in self._feeds.values():
            if feed.channel is channel:
                feed.wake.set()

    def settle(self, tag: int, how: Settlement) -> None:
        """From any thread; those of one moment are settled together."""
        self._settled.append((tag, how))
        if not self._is_settling and self._thread.is_of_this_process:
            self._is_settling = True
            self._thread.call_soon(self._settle_all)

    def _settle_all(self) -> None:
        self._is_settling = False  # before the first look: what is appended after the last one asks again
        while self._settled:
            tag, how = self._settled.popleft()
            self._end(tag, how)
        self._notify()

    def _end(self, tag: int, how: Settlement) -> None:
        polled = self._polled.pop(tag, None)
        if polled is not None and how in ("requeue", "show"):
            readers.returned(self._target, polled[0]).append(polled[1])
        feed = self._feed_of.pop(tag, None)
        if feed is None:
            return
        self._of_channel[id(feed.channel)] -= 1
        if how == "ack":
            self._held.ack(tag)
        elif how == "reject":
            self._held.reject(tag, "rejected by a worker")
        elif how == "requeue" and feed.traits.max_priority:  # retries have no priority
            if held := self._held.take(tag):
                self._held.start(self._resend(feed.queue, *held, Times()))
        else:
            self._held.show(tag)
        self._wake(feed.channel)

    async def _resend(
        self, queue: str, consumer: SimpleConsumer, message: PoppedMessage, times: Times
    ) -> None:
        """Send a copy first: if that fails, the message itself is delivered again."""
        if self._producer is None:
            size = self._target.options.max_message_bytes
            self._producer = Producer(
                "CELERY-PRODUCERS", **self._target.client_options, max_message_bytes=size
            )
            await self._producer.start()
        raw, _ = unpacked(message)
        copy = packed(topic_of(queue), raw, times).replace(tags=message.tags)
        try:
            sent = await self._producer.send(copy.replace(priority=message.priority))
            if self._waiting is not None and sent.recall_handle is not None:
                await self._waiting.note(queue, copy, sent.recall_handle)
        except PyroError as problem:
            _log.warning("task not sent again, it comes again id=%s: %s", message.message_id, problem)
        else:
            consumer.ack_soon(message)

    async def close(self) -> None:
        self._settle_all()
        for feed in self._feeds.values():
            feed.is_active = False
            for task in feed.tasks:
                task.cancel()
        await asyncio.gather(
            *(task for feed in self._feeds.values() for task in feed.tasks), return_exceptions=True
        )
        await self._held.close()
        for queue, exchange, reader in self._readers:
            readers.closed(self._target, queue, exchange)
            await reader.close()
        for starting in self._consumers.values():
            consumer = (await asyncio.gather(starting, return_exceptions=True))[0]
            if isinstance(consumer, SimpleConsumer):
                await consumer.close()
        if self._producer is not None:
            await self._producer.close()


def _readable(message: ReceivedMessage) -> dict[str, Any] | None:
    try:
        return unpacked(message)[0]
    except BadMessage as problem:
        _log.error("message ignored topic=%s id=%s: %s", message.topic, message.message_id, problem)
        return None
