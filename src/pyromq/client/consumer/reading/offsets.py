"""The offsets of a group: the broker keeps them in clustering mode, a local file in broadcasting mode.

Reading distinguishes a stored offset from none. If that cannot be found out, it raises: a consumer never
guesses where to start.
"""

import asyncio
from collections.abc import Iterable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Literal, Protocol

from pyromq.client.consumer.reading.brokers import QueueBrokers
from pyromq.clock import Clock
from pyromq.config.durable_file import DurableFile
from pyromq.errors import ConfigError, PyroError, Refused, RemoteProtocolError, StateError
from pyromq.protocol import json_body
from pyromq.protocol.body import MessageQueue
from pyromq.protocol.catalogue import Request
from pyromq.protocol.codes import ResponseCode
from pyromq.protocol.names import is_retry_topic
from pyromq.protocol.requests.groups import GetTopicsOfGroup
from pyromq.protocol.requests.inspection import GetConsumeStats
from pyromq.protocol.requests.membership import ConsumeFromWhere
from pyromq.protocol.requests.offsets import (
    GetMaxOffset,
    GetMinOffset,
    OffsetAnswer,
    OffsetSerializeWrapper,
    QueryConsumerOffset,
    SearchOffset,
    UpdateConsumerOffset,
)

OFFSET_TIMEOUT_S = 5.0

_JUST_NOW_MS = 10_000
_CLOCKS_DIFFER_MS = 60_000
"""By this much a broker's clock may be behind ours."""

StartFrom = Literal["first", "last"] | datetime
"""Where a group starts in a queue that it has never read."""


class OffsetStore(Protocol):
    async def read(self, queue: MessageQueue) -> int | None:
        """The stored offset, None if there is none; raises if it cannot be read."""
        ...

    async def store(
        self, offsets: Mapping[MessageQueue, int], *, confirmed: bool = False
    ) -> dict[MessageQueue, PyroError]:
        """Store these; returns those that could not be stored, with the error.

        `confirmed`: wait until they are stored, not only sent.
        """
        ...


class RemoteOffsets:
    """Offsets that the broker of each queue keeps for the group."""

    def __init__(self, brokers: QueueBrokers, group: str) -> None:
        self._brokers = brokers
        self._group = group

    def __repr__(self) -> str:
        return f"<RemoteOffsets {self._group}>"

    async def read(self, queue: MessageQueue) -> int | None:
        request = QueryConsumerOffset(
            consumer_group=self._group,
            topic=queue.topic,
            queue_id=queue.queue_id,
            set_zero_if_not_found=False,
            target_broker_name=queue.broker_name,
        )
        try:
            answer = await self._brokers.call(queue, request, OFFSET_TIMEOUT_S)
        except Refused as refusal:
            if refusal.code == ResponseCode.QUERY_NOT_FOUND:
                return None
            raise
        if answer.offset < 0 or (answer.offset == 0 and await self._is_guessed(queue)):
            return None
        return answer.offset

    async def _is_guessed(self, queue: MessageQueue) -> bool:
        """Whether 0 is not stored: brokers before 5.0 answer it if they have the first message at hand."""
        try:
            await self._brokers.call(queue, GetTopicsOfGroup(group=self._group), OFFSET_TIMEOUT_S)
        except Refused as refusal:
            if refusal.code != ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
                return False
        else:
            return False  # of 5.0 or later: it does not guess if it is asked not to
        # Without a topic, the lag is that in the topics where the group has offsets.
        stats = await self._brokers.call(queue, GetConsumeStats(consumer_group=self._group), OFFSET_TIMEOUT_S)
        return all(each.topic != queue.topic for each in stats.body.offset_table)

    async def store(
        self, offsets: Mapping[MessageQueue, int], *, confirmed: bool = False
    ) -> dict[MessageQueue, PyroError]:
        problems: dict[MessageQueue, PyroError] = {}

        async def store_one(queue: MessageQueue, offset: int) -> None:
            request = UpdateConsumerOffset(
                consumer_group=self._group,
                topic=queue.topic,
                queue_id=queue.queue_id,
                commit_offset=offset,
                target_broker_name=queue.broker_name,
            )
            try:
                if confirmed:
                    await self._brokers.call(queue, request, OFFSET_TIMEOUT_S)
                else:
                    await self._brokers.send_oneway(queue, request)
            except PyroError as problem:
                problems[queue] = problem

        await asyncio.gather(*(store_one(queue, offset) for queue, offset in offsets.items()))
        return problems


def offset_directory(chosen: Path | str | None) -> Path:
    # java: the same directory, so that a client in either language continues where the other stopped
    return Path(chosen) if chosen is not None else Path.home() / ".rocketmq_offsets"


class LocalOffsets:
    """Offsets that a broadcasting member keeps in a file, the same one as a Java client."""

    def __init__(self, directory: Path, client_id: str, group: str) -> None:
        self._file = DurableFile(directory / client_id / group / "offsets.json")
        self._known: dict[MessageQueue, int] | None = None
        self._saving = asyncio.Lock()

    def __repr__(self) -> str:
        return f"<LocalOffsets {self._file.path}>"

    async def read(self, queue: MessageQueue) -> int | None:
        async with self._saving:
            if self._known is None:
                self._known = await asyncio.to_thread(self._load)
        return self._known.get(queue)

    async def store(
        self, offsets: Mapping[MessageQueue, int], *, confirmed: bool = False
    ) -> dict[MessageQueue, PyroError]:
        async with self._saving:
            if self._known is None:
                self._known = await asyncio.to_thread(self._load)
            self._known.update(offsets)
            writing = asyncio.create_task(asyncio.to_thread(self._file.save, encode_offsets(self._known)))
            try:
                await asyncio.shield(writing)
            except asyncio.CancelledError:
                # The thread still writes; the next write must wait for it.
                await asyncio.wait([writing])
                raise
            except OSError as problem:
                return dict.fromkeys(offsets, StateError(f"{self._file.path} cannot be written: {problem}"))
        return {}

    def _load(self) -> dict[MessageQueue, int]:
        problem: Exception | None = None
        for path, content in self._file.contents():
            if not content:
                continue  # java: an empty file counts as missing
            try:
                return json_body.decode(content, OffsetSerializeWrapper).offset_table
            except RemoteProtocolError as damage:
                problem = StateError(
                    f"{path} cannot be read: {damage}; remove it to start without stored offsets"
                )
        if problem is not None:
            raise problem
        return {}


def encode_offsets(offsets: Mapping[MessageQueue, int]) -> bytes:
    """One queue on each line, so that people can read the file."""
    lines = [b"\t\t%b:%d" % (json_body.encode(queue), offset) for queue, offset in sorted(offsets.items())]
    return b'{\n\t"offsetTable":{\n' + b",\n".join(lines) + b"\n\t}\n}"


class StartPositions:
    """Where to start in a queue: at the stored offset, else as `start_from` says.

    A queue of retries is always read from its first message: all of them are this group's.
    """

    def __init__(self, brokers: QueueBrokers, start_from: StartFrom, clock: Clock) -> None:
        if isinstance(start_from, str) and start_from not in ("first", "last"):
            raise ConfigError("start_from", start_from, '"first", "last" or a datetime')
        self._brokers = brokers
        self._start_from = start_from
        self._clock = clock
        self._since: dict[str, tuple[int, bool]] = {}
        """When a topic was subscribed to, and whether that lasts until its queues have begun."""
        self._queues: dict[str, frozenset[MessageQueue]] = {}
        """The queues that it had then."""

    def __repr__(self) -> str:
        return f"<StartPositions {self._start_from}>"

    def subscribing(self, topic: str, *, is_awaited: bool) -> None:
        """A topic is subscribed to now. `is_awaited`: the application waits until its queues have begun."""
        self._since[topic] = self._clock.now_ms(), is_awaited

    def subscribed(self, topic: str, queues: Iterable[MessageQueue]) -> None:
        """A topic that was subscribed to had these queues."""
        self._queues.setdefault(topic, frozenset(queues))

    async def find(self, queue: MessageQueue, offsets: OffsetStore) -> int:
        stored = await offsets.read(queue)
        return await self.beginning(queue) if stored is None else stored

    async def beginning(self, queue: MessageQueue) -> int:
        """Where a group starts in a queue that it has never read."""
        if self._start_from == "first" or is_retry_topic(queue.topic):
            return 0  # if the first messages are gone, the broker corrects it on the first pull
        if isinstance(self._start_from, datetime):
            return await self.at(queue, round(self._start_from.timestamp() * 1000))
        now_ms = self._clock.now_ms()
        since_ms, is_awaited = self._since.get(queue.topic, (now_ms, True))
        if queue in self._queues.get(queue.topic, (queue,)) and now_ms - since_ms < _JUST_NOW_MS:
            return await (self.last(queue) if is_awaited else self.at(queue, since_ms))
        # A queue that appears later, or that another member has read meanwhile without a commit: what was
        # stored since the subscription is new.
        return await self.at(queue, since_ms - _CLOCKS_DIFFER_MS)

    async def first(self, queue: MessageQueue) -> int:
        request = GetMinOffset(
            topic=queue.topic, queue_id=queue.queue_id, target_broker_name=queue.broker_name
        )
        return await self._ask(queue, request)

    async def last(self, queue: MessageQueue) -> int:
        """The offset after the last message."""
        request = GetMaxOffset(
            topic=queue.topic, queue_id=queue.queue_id, target_broker_name=queue.broker_name
        )
        return await self._ask(queue, request)

    async def at(self, queue: MessageQueue, timestamp_ms: int) -> int:
        """The offset of the first message stored at that time or later."""
        request = SearchOffset(
            topic=queue.topic,
            queue_id=queue.queue_id,
            timestamp=timestamp_ms,
            target_broker_name=queue.broker_name,
        )
        return await self._ask(queue, request)

    async def _ask(self, queue: MessageQueue, request: Request[OffsetAnswer]) -> int:
        # java: an empty batch queue of 5.x begins at -1
        return max((await self._brokers.call(queue, request, OFFSET_TIMEOUT_S)).offset, 0)


def on_the_wire(start_from: StartFrom) -> ConsumeFromWhere:
    if isinstance(start_from, datetime):
        return ConsumeFromWhere.CONSUME_FROM_TIMESTAMP
    if start_from == "first":
        return ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
    return ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET
