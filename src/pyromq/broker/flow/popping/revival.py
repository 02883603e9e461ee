"""Revival: a popped message that was not acknowledged in time is delivered again, or is a dead letter.

The next delivery comes from a topic with retries. A message that the group failed too often becomes a dead
letter. java: there are none; consumers and proxies have to see to that, and a pop may come back for ever.
"""

import logging

from pyromq.broker.flow.appending import Appending
from pyromq.broker.flow.draft import Draft
from pyromq.broker.flow.message_properties import with_property
from pyromq.broker.flow.popping.checkpoints import PopCheckpoint
from pyromq.broker.flow.popping.earlier_revivals import EarlierRevivals, message_at
from pyromq.broker.flow.retry_policy import RetryPolicy
from pyromq.broker.flow.writable_queues import NotWrittenYet, WritableQueues
from pyromq.broker.settings import BrokerSettings
from pyromq.broker.tables.all_tables import Tables
from pyromq.config.live import LiveSettings
from pyromq.protocol import names
from pyromq.protocol import properties as props
from pyromq.protocol.message_id import encode_offset_message_id
from pyromq.protocol.properties import without_property
from pyromq.protocol.record import StoredMessage, decode_records
from pyromq.protocol.requests.groups import SubscriptionGroupConfig
from pyromq.store.message_store import MessageStore
from pyromq.store.results import AppendStatus, ReadResult, ReadStatus

_log = logging.getLogger(__name__)

_HOPELESS = frozenset((AppendStatus.MESSAGE_ILLEGAL, AppendStatus.PROPERTIES_SIZE_EXCEEDED))


class Revival:
    def __init__(
        self,
        live: LiveSettings[BrokerSettings],
        store: MessageStore,
        tables: Tables,
        queues: WritableQueues,
        appending: Appending,
    ) -> None:
        self._live = live
        self._store = store
        self._topics = tables.topics
        self._groups = tables.groups
        self._offsets = tables.offsets
        self._counts = tables.pop_counts
        self._statistics = tables.statistics
        self._queues = queues
        self._appending = appending
        self._complaint = ""
        self.earlier: EarlierRevivals | None = None

    def revive(self, checkpoint: PopCheckpoint) -> bool:
        """Whether the pop is finished: all its messages are acknowledged, stored again, or gone."""
        info = checkpoint.info
        topic, group_name = info.topic or "", info.consumer_group or ""
        group = self._groups.get(group_name)
        if group is None or self._topics.get(names.popped_topic(topic, group_name)) is None:
            return True
        for offset in list(checkpoint.unacked()):
            message = message_at(self._store, topic, info.queue_id, offset)
            if message is None and self._store.queues.older is not None:
                result = self._store.read(topic, info.queue_id, offset, 1)
                if result.status is ReadStatus.IN_TIER:
                    return False
                message = _first(result, offset)
            try:
                if message is not None and not self._put(message, group, info.pop_time):
                    return False
            except NotWrittenYet:
                return False
            checkpoint.acknowledge(offset)
            self._counts.ended(topic, group_name, info.queue_id)
        return True

    def _put(self, message: StoredMessage, group: SubscriptionGroupConfig, pop_ms: int) -> bool:
        failures = message.reconsume_times + 1
        origin = names.popped_topic(message.topic, group.group_name)
        is_dead = not RetryPolicy(group.retry_max_times).has_retries_left(failures)
        properties = without_property(message.properties, props.POP_CK)
        if message.reconsume_times == 0 or message.get(props.FIRST_POP_TIME) is None:
            properties = with_property(properties, props.FIRST_POP_TIME, str(pop_ms))
        if is_dead:
            topic = self._queues.dead_letters(group.group_name).topic
            id_ = message.get(props.UNIQ_KEY) or encode_offset_message_id(
                message.store_host, message.log_offset
            )
            properties = with_property(properties, props.DLQ_ORIGIN_TOPIC, origin)
            properties = with_property(properties, props.DLQ_ORIGIN_MESSAGE_ID, id_)
        else:
            topic = self._retry_topic(message.topic, group.group_name)
        if self.earlier is not None and self.earlier.take(topic, message, failures):
            return True
        draft = Draft(
            topic,
            0,
            message.body,
            properties,
            message.born_timestamp,
            message.born_host.pack(),
            message.flag,
            message.sys_flag,
            failures,
        )
        result = self._appending.append(draft)
        if result.status is AppendStatus.PROPERTIES_SIZE_EXCEEDED:
            draft.properties = message.properties  # as they were they had room
            result = self._appending.append(draft)
        self._counts.revived[group.group_name, origin, result.status.value] += 1
        if not result.is_ok:
            self._statistics.put_failures += 1
            why = f"{result.status.value}: {result.reason}"
            if self._complaint != why:
                self._complaint = why
                _log.warning("popped messages not revived topic=%s: %s", topic, why)
            return result.status in _HOPELESS
        self._complaint = ""
        self._statistics.put(topic, 0, 1, result.size_bytes)
        if is_dead:
            self._statistics.add_dead_letter(origin, group.group_name)
        return True

    def _retry_topic(self, topic: str, group: str) -> str:
        if not names.is_retry_topic(topic):
            v1, v2 = names.pop_retry_topics(topic, group)
            topic = v2 if self._live.now.retry_topic_v2 else v1
        if self._topics.get(topic) is None:
            self._topics.create_if_absent(topic, 1)
        self._queues.require_written(topic)
        if self._offsets.query(group, topic, 0) < 0:
            self._offsets.commit(group, topic, 0, 0)
        return topic


def _first(result: ReadResult, offset: int) -> StoredMessage | None:
    """The message of this queue offset, if it was read."""
    messages = decode_records(result.views[0]) if result.views else []
    return messages[0] if messages and messages[0].queue_offset == offset else None
