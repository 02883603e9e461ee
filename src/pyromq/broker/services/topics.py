"""Topics: operators create, change, list and delete them."""

import asyncio
import logging
from collections.abc import Awaitable, Callable

from pyromq.broker.paging import page_of
from pyromq.broker.settings import BrokerSettings
from pyromq.broker.tables.all_tables import Tables
from pyromq.broker.topic_attributes import apply_change, is_compacted, parse_change, refuse_compacted
from pyromq.config.live import LiveSettings
from pyromq.errors import Refused, StoreError
from pyromq.protocol import names
from pyromq.protocol.catalogue import Answer, BodyAnswer, RawAnswer
from pyromq.protocol.codes import REPLICA_REMARK, ResponseCode
from pyromq.protocol.lite import is_lite
from pyromq.protocol.names import pop_retry_topics
from pyromq.protocol.requests.topics import (
    MAX_QUEUES_PER_TOPIC,
    CreateOrUpdateTopic,
    CreateOrUpdateTopics,
    CreateStaticTopic,
    DeleteTopicFromBroker,
    GetAllTopicConfigs,
    GetAllTopicConfigsAnswer,
    GetSystemTopicsFromBroker,
    GetTopicConfig,
    PurgeQueue,
    PurgeQueueAnswer,
    TopicConfig,
    TopicConfigAndMappingSerializeWrapper,
    TopicConfigAndQueueMapping,
    TopicList,
    TopicListAnswer,
    TopicQueueMappingDetail,
)
from pyromq.protocol.requests.upkeep import CleanUnusedTopics
from pyromq.protocol.static_topics import accepted, detail_problem
from pyromq.remoting.long_answers import written
from pyromq.remoting.routing import Caller, handles
from pyromq.remoting.slices import Slices
from pyromq.store.message_store import MessageStore

_log = logging.getLogger(__name__)

_PERMISSIONS = range(8)


class Topics:
    def __init__(
        self,
        live: LiveSettings[BrokerSettings],
        store: MessageStore,
        tables: Tables,
        on_deleted: Callable[[str], Awaitable[None]],
        slices: Slices,
        on_moved: Callable[[str], None] = lambda _: None,
        gone_elsewhere: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        """`on_deleted` is called with each deleted topic, so that statistics and held pulls forget it.
        `on_moved` is called with each static topic whose mapping has changed, so that held pulls look again.
        `gone_elsewhere` returns when copies of deleted messages are hidden as well."""
        self._live = live
        self._store = store
        self._role = tables.role
        self._topics = tables.topics
        self._static_topics = tables.static_topics
        self._on_moved = on_moved
        self._offsets = tables.offsets
        self._pop_orders = tables.pop_orders
        self._on_deleted = on_deleted
        self._gone_elsewhere = gone_elsewhere
        self._slices = slices
        self._changing = asyncio.Lock()
        """A topic that is made while its deletion is being finished would be deleted again after a crash."""

    @handles(CreateOrUpdateTopic)
    async def create_or_update(self, request: CreateOrUpdateTopic, caller: Caller) -> None:
        self._role.require_master()
        try:
            wanted, change = request.config(), parse_change(request.attributes)
        except ValueError as problem:
            raise Refused(ResponseCode.INVALID_PARAMETER, str(problem)) from None
        async with self._changing:
            await self._update([wanted] if self._is_change(wanted, change) else [], caller)

    @handles(CreateOrUpdateTopics)
    async def create_or_update_many(self, request: CreateOrUpdateTopics, caller: Caller) -> None:
        """All or none."""
        self._role.require_master()
        async with self._changing:
            updated: list[TopicConfig] = []
            async for config in self._slices.spread(request.body.topic_config_list):
                change = ",".join(
                    f"{key}={value}" if key.startswith("+") else key
                    for key, value in config.attributes.items()
                )
                try:
                    parsed = parse_change(change)
                except ValueError as problem:
                    raise Refused(ResponseCode.INVALID_PARAMETER, str(problem)) from None
                if self._is_change(config, parsed):
                    updated.append(config)
            await self._update(updated, caller)

    @handles(CreateStaticTopic)
    async def create_static(self, request: CreateStaticTopic, caller: Caller) -> None:
        """The mapping is on disk before the answer, and before the name server hears of it."""
        self._role.require_master()
        try:
            wanted = request.config()
        except ValueError as problem:
            raise Refused(ResponseCode.INVALID_PARAMETER, str(problem)) from None
        async with self._changing:
            existing = self._topics.get(request.topic)
            if existing is not None:
                wanted.attributes = existing.attributes
            self._check(wanted)
            detail = self._accepted(request, existing)
            self._role.require_master()
            try:
                self._static_topics.put(detail)
            except OSError as problem:
                raise Refused(
                    ResponseCode.SYSTEM_ERROR, f"topicQueueMapping.json cannot be written: {problem}"
                ) from problem
            await self._update([wanted], caller)
        self._on_moved(request.topic)
        _log.info("static topic updated topic=%s epoch=%d", request.topic, detail.epoch)

    def _accepted(self, request: CreateStaticTopic, existing: TopicConfig | None) -> TopicQueueMappingDetail:
        detail, own = request.body, self._live.now.broker_name
        known = self._static_topics.get(request.topic) if existing is not None else None
        problem = None
        if detail.topic != request.topic or detail.bname != own:
            problem = (
                f"the mapping is one of {detail.topic} on {detail.bname}: expected {request.topic} on {own}"
            )
        elif existing is not None and known is None:
            problem = "it exists already, and is not static"
        if problem is None:
            try:
                detail = accepted(known, detail, force=request.force)
                problem = detail_problem(detail, request.write_queue_nums)
            except ValueError as refusal:
                problem = str(refusal)
        if existing is not None and existing.write_queue_nums > request.write_queue_nums:
            problem = problem or f"it has {existing.write_queue_nums} queues here, and none can be taken away"
        if request.read_queue_nums < request.write_queue_nums:
            counts = f"{request.read_queue_nums} read queues for {request.write_queue_nums} write queues"
            problem = problem or counts
        if problem is not None:
            raise Refused(ResponseCode.INVALID_PARAMETER, f"static topic {request.topic}: {problem}")
        return detail

    def _is_change(self, config: TopicConfig, change: dict[str, str | None]) -> bool:
        """Check a topic and set its attributes; True if it differs from the current one."""
        self._check(config)
        existing = self._topics.get(config.topic_name)
        if existing is not None and config.topic_name in self._static_topics:
            self._keep_queues(config, existing)
        try:
            attributes = apply_change(None if existing is None else existing.attributes, change)
        except ValueError as problem:
            raise Refused(ResponseCode.SYSTEM_ERROR, str(problem)) from None
        if attributes.get("message.type") == "MIXED" and not self._live.now.mixed_message_types:
            raise Refused(
                ResponseCode.INVALID_PARAMETER,
                "message.type=MIXED is not allowed: enableMixedMessageType is off",
            )
        if is_lite(attributes) and not self._topics.has_light_queues:
            raise Refused(
                ResponseCode.INVALID_PARAMETER,
                "message.type=LITE needs light queues: set enableLmq and enableMultiDispatch to true",
            )
        if is_compacted(attributes) and not self._store.settings.compaction_enabled:
            raise Refused(
                ResponseCode.INVALID_PARAMETER,
                "cleanup.policy=COMPACTION is not allowed: enableCompaction is off",
            )
        config.attributes = attributes
        return config != existing

    def _keep_queues(self, config: TopicConfig, existing: TopicConfig) -> None:
        before = existing.read_queue_nums, existing.write_queue_nums
        if (config.read_queue_nums, config.write_queue_nums) != before:
            raise Refused(
                ResponseCode.INVALID_PARAMETER,
                f"the topic {config.topic_name} is static: only updateStaticTopic changes its queues",
            )

    async def _update(self, updated: list[TopicConfig], caller: Caller) -> None:
        self._role.require_master()  # it may have been replaced while others changed topics
        made = {each.topic_name for each in updated}
        for topic in self._store.topics.unfinished_deletions():
            if topic in made:  # the disk refused the end of its deletion: a start would delete it again
                await self._finish_deletion(topic)
        if updated:
            self._topics.update(*updated)
            _log.info(
                "topics updated by=%s count=%d topics=%.500s",
                caller.address,
                len(updated),
                ",".join(each.topic_name for each in updated),
            )
        # Even if nothing is new: what is there already may not be on disk yet.
        await self._topics.saved()

    def _check(self, config: TopicConfig) -> None:
        problem = names.topic_problem(config.topic_name)
        if (
            problem is None
            and self._live.now.validate_system_topics
            and self._topics.is_system(config.topic_name)
        ):
            problem = f"the topic {config.topic_name} is a system topic"
        if problem is None and config.perm not in _PERMISSIONS:
            problem = f"permission {config.perm}: expected 0 to 7"
        for count in (config.read_queue_nums, config.write_queue_nums):
            if problem is None and not 0 <= count <= MAX_QUEUES_PER_TOPIC:
                problem = f"{count} queues: expected 0 to {MAX_QUEUES_PER_TOPIC}"
        if problem is not None:
            raise Refused(ResponseCode.INVALID_PARAMETER, problem)

    @handles(DeleteTopicFromBroker)
    async def delete(self, request: DeleteTopicFromBroker, caller: Caller) -> Answer | None:
        topic = request.topic
        if not topic.strip():
            raise Refused(ResponseCode.INVALID_PARAMETER, "the topic is blank")
        if self._live.now.validate_system_topics and self._topics.is_system(topic):
            raise Refused(ResponseCode.INVALID_PARAMETER, f"the topic {topic} is a system topic")
        if not self._role.now.is_master:
            return Answer(remark=REPLICA_REMARK)
        # The topic itself goes last, so that an interrupted deletion can be repeated.
        async with self._changing:
            for each in (*self._retry_topics(topic), topic):
                queues = await self._delete(each)
                await self._on_deleted(each)
                _log.info("topic deleted by=%s topic=%s queues=%d", caller.address, each, queues)
        if self._gone_elsewhere is not None:
            await self._gone_elsewhere()
        return None

    @handles(PurgeQueue)
    async def purge(self, request: PurgeQueue, caller: Caller) -> PurgeQueueAnswer:
        topic, queue_id = request.topic, request.queue_id
        if self._topics.is_system(topic):
            raise Refused(ResponseCode.INVALID_PARAMETER, f"the topic {topic} is a system topic")
        if (config := self._topics.get(topic)) is None:
            raise Refused(ResponseCode.TOPIC_NOT_EXIST, f"the topic {topic} does not exist")
        refuse_compacted(topic, config.attributes)
        async with self._changing:
            self._role.require_master()  # it may have been replaced while another change was made
            promise = self._topics.promise()
            try:
                first = self._store.expiry.purge(topic, queue_id, request.offset, self._store.time.now_ms())
            except StoreError as error:
                raise Refused(ResponseCode.INVALID_PARAMETER, str(error)) from error
            await promise()
        _log.info("queue purged by=%s topic=%s queue=%d first=%d", caller.address, topic, queue_id, first)
        if self._gone_elsewhere is not None:
            await self._gone_elsewhere()
        return PurgeQueueAnswer(offset=first)

    async def _delete(self, topic: str) -> int:
        """The mark and the queues go in one turn of the loop; threads write the rest, in this order."""
        self._role.require_master()
        promise = self._topics.promise()
        try:
            queues = self._store.topics.begin_deletion(topic)
            self._forget(topic)
        except StoreError as error:
            raise Refused(ResponseCode.SYSTEM_ERROR, str(error)) from error
        except OSError as error:
            raise Refused(ResponseCode.SYSTEM_ERROR, f"topic {topic} cannot be deleted: {error}") from error
        await self._finish_deletion(topic)
        await promise()
        return queues

    async def _finish_deletion(self, topic: str) -> None:
        try:
            await self._topics.written()
            await self._offsets.persist_in_thread(self._slices)
            await asyncio.to_thread(self._store.topics.finish_deletion, topic)
        except (StoreError, OSError) as error:
            raise Refused(
                ResponseCode.SYSTEM_ERROR,
                f"topic {topic} cannot be deleted: {error}. Its messages are gone; try again, or the next"
                " start deletes the rest",
            ) from error

    def _forget(self, topic: str) -> None:
        """Offsets must go with the messages: a new topic of this name begins at offset 0."""
        self._offsets.remove_topic(topic)
        self._pop_orders.remove_topic(topic)
        self._topics.delete(topic)
        self._static_topics.delete(topic)

    def finish_deletions(self) -> None:
        """Finish the deletions of the last process, before threads write the tables."""
        for topic in self._store.topics.unfinished_deletions():
            self._forget(topic)
            self._offsets.persist()
            self._store.topics.finish_deletion(topic)
            _log.info("deletion finished topic=%s", topic)

    def _retry_topics(self, topic: str) -> list[str]:
        """The retry topics of the groups that popped from a topic."""
        if not self._live.now.clear_retry_topics:
            return []
        candidates = (
            each for group in self._offsets.groups_of(topic) for each in pop_retry_topics(topic, group)
        )
        return [each for each in candidates if each in self._topics]

    @handles(CleanUnusedTopics)
    async def clean_unused(self, request: CleanUnusedTopics, caller: Caller) -> None:
        if not self._role.now.is_master:
            return  # it may lack topics that its master has
        async for topic in self._slices.spread(self._store.topics.names()):
            async with self._changing:
                if topic in self._topics or self._topics.is_system(topic):
                    continue
                queues = await self._delete(topic)
                _log.info("queues of an unknown topic deleted topic=%s queues=%d", topic, queues)

    @handles(GetAllTopicConfigs)
    async def get_all(
        self, request: GetAllTopicConfigs, caller: Caller
    ) -> GetAllTopicConfigsAnswer | RawAnswer:
        topics = dict(self._topics.all())
        table = TopicConfigAndMappingSerializeWrapper(
            data_version=self._topics.data_version,
            topic_config_table=topics,
            mapping_data_version=self._static_topics.data_version,
            topic_queue_mapping_detail_map=dict(self._static_topics.all()),
        )
        if request.max_topic_num is None or request.topic_seq is None:
            return await written(table, len(topics))
        page = page_of(
            topics, request.topic_seq, request.max_topic_num, request.data_version, table.data_version
        )
        table.topic_config_table = {topic: topics[topic] for topic in page}
        mappings = table.topic_queue_mapping_detail_map
        table.topic_queue_mapping_detail_map = {topic: mappings[topic] for topic in page if topic in mappings}
        return GetAllTopicConfigsAnswer(total_topic_num=len(topics), body=table)

    @handles(GetTopicConfig)
    def get(self, request: GetTopicConfig, caller: Caller) -> BodyAnswer[TopicConfigAndQueueMapping]:
        config = self._topics.get(request.topic)
        if config is None:
            raise Refused(ResponseCode.TOPIC_NOT_EXIST, f"the topic {request.topic} does not exist")
        return BodyAnswer(
            body=TopicConfigAndQueueMapping(
                attributes=config.attributes,
                order=config.order,
                perm=config.perm,
                read_queue_nums=config.read_queue_nums,
                topic_filter_type=config.topic_filter_type,
                topic_name=config.topic_name,
                topic_sys_flag=config.topic_sys_flag,
                write_queue_nums=config.write_queue_nums,
                mapping_detail=self._static_topics.get(request.topic),
            )
        )

    @handles(GetSystemTopicsFromBroker)
    def get_system(self, request: GetSystemTopicsFromBroker, caller: Caller) -> TopicListAnswer:
        return TopicListAnswer(body=TopicList(topic_list=self._topics.system()))
