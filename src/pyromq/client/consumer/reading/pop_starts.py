"""Where a group that pops begins: brokers guess it, unless a member says so before its first pop."""

import asyncio

from pyromq.client.consumer.reading.brokers import QueueBrokers
from pyromq.client.consumer.reading.offsets import RemoteOffsets, StartFrom, StartPositions
from pyromq.client.session import Session
from pyromq.cluster.routes import Route
from pyromq.protocol.body import MessageQueue


class PopStarts:
    def __init__(self, session: Session, group: str, start_from: StartFrom) -> None:
        brokers = QueueBrokers(session)
        self._session = session
        self._offsets = RemoteOffsets(brokers, group)
        self.positions = StartPositions(brokers, start_from, session.clock)
        self._is_at_first = start_from == "first"  # pops say that themselves
        self._looked_at: dict[tuple[str, str], Route] = {}
        self._placed: set[MessageQueue] = set()
        self._placing = asyncio.Lock()
        self._is_known = False

    def __repr__(self) -> str:
        return f"<PopStarts queues={len(self._placed)}>"

    async def place(self, topic: str, broker_name: str) -> None:
        """Store where the group begins, in those queues of a broker in which it has never been."""
        route = self._session.routes.cached(topic)
        if self._is_at_first or route is None or self._looked_at.get((topic, broker_name)) is route:
            return
        async with self._placing:
            for queue in route.subscribe_queues:
                if queue not in self._placed and route.broker_of(queue) == broker_name:
                    await self._place(queue)
                    self._placed.add(queue)
            self._looked_at[topic, broker_name] = route

    async def _place(self, queue: MessageQueue) -> None:
        if await self._offsets.read(queue) is not None:
            return
        begin = await self.positions.beginning(queue)
        if not self._is_known:
            # A broker stores nothing for a group that it does not know.
            await self._session.heartbeat_now()
            self._is_known = True
        for problem in (await self._offsets.store({queue: begin}, confirmed=True)).values():
            raise problem
