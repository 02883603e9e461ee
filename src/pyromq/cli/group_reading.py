"""Reads queues as a member of a group; commits messages only after they were written out."""

from pyromq.cli.cluster_options import ClusterOptions
from pyromq.cli.queue_names import check_readable, named_queues
from pyromq.cli.queue_scan import ScanRange
from pyromq.cli.starting_points import StartKind
from pyromq.client.consumer.pull import PullConsumer
from pyromq.client.consumer.reading.brokers import QueueBrokers
from pyromq.client.consumer.reading.offsets import StartPositions
from pyromq.client.session import Session
from pyromq.client.values import MessageQueue, ReceivedMessage
from pyromq.errors import StateError

_PULL_MESSAGES = 512
_LOOK_S = 0.1
_STALLED_S = 30.0


class GroupReading:
    """A queue ends where it ended when it was assigned.

    Queues that are wanted by name are read even if other members read them.
    """

    def __init__(self, cluster: ClusterOptions, group: str, wanted: ScanRange, *, is_broadcast: bool) -> None:
        self._settings = cluster.settings()
        self._wanted = wanted
        self._consumer = PullConsumer(
            group,
            cluster.namesrv,
            **cluster.options,
            start_from="first",
            broadcast=is_broadcast,
            pull_batch_size=_PULL_MESSAGES,
        )
        self._session: Session | None = None
        self._ends: dict[MessageQueue, int] = {}
        self._progress: dict[MessageQueue, int] = {}
        self._moved_at = 0.0

    def __repr__(self) -> str:
        return f"<GroupReading {self._consumer!r}>"

    async def open(self) -> None:
        # Check the topic and the queue names before joining the group.
        session = self._session = await Session.obtain(self._settings)
        queues = (await session.routes.get(session.wrap(self._wanted.topic))).subscribe_queues
        check_readable(self._wanted.topic, queues)
        self._positions = StartPositions(QueueBrokers(session), "first", session.clock)
        chosen = named_queues(self._wanted.queue_names, queues)
        if not chosen:
            self._consumer.subscribe(self._wanted.topic, self._wanted.expression)
        await self._consumer.start()
        if chosen:
            await self._consumer.assign(chosen, self._wanted.expression)
        self._moved_at = session.clock.monotonic()
        await self._note_queues()
        if not self._consumer.assigned:
            problems = (await self._consumer.health()).problems
            reason = "; ".join(problems) or "the other members of the group read them all"
            remark = f"no queue is assigned to this member: {reason}"
            if problems and not self._wanted.is_following:
                raise StateError(remark)
            self._wanted.remark(remark)
        if self._wanted.start.kind is not StartKind.STORED:
            for queue in self._consumer.assigned:
                await self._consumer.seek(queue, await self._wanted.start.offset(queue, self._positions))

    async def _note_queues(self) -> None:
        for queue in self._consumer.assigned - self._ends.keys():
            self._ends[queue] = await self._positions.last(queue)

    async def next(self, most: int | None) -> list[ReceivedMessage]:
        """Some messages of one queue; none at the end of all queues. Those of the last call count as done."""
        while self._wanted.is_following or not self._is_at_end():
            messages = await self._consumer.poll(_LOOK_S, most)
            if messages:
                return messages
            await self._note_queues()
            if not self._wanted.is_following:
                self._check_progress()
        return []

    def _is_at_end(self) -> bool:
        return all(
            self._consumer.position(queue) >= self._ends.get(queue, 0) for queue in self._consumer.assigned
        )

    def _check_progress(self) -> None:
        """Give up when no queue has moved for a while."""
        assert self._session is not None
        now = self._session.clock.monotonic()
        progress = {queue: self._consumer.position(queue) for queue in self._consumer.assigned}
        if progress != self._progress:
            self._progress, self._moved_at = progress, now
        elif now - self._moved_at > _STALLED_S:
            stuck = [queue for queue, offset in progress.items() if offset < self._ends.get(queue, 0)]
            queues = ", ".join(map(str, sorted(stuck)))
            raise StateError(
                f"no message from {queues} for {_STALLED_S:.0f} s: is the broker up, and may the group read?"
            )

    async def close(self, *, is_failed: bool) -> None:
        """Leave the group; unless `is_failed`, commit everything that `next` returned."""
        await self._consumer._shut(is_failed=is_failed)
        if self._session is not None:
            await self._session.release()
