"""Which queues accept messages.

The broker checks a queue once for everything that does not depend on the single message, and remembers it as
a `WritableQueue` until its topic, the settings or the broker's role change.
"""

from asyncio import Future, get_running_loop, wait
from collections.abc import Callable
from typing import TypeVar

import msgspec

from pyromq.broker.settings import BrokerSettings
from pyromq.broker.tables.all_tables import Tables
from pyromq.broker.topic_attributes import is_compacted
from pyromq.chance import randrange
from pyromq.clock import Clock
from pyromq.config.live import LiveSettings
from pyromq.errors import Refused
from pyromq.protocol import names
from pyromq.protocol.codes import ResponseCode
from pyromq.protocol.lite import is_lite
from pyromq.protocol.properties import INNER_MULTI_DISPATCH
from pyromq.protocol.quotas import SENDING, rates
from pyromq.protocol.record import SysFlag
from pyromq.protocol.requests.sending import SendMessage, SendMessageV2
from pyromq.protocol.requests.topics import TopicConfig, TopicFilterType

_UNIT_TOPIC, _UNIT_RETRY_TOPIC = 1, 2
"""Bits of a topic's system flag."""
_DLQ_QUEUES = 1

SendRequest = SendMessage | SendMessageV2
"""Both forms of the request have the same attributes."""


T = TypeVar("T")


class NotWrittenYet(Exception):
    """A topic is not on disk yet: no message may enter it."""

    def __init__(self, topic: str) -> None:
        super().__init__(topic)
        self.topic = topic


class WritableQueue(msgspec.Struct, frozen=True, gc=False):
    topic: str
    queue_id: int
    sys_flag: int = 0
    """Bits that every message of this queue gets in its system flag."""
    needs_keys: bool = False
    retry_group: str | None = None
    """The consumer group whose retried messages go into this queue."""
    has_quota: bool = False
    is_lite: bool = False
    """Its messages may enter lite topics."""
    is_static: bool = False
    """It stores a global queue of a static topic, which has another number."""

    @property
    def is_plain(self) -> bool:
        """Whether the queue accepts messages with any properties and any reconsume times, and any number.
        With `is_lite` they may enter lite topics."""
        return not self.has_quota and self._is_common

    @property
    def has_only_quota(self) -> bool:
        """Whether the queue accepts the same messages, but not any number."""
        return self.has_quota and self._is_common

    @property
    def _is_common(self) -> bool:
        return not (self.needs_keys or self.retry_group is not None or self.is_static)


class WritableQueues:
    def __init__(
        self,
        live: LiveSettings[BrokerSettings],
        tables: Tables,
        clock: Clock,
        random_below: Callable[[int], int] = randrange,
    ) -> None:
        self._live = live
        self._topics = tables.topics
        self._static_topics = tables.static_topics
        self._role = tables.role
        self._clock = clock
        self._random_below = random_below
        self._open: dict[str, dict[int, WritableQueue]] = {}
        self._listeners: list[Callable[[], None]] = []
        self._last_waiting: dict[str, Future[None]] = {}
        """By topic that is being written: done when the last message that waits for it has had its turn."""
        self._is_their_turn = False
        tables.topics.on_change(self._topics_changed)
        live.on_change(lambda _: self._forget_all())
        tables.role.on_change(lambda _: self._forget_all())
        tables.role.on_barrier(self._forget_all)

    def __repr__(self) -> str:
        return f"<WritableQueues topics={len(self._open)}>"

    def on_change(self, listener: Callable[[], None]) -> None:
        """Call `listener` when queues that were found before may not be writable any more."""
        self._listeners.append(listener)

    def find(self, topic: str, queue_id: int) -> WritableQueue | None:
        """The queue if it was opened before, else None: then call `open`."""
        queues = self._open.get(topic)
        return None if queues is None else queues.get(queue_id)

    def number_of(self, topic: str, wanted: int) -> int:
        """A queue with this number, or the last one."""
        config = self._topics.get(topic)
        return 0 if config is None else max(min(wanted, config.write_queue_nums - 1), 0)

    def open(self, request: SendRequest, producer: str) -> WritableQueue:
        """Check the queue that a message was sent to, and remember it; raises Refused or NotWrittenYet.

        java: the checks run in Apache's order, because clients branch on the first error.
        """
        self.require_master()
        settings = self._live.now
        if self._clock.now_ms() < settings.start_accept_send_ms:
            raise Refused(
                ResponseCode.SYSTEM_ERROR,
                f"this broker accepts no messages before startAcceptSendRequestTimeStamp,"
                f" {settings.start_accept_send_ms}",
            )
        config = self._topics.get(request.topic)
        # java: other topics continue as long as producers still have the old route
        if not settings.broker_permission & names.WRITE and config is not None and config.order:
            raise Refused(
                ResponseCode.NO_PERMISSION,
                f"the broker {settings.broker_ip1} is not writable, see brokerPermission",
            )
        if (problem := names.topic_problem(request.topic)) is not None:
            raise Refused(ResponseCode.INVALID_PARAMETER, problem)
        if request.topic in names.UNSENDABLE_TOPICS:
            raise Refused(ResponseCode.NO_PERMISSION, f"clients may not send to the topic {request.topic}")
        if self._topics.is_light(request.topic):
            raise Refused(
                ResponseCode.NO_PERMISSION,
                f"{request.topic} is a light queue: send to a topic, and name the queue in the property"
                f" {INNER_MULTI_DISPATCH}",
            )
        if config is None:
            config = self._create(request, settings)
        if request.queue_id >= max(config.read_queue_nums, config.write_queue_nums):
            raise Refused(
                ResponseCode.INVALID_PARAMETER,
                f"the topic {request.topic} has no queue {request.queue_id}:"
                f" it has {config.write_queue_nums} write queues and {config.read_queue_nums} read queues;"
                f" producer {producer}",
            )
        queue_id = request.queue_id if request.queue_id >= 0 else self._any_queue(config)
        self.require_written(request.topic)
        # What waited for its turn may come when the queue has been given away.
        if not self._static_topics.is_writable(request.topic, queue_id):
            raise Refused(
                ResponseCode.NOT_LEADER_FOR_QUEUE,
                f"queue {queue_id} of the static topic {request.topic} takes no messages on this broker",
            )
        is_static = request.topic in self._static_topics
        return self.find(request.topic, queue_id) or self._keep(
            _writable_queue(config, queue_id, is_static=is_static)
        )

    def dead_letters(self, group: str) -> WritableQueue:
        """The queue for messages that a group could not consume; raises Refused or NotWrittenYet."""
        self.require_master()
        config = self._topics.create_if_absent(names.dlq_topic(group), _DLQ_QUEUES)
        self.require_written(config.topic_name)
        return self.find(config.topic_name, 0) or self._keep(_writable_queue(config, 0))

    def require_written(self, topic: str) -> None:
        """Raises NotWrittenYet: the topic of an acknowledged message must survive a crash."""
        # A message that comes when the topic has just been written does not overtake those that wait for it.
        if (topic in self._last_waiting and not self._is_their_turn) or not self._topics.is_written(topic):
            raise NotWrittenYet(topic)

    async def when_written(self, topic: str, attempt: Callable[[], "T | Future[T]"]) -> T:
        """Call `attempt` again when the topic is on disk, in the order in which its messages came; raises
        Refused if it cannot be written."""
        while True:
            is_over: Future[None] = get_running_loop().create_future()
            before, self._last_waiting[topic] = self._last_waiting.get(topic), is_over
            try:
                await self._topics.saved()
                if before is not None:
                    await wait([before])
                result = self._in_turn(attempt)
            except NotWrittenYet as missing:
                another = missing.topic
            else:
                return await result if isinstance(result, Future) else result
            finally:
                self._leave(topic, before, is_over)
            topic = another

    def _leave(self, topic: str, before: Future[None] | None, is_over: Future[None]) -> None:
        if before is not None and not before.done():
            # It failed or was cancelled before its turn: those behind it wait for the one in front of it.
            before.add_done_callback(lambda _: self._leave(topic, None, is_over))
            return
        is_over.set_result(None)
        if self._last_waiting[topic] is is_over:
            del self._last_waiting[topic]

    def _in_turn(self, attempt: Callable[[], T]) -> T:
        self._is_their_turn = True
        try:
            return attempt()
        finally:
            self._is_their_turn = False

    def require_master(self) -> None:
        """Raises Refused on a replica, and on a master that accepts no messages now."""
        role = self._role.now
        if not role.is_master:
            raise Refused(
                ResponseCode.SERVICE_NOT_AVAILABLE,
                f"the broker {self._live.now.broker_ip1} is {role.own_name}: only the master accepts"
                " messages",
            )
        if self._role.barrier:
            raise Refused(ResponseCode.SERVICE_NOT_AVAILABLE, self._role.barrier)

    def _create(self, request: SendRequest, settings: BrokerSettings) -> TopicConfig:
        is_retry = names.is_retry_topic(request.topic)
        sys_flag = 0
        if request.unit_mode:
            sys_flag = _UNIT_RETRY_TOPIC if is_retry else _UNIT_TOPIC
        created = self._topics.create_for_send(
            request.topic,
            request.default_topic,
            request.default_topic_queue_nums,
            sys_flag,
            auto_create=settings.auto_create_topics,
        )
        if created is None and is_retry:
            created = self._topics.create_if_absent(request.topic, 1, sys_flag=sys_flag)
        if created is None:
            raise Refused(
                ResponseCode.TOPIC_NOT_EXIST,
                f"the topic {request.topic} does not exist, and a send may not create it",
            )
        return created

    def _any_queue(self, config: TopicConfig) -> int:
        if config.write_queue_nums <= 0:
            raise Refused(ResponseCode.SYSTEM_ERROR, f"the topic {config.topic_name} has no write queues")
        return self._random_below(config.write_queue_nums)

    def _keep(self, queue: WritableQueue) -> WritableQueue:
        self._open.setdefault(queue.topic, {})[queue.queue_id] = queue
        return queue

    def _topics_changed(self, configs: list[TopicConfig]) -> None:
        if not configs:  # some topic was deleted
            self._forget_all()
            return
        for config in configs:
            self._open.pop(config.topic_name, None)
        self._tell()

    def _forget_all(self) -> None:
        self._open.clear()
        self._tell()

    def _tell(self) -> None:
        for listener in self._listeners:
            listener()


def _writable_queue(config: TopicConfig, queue_id: int, *, is_static: bool = False) -> WritableQueue:
    topic = config.topic_name
    return WritableQueue(
        topic,
        queue_id,
        sys_flag=SysFlag.MULTI_TAGS if config.topic_filter_type is TopicFilterType.MULTI_TAG else 0,
        needs_keys=is_compacted(config.attributes),
        retry_group=topic.removeprefix(names.RETRY_PREFIX) if names.is_retry_topic(topic) else None,
        has_quota=rates(config.attributes, SENDING) is not None,
        is_lite=is_lite(config.attributes),
        is_static=is_static,
    )
