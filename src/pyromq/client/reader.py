"""Follows a topic by itself: no group, no stored offsets, every reader sees every message.

Where it begins is fixed by `start`; it reads from the first `receive` on. Queues that appear later are read
from their beginning.
"""

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable
from types import TracebackType
from typing import Self, Unpack

from pyromq.client.consumer.reading.brokers import QueueBrokers
from pyromq.client.consumer.reading.fetching import Fetching
from pyromq.client.consumer.reading.offsets import StartFrom, StartPositions
from pyromq.client.consumer.reading.subscriptions import Expression, Subscription, check_topic
from pyromq.client.session import Session
from pyromq.client.settings import ClientOptions, ClientSettings
from pyromq.client.values import MessageQueue, ReceivedMessage
from pyromq.cluster.routes import Route
from pyromq.errors import PyroError, Refused, StateError
from pyromq.protocol.codes import ResponseCode
from pyromq.protocol.message import open_message
from pyromq.protocol.names import TOOLS_GROUP
from pyromq.protocol.record import decode_records
from pyromq.protocol.requests.pulling import QueryMessage

_log = logging.getLogger(__name__)

_AFTER_FAILURE_S = 1.0
_FOREVER_MS = 2**63 - 1
_MAX_HELD = 1000
"""Messages that lie here unread; then queues wait."""


class Reader:
    """`async with Reader("Prices", "EUR || USD", namesrv="127.0.0.1:9876") as reader: … receive() …`.

    `start_from`: "last", "first" or a datetime. Options are the fields of `ClientSettings`.
    """

    def __init__(
        self,
        topic: str,
        expression: Expression = "*",
        namesrv: str | Iterable[str] | None = None,
        *,
        start_from: StartFrom = "last",
        **options: Unpack[ClientOptions],
    ) -> None:
        check_topic(topic)
        self.topic = topic
        self.client_settings = ClientSettings.of(namesrv, **options)
        self._start_from = start_from
        self._expression = expression
        self._subscription = Subscription.of(topic, expression, 0)
        self._session: Session | None = None
        self._is_closed = False
        self._fetching: Fetching
        self._positions: dict[MessageQueue, int] = {}
        self._tasks: dict[MessageQueue, asyncio.Task[None]] = {}
        self._held: deque[ReceivedMessage] = deque()
        self._stop_watching: Callable[[], None] | None = None
        self._arrived = asyncio.Event()
        self._has_room = asyncio.Event()

    def __repr__(self) -> str:
        return f"<Reader {self.topic} queues={len(self._positions)} held={len(self._held)}>"

    async def start(self) -> None:
        """Find where to begin: what is sent from now on is read."""
        if self._session is not None or self._is_closed:
            raise StateError("a reader can be started only once: create a new one")
        session = self._session = await Session.obtain(self.client_settings)
        name = session.wrap(self.topic)
        try:
            route = await session.routes.get(name)
            positions = StartPositions(QueueBrokers(session), self._start_from, session.clock)
            found = await asyncio.gather(*map(positions.beginning, route.subscribe_queues))
        except BaseException:
            await self.close()
            raise
        self._positions = dict(zip(route.subscribe_queues, found, strict=True))
        self._fetching = Fetching(session, TOOLS_GROUP, namespace=session.settings.namespace, is_lite=True)
        self.filter(self._expression)

    async def close(self) -> None:
        session, self._session, self._is_closed = self._session, None, True
        self._arrived.set()
        if self._stop_watching is not None:
            self._stop_watching()
        tasks = [*self._tasks.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if session is not None:
            await session.release()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def filter(self, expression: Expression) -> None:
        """Read other tags from now on; a read that waits at a broker ends first, within seconds."""
        session = self._running()
        name = session.wrap(self.topic)
        self._subscription = Subscription.of(name, expression, session.clock.now_ms())

    async def receive(self, max_messages: int = 16, *, wait_s: float | None = None) -> list[ReceivedMessage]:
        """The next messages: at least one, or none when `wait_s` is over or the reader is closed."""
        session = self._running()
        if self._stop_watching is None:
            name = session.wrap(self.topic)
            self._stop_watching = session.routes.on_change(name, self._read_queues)
            self._read_queues(await session.routes.get(name))
        try:
            async with asyncio.timeout(wait_s):
                while not self._held and not self._is_closed:
                    self._arrived.clear()
                    await self._arrived.wait()
        except TimeoutError:
            return []
        taken = [self._held.popleft() for _ in range(min(max_messages, len(self._held)))]
        if len(self._held) < _MAX_HELD:
            self._has_room.set()
        return taken

    async def find(self, key: str, limit: int = 32) -> list[ReceivedMessage]:
        """The newest messages of the topic that have the key, newest first: at most these of each broker."""
        session = self._running()
        name = session.wrap(self.topic)
        route = await session.routes.get(name)
        request = QueryMessage(
            topic=name, key=key, max_num=limit, begin_timestamp=0, end_timestamp=_FOREVER_MS
        )

        async def ask(broker_name: str) -> list[ReceivedMessage]:
            try:
                address = session.broker_address(broker_name) or ""
                answer = await session.call(address, request, session.settings.call_timeout_s)
            except Refused as refusal:
                if refusal.code == ResponseCode.QUERY_NOT_FOUND:
                    return []
                raise
            return [
                ReceivedMessage(each, MessageQueue(name, broker_name, each.queue_id), self.topic)
                for record in decode_records(answer.body)
                for each in open_message(record)
            ]

        answers = await asyncio.gather(*map(ask, {queue.broker_name for queue in route.subscribe_queues}))
        found = [message for answer in answers for message in answer if key in message.keys]
        return sorted(found, key=lambda each: (each.stored_ms, each.stored.log_offset), reverse=True)

    async def __aiter__(self) -> AsyncIterator[ReceivedMessage]:
        while not self._is_closed:
            for message in await self.receive():
                yield message

    def _read_queues(self, route: Route) -> None:
        if self._session is None:
            return
        for queue in route.subscribe_queues:
            if queue not in self._tasks:
                self._tasks[queue] = asyncio.create_task(self._read(queue), name=f"read {queue}")

    async def _read(self, queue: MessageQueue) -> None:
        offset, is_failing = self._positions.get(queue, 0), False
        while True:
            while len(self._held) >= _MAX_HELD:
                self._has_room.clear()
                await self._has_room.wait()
            try:
                pulled = await self._fetching.pull(queue, self._subscription, offset)
            except PyroError as problem:
                if not is_failing:
                    _log.warning("cannot read queue=%s: %s", queue, problem)
                is_failing = True
                await asyncio.sleep(_AFTER_FAILURE_S)
                continue
            offset, is_failing = pulled.next_offset, False
            if pulled.messages:
                self._held.extend(pulled.messages)
                self._arrived.set()

    def _running(self) -> Session:
        if self._session is None:
            raise StateError("the reader is not running: start it, or use it in a `with` block")
        self._session.check_loop()
        return self._session
