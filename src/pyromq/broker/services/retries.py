"""Retries: a consumer sends a message back, to get it again later; after too many retries it is dead."""

import asyncio
from collections.abc import Callable
from functools import partial

from pyromq.broker.flow.draft import Draft
from pyromq.broker.flow.inbound import Inbound
from pyromq.broker.flow.message_properties import with_property
from pyromq.broker.flow.retry_policy import RetryPolicy
from pyromq.broker.flow.safe_answers import when_safe
from pyromq.broker.flow.writable_queues import NotWrittenYet
from pyromq.broker.settings import BrokerSettings
from pyromq.broker.tables.all_tables import Tables
from pyromq.broker.tables.statistics import SENT_BACK
from pyromq.chance import randrange
from pyromq.config.live import LiveSettings
from pyromq.errors import Refused, RemoteProtocolError
from pyromq.protocol import names
from pyromq.protocol import properties as props
from pyromq.protocol.catalogue import Answer
from pyromq.protocol.codes import ResponseCode
from pyromq.protocol.message_id import encode_offset_message_id
from pyromq.protocol.needs import SUB
from pyromq.protocol.record import StoredMessage, decode_record
from pyromq.protocol.requests.groups import SubscriptionGroupConfig
from pyromq.protocol.requests.sending import SendMessageBack
from pyromq.remoting.routing import Caller, handles
from pyromq.store.message_store import MessageStore

_UNIT_RETRY_TOPIC = 2
_MAX_FAILURES = 2**31 - 1
"""As much as a record has room for."""


class Retries:
    def __init__(
        self,
        live: LiveSettings[BrokerSettings],
        store: MessageStore,
        tables: Tables,
        inbound: Inbound,
        random_below: Callable[[int], int] = randrange,
    ) -> None:
        self._live = live
        self._store = store
        self._topics = tables.topics
        self._groups = tables.groups
        self._queues = inbound.writable_queues
        self._send_throttle = inbound.send_throttle
        self._appending = inbound.appending
        self._statistics = tables.statistics
        self._random_below = random_below

    @handles(SendMessageBack, may_wait=True)
    def send_back(self, request: SendMessageBack, caller: Caller) -> "Answer | asyncio.Future[Answer]":
        try:
            return self._send_back(request, caller)
        except NotWrittenYet as missing:
            again = partial(self._send_back, request, caller)
            return asyncio.get_running_loop().create_task(self._queues.when_written(missing.topic, again))

    def _send_back(self, request: SendMessageBack, caller: Caller) -> "Answer | asyncio.Future[Answer]":
        """java: the checks run in Apache's order."""
        self._send_throttle.admit(caller.received_at)
        self._queues.require_master()
        group = self._groups.find(request.group)
        if group is None:
            raise Refused(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
                f"the consumer group {request.group} does not exist",
            )
        settings = self._live.now
        if not settings.broker_permission & names.WRITE:
            raise Refused(
                ResponseCode.NO_PERMISSION,
                f"the broker {settings.broker_ip1} is not writable, see brokerPermission",
            )
        if group.retry_queue_nums <= 0:
            # java: such a group has no retries; its consumers get no error
            return Answer()
        config = self._topics.create_if_absent(
            names.retry_topic(request.group),
            group.retry_queue_nums,
            sys_flag=_UNIT_RETRY_TOPIC if request.unit_mode else 0,
        )
        if not config.perm & names.WRITE:
            raise Refused(ResponseCode.NO_PERMISSION, f"the topic {config.topic_name} is not writable")
        self._queues.require_written(config.topic_name)
        message = self._look_up(request.offset)
        caller.require(SUB, topic=names.popped_topic(message.topic, request.group))
        policy = RetryPolicy.of(group, caller.version, request.max_reconsume_times)
        return self._put(request, message, policy, group)

    def _put(
        self,
        request: SendMessageBack,
        message: StoredMessage,
        policy: RetryPolicy,
        group: SubscriptionGroupConfig,
    ) -> "Answer | asyncio.Future[Answer]":
        """Store the message for the next delivery, or as a dead letter."""
        failures = min(message.reconsume_times + 1, _MAX_FAILURES)
        is_dead = request.delay_level < 0 or not policy.has_retries_left(failures)
        origin_topic = message.get(props.RETRY_TOPIC) or message.topic
        origin_id = (message.get(props.ORIGIN_MESSAGE_ID) or "").strip() or encode_offset_message_id(
            message.store_host, message.log_offset
        )
        changes = {
            props.RETRY_TOPIC: origin_topic,
            props.ORIGIN_MESSAGE_ID: origin_id,
            props.WAIT: "false",  # java: Apache's broker lets the consumer not wait
        }
        level = request.delay_level or policy.delay_level(failures)
        if is_dead:
            level = 0
            queue = self._queues.dead_letters(request.group)
            topic, queue_id = queue.topic, queue.queue_id
            # Proxies show these to consumers as the origin of a dead letter.
            changes[props.DLQ_ORIGIN_TOPIC] = origin_topic
            changes[props.DLQ_ORIGIN_MESSAGE_ID] = message.get(props.UNIQ_KEY) or origin_id
        else:
            topic = names.retry_topic(request.group)
            queue_id = self._random_below(group.retry_queue_nums)
        changes[props.DELAY] = str(level)
        properties = message.properties
        for name, value in changes.items():
            properties = with_property(properties, name, value)
        draft = Draft(
            topic,
            queue_id,
            message.body,
            properties,
            message.born_timestamp,
            message.born_host.pack(),
            message.flag,
            message.sys_flag,
            failures,
            delay_level=level,
        )
        result = self._appending.append(draft)
        if not result.is_ok:
            self._statistics.put_failures += 1
            raise Refused(ResponseCode.SYSTEM_ERROR, f"{result.status.value}: {result.reason}")
        self._statistics.put(draft.topic, draft.queue_id, 1, result.size_bytes)
        self._statistics.add(SENT_BACK, f"{origin_topic}@{request.group}")
        if is_dead:
            self._statistics.add_dead_letter(origin_topic, request.group)
        # The consumer is done with the message: only this copy brings it back.
        return when_safe(self._appending.durability, Answer(), result)

    def _look_up(self, log_offset: int) -> StoredMessage:
        record = self._store.log.record_at(log_offset)
        if record is not None:
            try:
                return decode_record(record)
            except RemoteProtocolError:
                pass  # no message begins at this offset
        raise Refused(ResponseCode.SYSTEM_ERROR, f"there is no message at log offset {log_offset}")
