"""Inspection for operators: the range of queues, the lag of groups, the state of a consumer."""

from collections.abc import Iterable

import msgspec

from pyromq.broker.settings import BrokerSettings
from pyromq.broker.tables.all_tables import Tables
from pyromq.clock import Clock
from pyromq.config.live import LiveSettings
from pyromq.errors import CallTimeout, Refused, RemoteProtocolError, TransportError
from pyromq.protocol.body import MessageQueue
from pyromq.protocol.catalogue import BodyAnswer, RawAnswer
from pyromq.protocol.codes import ResponseCode, version_name
from pyromq.protocol.message_id import decode_offset_message_id
from pyromq.protocol.needs import SUB
from pyromq.protocol.record import decode_record
from pyromq.protocol.requests.inspection import (
    BrokerStatsData,
    ConsumeMessageDirectly,
    ConsumeMessageDirectlyResult,
    ConsumeQueueData,
    ConsumerRunningInfo,
    ConsumeStats,
    ConsumeStatsList,
    GetBrokerConsumeStats,
    GetBrokerStatistics,
    GetConsumerRunningInfo,
    GetConsumeStats,
    GetConsumeTimeSpans,
    GetTopicStats,
    OffsetWrapper,
    QueryConsumeQueue,
    QueryConsumeQueueResponseBody,
    QueryConsumeTimeSpanBody,
    QueueTimeSpan,
    TopicOffset,
    TopicStatsTable,
)
from pyromq.protocol.requests.topics import TopicConfig
from pyromq.remoting.channel import Channel
from pyromq.remoting.long_answers import written
from pyromq.remoting.routing import Caller, handles
from pyromq.remoting.slices import Slices
from pyromq.store.message_store import MessageStore
from pyromq.store.older_messages import OlderUnknown

_CLIENT_TIMEOUT_S = 10.0
_FIRST_ASKABLE_VERSION = 62  # java: V3_1_8_SNAPSHOT
_MAX_QUEUE_ENTRIES = 4096


class Inspection:
    def __init__(
        self,
        live: LiveSettings[BrokerSettings],
        store: MessageStore,
        tables: Tables,
        clock: Clock,
        address: str,
        slices: Slices,
    ) -> None:
        self._live = live
        self._store = store
        self._topics = tables.topics
        self._groups = tables.groups
        self._offsets = tables.offsets
        self._consumers = tables.consumers
        self._filters = tables.filters
        self._statistics = tables.statistics
        self._clock = clock
        self._address = address
        self._slices = slices

    # Queues

    @handles(GetTopicStats)
    async def topic_stats(self, request: GetTopicStats, caller: Caller) -> RawAnswer:
        topic = self._topic(request.topic)
        table = {}
        async for queue_id in self._slices.spread(range(max(topic.read_queue_nums, topic.write_queue_nums))):
            end = self._store.queues.max_offset(request.topic, queue_id)
            last_ms = self._store.queues.store_time(request.topic, queue_id, end - 1) if end else 0
            table[self._queue(request.topic, queue_id)] = TopicOffset(
                min_offset=self._store.queues.min_offset(request.topic, queue_id),
                max_offset=end,
                last_update_timestamp=last_ms,
            )
        tps = self._statistics.topic_put_tps(request.topic)
        return await written(TopicStatsTable(offset_table=table, topic_put_tps=tps), len(table))

    @handles(QueryConsumeQueue)
    def consume_queue(
        self, request: QueryConsumeQueue, caller: Caller
    ) -> BodyAnswer[QueryConsumeQueueResponseBody]:
        topic = request.topic or ""
        queue = self._store.queues.find(topic, request.queue_id)
        if queue is None:
            raise Refused(ResponseCode.SYSTEM_ERROR, f"the topic {topic} has no queue {request.queue_id}")
        body = QueryConsumeQueueResponseBody(
            max_queue_index=queue.end_offset,
            min_queue_index=self._store.queues.min_offset(topic, request.queue_id),
        )
        wanted = None
        if request.consumer_group is not None:
            body.subscription_data = self._consumers.subscription(request.consumer_group, topic)
            known = self._filters.get(topic, request.consumer_group)
            if body.subscription_data is None:
                body.filter_data = f"the group {request.consumer_group} does not consume {topic} now"
            else:
                body.filter_data = None if known is None else known.expression
                wanted = body.subscription_data.code_set
        first = max(request.index, body.min_queue_index)
        last = min(first + min(request.count, _MAX_QUEUE_ENTRIES), queue.end_offset)
        for offset in range(first, last):
            place, size_bytes, tags_code = queue.unit(offset)
            body.queue_data.append(
                ConsumeQueueData(
                    physic_offset=place,
                    physic_size=size_bytes,
                    tags_code=tags_code,
                    eval=wanted is not None and (not wanted or tags_code in wanted),
                )
            )
        return BodyAnswer(body=body)

    # Groups

    @handles(GetConsumeStats)
    async def consume_stats(self, request: GetConsumeStats, caller: Caller) -> RawAnswer:
        group = request.consumer_group
        if request.topic_list:
            wanted: Iterable[str] = filter(None, request.topic_list.split(";"))
        elif request.topic:
            wanted = (request.topic,)
        else:
            wanted = self._read_topics(group)
        stats = ConsumeStats()
        for name in wanted:
            topic = self._topics.get(name)
            if topic is not None:
                await self._add_lag(stats, group, topic, topic.read_queue_nums)
        return await written(stats, len(stats.offset_table))

    @handles(GetBrokerConsumeStats)
    async def all_consume_stats(self, request: GetBrokerConsumeStats, caller: Caller) -> RawAnswer:
        body = ConsumeStatsList(broker_addr=self._address)
        rows = 0
        read: dict[str, list[str]] = {}
        async for name, group in self._slices.spread(self._offsets.pairs()):
            read.setdefault(group, []).append(name)
        async for group in self._slices.spread(list(self._groups.all())):
            of_group: list[ConsumeStats] = []
            for name in self._still_read(group, read.get(group, [])):
                topic = self._topics.get(name)
                if topic is None or (request.is_order and not topic.order):
                    continue
                stats = ConsumeStats()
                await self._add_lag(stats, group, topic, topic.write_queue_nums)
                of_group.append(stats)
                rows += len(stats.offset_table)
                for lag in stats.offset_table.values():
                    body.total_diff += lag.broker_offset - lag.consumer_offset
                    body.total_inflight_diff += lag.pull_offset - lag.consumer_offset
            body.consume_stats_list.append({group: of_group})
        return await written(body, rows)

    def _read_topics(self, group: str) -> list[str]:
        return self._still_read(group, self._offsets.topics_of(group))

    def _still_read(self, group: str, topics: list[str]) -> list[str]:
        """The topics that a group still subscribes to; all of them if it has no members."""
        members = self._consumers.group(group)
        if members is None or not members.subscriptions:
            return topics
        return [topic for topic in topics if topic in members.subscriptions]

    async def _add_lag(self, stats: ConsumeStats, group: str, topic: TopicConfig, queues: int) -> None:
        name = topic.topic_name
        async for queue_id in self._slices.spread(range(queues)):
            consumed = max(self._offsets.query(group, name, queue_id), 0)
            pulled = self._offsets.query_pulled(group, name, queue_id)
            last_ms = self._store.queues.store_time(name, queue_id, consumed - 1) if consumed else 0
            stats.offset_table[self._queue(name, queue_id)] = OffsetWrapper(
                broker_offset=self._store.queues.max_offset(name, queue_id),
                consumer_offset=consumed,
                pull_offset=max(consumed, pulled),
                last_timestamp=max(last_ms, 0),
            )
        stats.consume_tps += self._statistics.group_get_tps(group, name)

    @handles(GetConsumeTimeSpans)
    async def time_spans(self, request: GetConsumeTimeSpans, caller: Caller) -> RawAnswer:
        topic = self._topic(request.topic)
        spans = [
            self._time_span(request.group, request.topic, queue_id)
            async for queue_id in self._slices.spread(range(topic.write_queue_nums))
        ]
        return await written(QueryConsumeTimeSpanBody(consume_time_span_set=spans), len(spans))

    def _time_span(self, group: str, topic: str, queue_id: int) -> QueueTimeSpan:
        try:
            first_ms = self._store.queues.earliest_time(topic, queue_id)
        except OlderUnknown:
            first_ms = -1
        end = self._store.queues.max_offset(topic, queue_id)
        consumed = self._offsets.query(group, topic, queue_id)
        span = QueueTimeSpan(
            message_queue=self._queue(topic, queue_id),
            min_time_stamp=first_ms,
            max_time_stamp=self._store.queues.store_time(topic, queue_id, end - 1),
            consume_time_stamp=first_ms,
        )
        if consumed > 0:
            span.consume_time_stamp = self._store.queues.store_time(topic, queue_id, consumed - 1)
        next_ms = self._store.queues.store_time(topic, queue_id, max(consumed, 0))
        if consumed < end and next_ms >= 0:
            span.delay_time = self._clock.now_ms() - next_ms
        return span

    # Counters

    @handles(GetBrokerStatistics)
    def counter(self, request: GetBrokerStatistics, caller: Caller) -> BodyAnswer[BrokerStatsData]:
        data = self._statistics.data(request.stats_name, request.stats_key)
        if data is None:
            raise Refused(
                ResponseCode.SYSTEM_ERROR,
                f"there is no statistics item {request.stats_name} {request.stats_key}",
            )
        return BodyAnswer(body=data)

    # Questions to consumers

    @handles(GetConsumerRunningInfo)
    async def running_info(
        self, request: GetConsumerRunningInfo, caller: Caller
    ) -> BodyAnswer[ConsumerRunningInfo]:
        channel = self._member(request.consumer_group, request.client_id)
        try:
            return await channel.call(request, _CLIENT_TIMEOUT_S)
        except (TransportError, RemoteProtocolError) as problem:
            raise _unreachable(request.client_id, problem) from None

    @handles(ConsumeMessageDirectly)
    async def consume_directly(
        self, request: ConsumeMessageDirectly, caller: Caller
    ) -> BodyAnswer[ConsumeMessageDirectlyResult]:
        try:
            offset = decode_offset_message_id(request.msg_id or "").log_offset
        except RemoteProtocolError as problem:
            raise Refused(ResponseCode.SYSTEM_ERROR, str(problem)) from None
        record = self._store.log.record_at(offset)
        if record is None:
            raise Refused(ResponseCode.SYSTEM_ERROR, f"no message begins at log offset {offset}")
        if caller.authority is not None:
            # The request may name another topic than that of the message.
            caller.require(SUB, topic=decode_record(record).topic)
        channel = self._member(request.consumer_group, request.client_id or "")
        topic = self._topics.get(request.topic or "")
        group = self._groups.get(request.consumer_group)
        passed_on = msgspec.structs.replace(
            request,
            broker_name=self._live.now.broker_name,
            topic_sys_flag=None if topic is None else topic.topic_sys_flag,
            group_sys_flag=None if group is None else group.group_sys_flag,
            body=bytes(record),
        )
        try:
            return await channel.call(passed_on, _CLIENT_TIMEOUT_S)
        except (TransportError, RemoteProtocolError) as problem:
            raise _unreachable(request.client_id or "", problem) from None

    def _member(self, group: str, client_id: str) -> Channel:
        members = self._consumers.group(group)
        client = None if members is None else members.find(client_id)
        if client is None:
            raise Refused(ResponseCode.SYSTEM_ERROR, f"the consumer {client_id} of {group} is not online")
        if client.version < _FIRST_ASKABLE_VERSION:
            raise Refused(
                ResponseCode.SYSTEM_ERROR,
                f"the consumer {client_id} has version {version_name(client.version)}, which is too old",
            )
        return client.channel

    def _topic(self, name: str) -> TopicConfig:
        topic = self._topics.get(name)
        if topic is None:
            raise Refused(ResponseCode.TOPIC_NOT_EXIST, f"the topic {name} does not exist")
        return topic

    def _queue(self, topic: str, queue_id: int) -> MessageQueue:
        return MessageQueue(topic, self._live.now.broker_name, queue_id)


def _unreachable(client_id: str, problem: Exception) -> Refused:
    is_late = isinstance(problem, CallTimeout)
    code = ResponseCode.CONSUME_MSG_TIMEOUT if is_late else ResponseCode.SYSTEM_ERROR
    return Refused(code, f"the consumer {client_id} did not answer: {problem}")
