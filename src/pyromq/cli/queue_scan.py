"""Reads queues without joining a group: nothing is committed, and no group rebalances."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pyromq.cli.queue_names import check_readable, named_queues
from pyromq.cli.starting_points import Start
from pyromq.client.consumer.reading.brokers import QueueBrokers
from pyromq.client.consumer.reading.fetching import Fetching, PullLimits
from pyromq.client.consumer.reading.offsets import StartPositions
from pyromq.client.consumer.reading.subscriptions import Expression, Subscription
from pyromq.client.session import Session
from pyromq.client.settings import ClientSettings
from pyromq.client.values import MessageQueue, ReceivedMessage
from pyromq.cluster.retry_table import is_passing
from pyromq.cluster.routes import Route
from pyromq.errors import PyroError
from pyromq.protocol.names import TOOLS_GROUP

_PULL_MESSAGES = 512
_PARTS_AHEAD = 8
_TRIES = 5
_PAUSE_S = 1.0

_Part = list[ReceivedMessage] | MessageQueue | Exception
"""Messages, a queue that was read to its end, or a failure."""


@dataclass(frozen=True, slots=True)
class ScanRange:
    """The range of a scan: with `is_following` until it is closed, else to the queues' ends at its start.

    `queue_names`: only these queues. `remark` receives warnings about failures that are retried.
    """

    topic: str
    expression: Expression
    start: Start
    queue_names: Sequence[str]
    is_following: bool
    remark: Callable[[str], None]


class QueueScan:
    """Without `queue_names` it reads all queues, later ones included."""

    def __init__(self, settings: ClientSettings, wanted: ScanRange) -> None:
        self._settings = settings
        self._wanted = wanted
        self._session: Session | None = None
        self._readers: dict[MessageQueue, asyncio.Task[None]] = {}
        self._parts: asyncio.Queue[_Part] = asyncio.Queue(_PARTS_AHEAD)
        self._stop_listening: Callable[[], None] | None = None

    def __repr__(self) -> str:
        return f"<QueueScan {self._wanted.topic} readers={len(self._readers)} ahead={self._parts.qsize()}>"

    async def open(self) -> None:
        session = self._session = await Session.obtain(self._settings)
        topic = session.wrap(self._wanted.topic)
        self._subscription = Subscription.of(topic, self._wanted.expression, 0)
        self._positions = StartPositions(QueueBrokers(session), "first", session.clock)
        self._fetching = Fetching(
            session,
            TOOLS_GROUP,
            namespace=session.settings.namespace,
            is_lite=True,
            limits=PullLimits(_PULL_MESSAGES),
        )
        queues: Sequence[MessageQueue] = (await session.routes.get(topic)).subscribe_queues
        check_readable(self._wanted.topic, queues)
        if self._wanted.queue_names:
            queues = named_queues(self._wanted.queue_names, queues)
        begins = await asyncio.gather(
            *(self._wanted.start.offset(queue, self._positions) for queue in queues)
        )
        for queue, begin in zip(queues, begins, strict=True):
            end = None if self._wanted.is_following else await self._positions.last(queue)
            self._read(queue, begin, end)
        if self._wanted.is_following and not self._wanted.queue_names:
            self._stop_listening = session.routes.on_change(topic, self._route_changed)

    def _read(self, queue: MessageQueue, begin: int, end: int | None) -> None:
        async def read() -> None:
            try:
                await self._read_to_end(queue, begin, end)
            except Exception as problem:
                await self._parts.put(problem)
            else:
                await self._parts.put(queue)

        self._readers[queue] = asyncio.create_task(read(), name=f"read {queue}")

    async def _read_to_end(self, queue: MessageQueue, offset: int, end: int | None) -> None:
        failures = 0
        while end is None or offset < end:
            try:
                pulled = await self._fetching.pull(queue, self._subscription, offset)
            except PyroError as problem:
                failures += 1
                if not is_passing(problem) or (end is not None and failures == _TRIES):
                    raise
                if failures == 1:
                    self._wanted.remark(f"cannot read {queue}, trying again: {problem}")
                await asyncio.sleep(_PAUSE_S)
                continue
            failures = 0
            offset = pulled.next_offset
            messages = [each for each in pulled.messages if end is None or each.queue_offset < end]
            if messages:
                await self._parts.put(messages)
            if end is not None and offset >= pulled.max_offset:
                return  # also if the queue now ends before the end that was noted

    def _route_changed(self, route: Route) -> None:
        for queue in route.subscribe_queues:
            if queue not in self._readers:
                self._read(queue, 0, None)

    async def next(self, most: int | None) -> list[ReceivedMessage]:
        """Some messages of one queue; none at the end of all queues."""
        while self._readers:
            part = await self._parts.get()
            if isinstance(part, Exception):
                raise part
            if isinstance(part, list):
                return part[:most]
            del self._readers[part]
        return []

    async def close(self, *, is_failed: bool) -> None:
        if self._stop_listening is not None:
            self._stop_listening()
        readers = list(self._readers.values())
        for reader in readers:
            reader.cancel()
        await asyncio.gather(*readers, return_exceptions=True)
        if self._session is not None:
            await self._session.release()
