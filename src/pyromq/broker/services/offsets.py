"""Offsets: of consumer groups, of the begin and end of queues, and their reset by an operator."""

import asyncio
import logging
from collections.abc import Callable
from itertools import islice
from typing import NoReturn, TypeAlias

from pyromq.broker.flow.looking_up import LookingUp
from pyromq.broker.flow.reading import is_young
from pyromq.broker.settings import BrokerSettings
from pyromq.broker.tables.all_tables import Tables
from pyromq.broker.tables.clients import Client
from pyromq.config.live import LiveSettings
from pyromq.errors import PyroError, Refused, StoreError
from pyromq.protocol import json_body
from pyromq.protocol.body import MessageQueue
from pyromq.protocol.catalogue import Answer, BodyAnswer, RawAnswer
from pyromq.protocol.codes import Language, ResponseCode, version_name
from pyromq.protocol.requests.inspection import GetConsumerStatus
from pyromq.protocol.requests.offsets import (
    CloneGroupOffset,
    DelayOffsetSerializeWrapper,
    GetAllConsumerOffsets,
    GetAllDelayOffsets,
    GetEarliestStoreTime,
    GetEarliestStoreTimeAnswer,
    GetMaxOffset,
    GetMinOffset,
    MessageQueueForC,
    OffsetAnswer,
    QueryConsumerOffset,
    QueryCorrectionOffsetBody,
    QueryCorrectionOffsets,
    ResetOffset,
    ResetOffsetBody,
    ResetOffsetBodyForC,
    SearchOffset,
    UpdateConsumerOffset,
)
from pyromq.protocol.requests.pushes import (
    GetConsumerStatusBody,
    GetConsumerStatusFromClient,
    ResetConsumerOffset,
)
from pyromq.protocol.requests.topics import TopicConfig
from pyromq.remoting.long_answers import written
from pyromq.remoting.routing import Caller, handles
from pyromq.remoting.slices import Slices
from pyromq.store.message_store import MessageStore
from pyromq.store.results import Boundary

_log = logging.getLogger(__name__)

CLEAN_EVERY_ROUNDS = 120
"""Dead offsets are removed in every such round of saving."""

CLIENT_TIMEOUT_S = 5.0
_FIRST_RESETTABLE_VERSION = 28  # java: V3_0_7_SNAPSHOT; older clients support neither reset nor status
_MAX_INT64 = 2**63 - 1
_PAIRS_AT_ONCE = 64

EndAnswer: TypeAlias = "OffsetAnswer | asyncio.Future[OffsetAnswer]"


class Offsets:
    def __init__(
        self,
        live: LiveSettings[BrokerSettings],
        store: MessageStore,
        tables: Tables,
        *,
        slices: Slices,
        on_reset: Callable[[str], None],
        when_readable: Callable[[Callable[[], OffsetAnswer]], EndAnswer] = lambda answer: answer(),
        looking_up: LookingUp | None = None,
    ) -> None:
        """`on_reset` is called with the topic of a reset, so that held pulls are answered. `when_readable`:
        see `Durability`."""
        self._live = live
        self._store = store
        self._when_readable = when_readable
        self._looking_up = looking_up if looking_up is not None else LookingUp(store)
        self._role = tables.role
        self._topics = tables.topics
        self._groups = tables.groups
        self._offsets = tables.offsets
        self._consumers = tables.consumers
        self._slices = slices
        self._delay_offsets = tables.delay_offsets
        self._on_reset = on_reset

    def __repr__(self) -> str:
        return f"<Offsets {self._offsets!r}>"

    # Offsets of groups

    @handles(QueryConsumerOffset)
    def query(self, request: QueryConsumerOffset, caller: Caller) -> OffsetAnswer:
        topic, queue_id = request.topic, request.queue_id
        offset = self._offsets.query(request.consumer_group, topic, queue_id)
        if offset >= 0:
            return OffsetAnswer(offset=offset)
        # java: a new group starts at 0 if the queue still has all its messages in memory; otherwise the
        # consumer decides where to start
        if request.set_zero_if_not_found is not False and is_young(self._store, topic, queue_id):
            return OffsetAnswer(offset=0)
        raise Refused(
            ResponseCode.QUERY_NOT_FOUND,
            f"the group {request.consumer_group} has no offset for queue {queue_id} of {topic}",
        )

    @handles(UpdateConsumerOffset)
    def update(self, request: UpdateConsumerOffset, caller: Caller) -> Answer | None:
        self._role.require_no_mirror()
        group, topic, queue_id = request.consumer_group, request.topic, request.queue_id
        if self._groups.get(group) is None:
            raise Refused(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"the consumer group {group} does not exist"
            )
        config = self._topic(topic)
        if request.commit_offset < 0 or not self._is_queue(config, queue_id):
            raise Refused(
                ResponseCode.INVALID_PARAMETER,
                f"offset {request.commit_offset} of queue {queue_id} of {topic}:"
                " expected an offset of at least 0, and an existing queue",
            )
        if (
            self._live.now.server_side_reset
            and self._offsets.pending_reset(group, topic, queue_id) is not None
        ):
            return Answer(remark="ignored: the group has not seen the last offset reset yet")
        known = self._consumers.group(group)
        if known is not None and known.is_broadcasting:
            return Answer(remark="ignored: consumers of a broadcasting group keep their own offsets")
        if self._offsets.commit(group, topic, queue_id, request.commit_offset):
            _log.debug(
                "offset moved back group=%s topic=%s queue=%d offset=%d address=%s",
                group,
                topic,
                queue_id,
                request.commit_offset,
                caller.address,
            )
        return None

    def _topic(self, topic: str) -> TopicConfig:
        config = self._topics.readable(topic)
        if config is None:
            raise Refused(ResponseCode.TOPIC_NOT_EXIST, f"the topic {topic} does not exist")
        return config

    def _is_queue(self, config: TopicConfig, queue_id: int) -> bool:
        if 0 <= queue_id < max(config.read_queue_nums, config.write_queue_nums):
            return True
        # A topic may have had more queues; consumers still read those to the end.
        return self._store.queues.find(config.topic_name, queue_id) is not None

    @handles(GetAllConsumerOffsets)
    async def all_consumers(self, request: GetAllConsumerOffsets, caller: Caller) -> RawAnswer:
        table = await self._offsets.copied(self._slices)
        return await written(table, len(table.offset_table))

    @handles(GetAllDelayOffsets)
    def all_delays(
        self, request: GetAllDelayOffsets, caller: Caller
    ) -> BodyAnswer[DelayOffsetSerializeWrapper]:
        return BodyAnswer(body=self._delay_offsets.wrapper())

    async def _promised(self) -> None:
        try:
            await self._offsets.promised(self._slices)
        except (StoreError, OSError) as problem:
            raise Refused(
                ResponseCode.SYSTEM_ERROR, f"the offsets are changed, but not on disk: {problem}"
            ) from problem

    @handles(CloneGroupOffset)
    async def clone(self, request: CloneGroupOffset, caller: Caller) -> None:
        self._role.require_no_mirror()
        source = self._consumers.group(request.src_group)
        is_one = request.topic is not None and request.topic.strip()
        for topic in [request.topic or ""] if is_one else self._offsets.topics_of(request.src_group):
            is_unsubscribed = (
                source is not None and source.subscriptions and topic not in source.subscriptions
            )
            if self._topics.get(topic) is None or (is_unsubscribed and not request.offline):
                _log.warning("offsets not cloned group=%s topic=%s", request.src_group, topic)
            else:
                self._offsets.clone(request.src_group, request.dest_group, topic)
        await self._promised()

    @handles(QueryCorrectionOffsets)
    async def correction(
        self, request: QueryCorrectionOffsets, caller: Caller
    ) -> BodyAnswer[QueryCorrectionOffsetBody]:
        topic = request.topic
        without = frozenset(filter(None, (request.filter_groups or "").split(",")))
        least: dict[int, int] = {}
        for group in self._offsets.groups_of(topic):
            if group not in without:
                queues = list(self._offsets.queues(group, topic).items())
                async for queue_id, offset in self._slices.spread(queues):
                    if offset >= self._store.queues.min_offset(topic, queue_id):
                        least[queue_id] = min(offset, least.get(queue_id, offset))
        for queue_id, offset in self._offsets.queues(request.compare_group, topic).items():
            # java: the largest number says that the compared group is behind everyone
            if least.get(queue_id, _MAX_INT64) > offset:
                least[queue_id] = _MAX_INT64
        return BodyAnswer(body=QueryCorrectionOffsetBody(correction_offsets=least))

    # Begin and end of queues

    # Who begins at an end that is not confirmed would skip messages, if the next master has another one.

    @handles(GetMaxOffset, may_wait=True)
    def max_offset(self, request: GetMaxOffset, caller: Caller) -> EndAnswer:
        return self._when_readable(
            lambda: OffsetAnswer(offset=self._store.queues.max_offset(request.topic, request.queue_id))
        )

    @handles(GetMinOffset)
    def min_offset(self, request: GetMinOffset, caller: Caller) -> OffsetAnswer:
        return OffsetAnswer(offset=self._store.queues.min_offset(request.topic, request.queue_id))

    @handles(SearchOffset, may_wait=True)
    def search(self, request: SearchOffset, caller: Caller) -> EndAnswer:
        is_upper = (request.boundary_type or "").upper() == Boundary.UPPER.value
        boundary = Boundary.UPPER if is_upper else Boundary.LOWER
        wanted = request.topic, request.queue_id, request.timestamp, boundary

        def here() -> OffsetAnswer:
            return OffsetAnswer(offset=self._looking_up.offset_here(*wanted))

        if self._looking_up.is_offset_here(*wanted):
            return self._when_readable(here)
        return asyncio.get_running_loop().create_task(self._search_older(wanted, here))

    async def _search_older(
        self, wanted: tuple[str, int, int, Boundary], here: Callable[[], OffsetAnswer]
    ) -> OffsetAnswer:
        offset = await self._looking_up.older_offset(*wanted)
        if offset is not None:
            return OffsetAnswer(offset=offset)
        answer = self._when_readable(here)
        return answer if isinstance(answer, OffsetAnswer) else await answer

    @handles(GetEarliestStoreTime)
    def earliest_time(self, request: GetEarliestStoreTime, caller: Caller) -> GetEarliestStoreTimeAnswer:
        return GetEarliestStoreTimeAnswer(
            timestamp=self._looking_up.earliest_time(request.topic, request.queue_id)
        )

    # Resets

    @handles(ResetOffset)
    async def reset(self, request: ResetOffset, caller: Caller) -> RawAnswer:
        self._role.require_no_mirror()
        config = self._topic(request.topic)
        _log.info(
            "offset reset group=%s topic=%s queue=%d timestamp=%d address=%s",
            request.group,
            request.topic,
            request.queue_id,
            request.timestamp,
            caller.address,
        )
        if self._live.now.server_side_reset:
            return await self._reset_here(request, config)
        return await self._reset_clients(request, config)

    async def _reset_here(self, request: ResetOffset, config: TopicConfig) -> RawAnswer:
        """The broker answers the group's next pulls with the new offsets."""
        if self._groups.get(request.group) is None:
            raise Refused(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
                f"the consumer group {request.group} does not exist",
            )
        if request.queue_id >= 0:
            if not self._is_queue(config, request.queue_id):
                raise Refused(
                    ResponseCode.INVALID_PARAMETER,
                    f"the topic {request.topic} has no queue {request.queue_id}:"
                    f" expected one of its {config.read_queue_nums}, or -1 for all",
                )
            targets = {request.queue_id: await self._target(request, request.queue_id)}
        else:
            targets = {
                queue_id: await self._offset_at(request.topic, queue_id, request.timestamp)
                async for queue_id in self._slices.spread(range(config.read_queue_nums))
            }
        if not targets:
            raise Refused(ResponseCode.SYSTEM_ERROR, f"the topic {request.topic} has no read queues")
        async for queue_id, offset in self._slices.spread(targets.items()):
            self._offsets.assign_reset(request.group, request.topic, queue_id, offset)
        self._on_reset(request.topic)
        await self._promised()
        return await self._reset_answer(request.topic, targets)

    async def _target(self, request: ResetOffset, queue_id: int) -> int:
        if request.offset is None or request.offset == -1:
            return await self._offset_at(request.topic, queue_id, request.timestamp)
        least, most = (
            self._store.queues.min_offset(request.topic, queue_id),
            self._store.queues.max_offset(request.topic, queue_id),
        )
        if not least <= request.offset <= most + 1:
            raise Refused(
                ResponseCode.SYSTEM_ERROR,
                f"offset {request.offset} of queue {queue_id}: expected {least} to {most}",
            )
        return request.offset

    async def _offset_at(self, topic: str, queue_id: int, timestamp_ms: int) -> int:
        if timestamp_ms < 0:
            return self._store.queues.max_offset(topic, queue_id)
        return max(0, await self._looking_up.offset_at(topic, queue_id, timestamp_ms))

    async def _reset_clients(self, request: ResetOffset, config: TopicConfig) -> RawAnswer:
        """java: the older way: the broker sends the new offsets to each member, which commits them."""
        targets = {}
        async for queue_id in self._slices.spread(range(config.write_queue_nums)):
            stands_at = self._offsets.query(request.group, request.topic, queue_id)
            if stands_at == -1:
                raise Refused(
                    ResponseCode.SYSTEM_ERROR,
                    f"the group {request.group} has no offset for queue {queue_id} of {request.topic}",
                )
            wanted = await self._offset_at(request.topic, queue_id, request.timestamp)
            targets[queue_id] = wanted if request.is_force or wanted < stands_at else stands_at
        answer = await self._reset_answer(request.topic, targets)
        group = self._consumers.group(request.group)
        if group is None:
            raise Refused(
                ResponseCode.CONSUMER_NOT_ONLINE, f"no consumer of the group {request.group} is online"
            )
        for client in group.members.values():
            _require_new_enough(client)
        for client in group.members.values():
            if client.channel.is_open:
                client.channel.send_oneway(self._reset_of(client, request, targets))
        return answer

    def _reset_of(self, client: Client, request: ResetOffset, targets: dict[int, int]) -> ResetConsumerOffset:
        return ResetConsumerOffset(
            group=request.group,
            topic=request.topic,
            timestamp=request.timestamp,
            is_force=request.is_force,
            body=json_body.encode(
                self._reset_body_for_c(request.topic, targets)
                if client.language == Language.CPP
                else self._reset_body(request.topic, targets)
            ),
        )

    async def _reset_answer(self, topic: str, targets: dict[int, int]) -> RawAnswer:
        return await written(self._reset_body(topic, targets), len(targets))

    def _reset_body(self, topic: str, targets: dict[int, int]) -> ResetOffsetBody:
        broker = self._live.now.broker_name
        return ResetOffsetBody(
            offset_table={
                MessageQueue(topic, broker, queue_id): offset for queue_id, offset in targets.items()
            }
        )

    def _reset_body_for_c(self, topic: str, targets: dict[int, int]) -> ResetOffsetBodyForC:
        broker = self._live.now.broker_name
        return ResetOffsetBodyForC(
            offset_table=[
                MessageQueueForC(topic=topic, broker_name=broker, queue_id=queue_id, offset=offset)
                for queue_id, offset in targets.items()
            ]
        )

    @handles(GetConsumerStatus)
    async def status(self, request: GetConsumerStatus, caller: Caller) -> BodyAnswer[GetConsumerStatusBody]:
        """Ask the members of a group, or one of them, for their offsets."""
        group = self._consumers.group(request.group)
        if group is None:
            _refuse_offline(request.group)
        wanted_id = (request.client_addr or "").strip()
        asked = [
            client for client in group.members.values() if not wanted_id or client.client_id == wanted_id
        ]
        for client in asked:
            _require_new_enough(client)
        answers = await asyncio.gather(*(self._status_of(client, request) for client in asked))
        by_client = {
            client.client_id: body.message_queue_table
            for client, body in zip(asked, answers, strict=True)
            if body is not None
        }
        return BodyAnswer(body=GetConsumerStatusBody(consumer_table=by_client))

    async def _status_of(self, client: Client, request: GetConsumerStatus) -> GetConsumerStatusBody | None:
        question = GetConsumerStatusFromClient(topic=request.topic, group=request.group)
        try:
            return (await client.channel.call(question, CLIENT_TIMEOUT_S)).body
        except PyroError as problem:
            # java: members that do not answer are omitted
            _log.warning("no status group=%s client=%s: %s", request.group, client.client_id, problem)
            return None

    # On disk

    async def remove_dead(self) -> None:
        """Remove offsets of deleted groups and topics whose messages are all deleted."""

        def is_alive(group: str, topic: str) -> bool:
            is_known = self._groups.get(group) is not None and self._topics.readable(topic) is not None
            return is_known or self._consumers.subscription(group, topic) is not None

        pairs = self._offsets.pairs()
        while some := list(islice(pairs, _PAIRS_AT_ONCE)):
            await self._slices.wait_for_turn()
            for topic, group in self._offsets.remove_dead(is_alive, self._store.queues.min_offset, some):
                _log.info("offsets removed group=%s topic=%s", group, topic)

    def persist(self) -> None:
        """Write the offsets; on return they are on disk."""
        self._offsets.persist()

    async def run(self) -> None:
        """Write the offsets periodically, until cancelled; the caller then calls `persist` a last time."""
        rounds = 0
        while True:
            await asyncio.sleep(self._live.now.flush_offsets_ms / 1000)
            rounds += 1
            try:
                if rounds % CLEAN_EVERY_ROUNDS == 0:
                    await self.remove_dead()
                await self._offsets.persist_in_thread(self._slices)
            except StoreError as problem:  # The log was cut, or its disk fails and the store says so.
                _log.warning("offsets not written yet, trying again next time: %s", problem)
            except OSError as problem:
                _log.error("offsets could not be written, trying again next time: %s", problem)


def _refuse_offline(group: str) -> NoReturn:
    raise Refused(ResponseCode.SYSTEM_ERROR, f"no consumer of the group {group} is online")


def _require_new_enough(client: Client) -> None:
    if client.version < _FIRST_RESETTABLE_VERSION:
        raise Refused(
            ResponseCode.SYSTEM_ERROR,
            f"the client {client.client_id} has version {version_name(client.version)}, which is too old",
        )
