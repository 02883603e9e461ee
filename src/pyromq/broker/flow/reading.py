"""Reading a queue for a consumer group: the permission, the filter and the messages.

Pulls and all other requests that read for a group use this.
"""

import logging
from collections.abc import Collection
from enum import IntEnum

import msgspec

from pyromq.broker.settings import BrokerSettings
from pyromq.broker.tables.all_tables import Tables
from pyromq.broker.tables.filters import is_tag_type
from pyromq.config.live import LiveSettings
from pyromq.errors import BadExpression, Refused, RemoteProtocolError
from pyromq.filtering.json_body import MessageWithBody
from pyromq.filtering.sql_parser import SqlFilter, compile_sql
from pyromq.filtering.tags import parse_tags
from pyromq.protocol import names
from pyromq.protocol.codes import ResponseCode
from pyromq.protocol.compression import compression_of, decompress
from pyromq.protocol.properties import decode_properties
from pyromq.protocol.record import RecordOutline, SysFlag, scan_record
from pyromq.protocol.requests.groups import SubscriptionGroupConfig
from pyromq.remoting.slices import Slices
from pyromq.store.message_store import MessageStore
from pyromq.store.reading import RecordFilter, RecordTest
from pyromq.store.results import ReadResult, ReadStatus

_log = logging.getLogger(__name__)

_ANY_VERSION = (1 << 63) - 1
_MAX_BYTES = 1 << 30


def is_young(store: MessageStore, topic: str, queue_id: int) -> bool:
    """Whether a queue still has all its messages, and the first one is likely to be in memory."""
    return store.queues.is_whole(topic, queue_id) and not store.read(topic, queue_id, 0, 1).suggest_replica


class Forbidden(IntEnum):
    """Why reading is refused with NO_PERMISSION."""

    BROKER = 1
    GROUP = 2
    TOPIC = 3
    BROADCASTING = 4
    SUBSCRIPTION = 5


class ReadForbidden(Refused):
    def __init__(self, forbidden: Forbidden, remark: str) -> None:
        super().__init__(ResponseCode.NO_PERMISSION, remark)
        self.forbidden = forbidden


class WantedMessages(msgspec.Struct):
    """The messages that a reader wants: all, those with some tags, or those that match an expression."""

    tag_codes: Collection[int] | None = None
    matches: RecordTest | None = None
    version: int = _ANY_VERSION
    """The version of the subscription; a subscription in the request itself is never too old."""


class Reading:
    def __init__(
        self,
        live: LiveSettings[BrokerSettings],
        store: MessageStore,
        tables: Tables,
        slices: Slices,
    ) -> None:
        self._live = live
        self._store = store
        self._topics = tables.topics
        self._groups = tables.groups
        self._consumers = tables.consumers
        self._filters = tables.filters
        self._statistics = tables.statistics
        self._slices = slices

    # Permission

    def check(self, group_name: str, topic_name: str, queue_id: int, reader: str) -> SubscriptionGroupConfig:
        """The group, if it may read this queue; raises Refused, or ReadForbidden.

        java: the checks run in Apache's order, because clients branch on the first error.
        """
        if not self._live.now.broker_permission & names.READ:
            raise ReadForbidden(Forbidden.BROKER, "this broker is not readable, see brokerPermission")
        group = self._groups.find(group_name)
        if group is None:
            raise Refused(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"the consumer group {group_name} does not exist"
            )
        if not group.consume_enable:
            raise ReadForbidden(
                Forbidden.GROUP, f"the consumer group {group.group_name} is disabled (consumeEnable)"
            )
        topic = self._topics.readable(topic_name)
        if topic is None:
            raise Refused(ResponseCode.TOPIC_NOT_EXIST, f"the topic {topic_name} does not exist")
        if not topic.perm & names.READ:
            raise ReadForbidden(Forbidden.TOPIC, f"the topic {topic_name} is not readable")
        if not 0 <= queue_id < topic.read_queue_nums:
            raise Refused(
                ResponseCode.INVALID_PARAMETER,
                f"queue {queue_id} is not one of the {topic.read_queue_nums} read queues of"
                f" {topic_name}, consumer {reader}",
            )
        return group

    # Filter

    def wanted_by_expression(self, expression: str | None, expression_type: str | None) -> WantedMessages:
        """For a request that brings its own expression."""
        try:
            if is_tag_type(expression_type):
                return _by_tags(parse_tags(expression).codes)
            compiled = compile_sql(expression or "")
        except BadExpression as problem:
            raise Refused(ResponseCode.SUBSCRIPTION_PARSE_FAILED, str(problem)) from None
        check_served(self._live.now, compiled, expression_type)
        return self._by_sql(compiled)

    def wanted_by_subscription(
        self, group: SubscriptionGroupConfig, topic: str, known_version: int
    ) -> WantedMessages:
        """For a group that subscribed by heartbeat; `known_version` is the oldest acceptable version."""
        name = group.group_name
        members = self._consumers.group(name)
        if members is None:
            raise Refused(
                ResponseCode.SUBSCRIPTION_NOT_EXIST,
                f"the broker has no heartbeat from a consumer of the group {name}",
            )
        if members.is_broadcasting and not group.consume_broadcast_enable:
            raise ReadForbidden(Forbidden.BROADCASTING, f"the group {name} is not allowed to broadcast")
        if not self._groups.may_read(name, topic):
            raise ReadForbidden(Forbidden.SUBSCRIPTION, f"the group {name} is not allowed to read {topic}")
        subscription = members.subscriptions.get(topic)
        if subscription is None:
            raise Refused(
                ResponseCode.SUBSCRIPTION_NOT_EXIST,
                f"the group {name} does not subscribe to {topic};"
                " do all its members subscribe to the same topics?",
            )
        if subscription.sub_version < known_version:
            raise Refused(
                ResponseCode.SUBSCRIPTION_NOT_LATEST,
                f"the broker has an older subscription of {name} to {topic} than the consumer",
            )
        if is_tag_type(subscription.expression_type):
            return _by_tags(subscription.code_set, subscription.sub_version)
        compiled = self._filters.get(topic, name)
        if compiled is None:
            raise Refused(
                ResponseCode.FILTER_DATA_NOT_EXIST,
                f"the broker has no filter of {name} for {topic}: is the expression valid and small enough?",
            )
        if compiled.version < known_version:
            raise Refused(
                ResponseCode.FILTER_DATA_NOT_LATEST,
                f"the broker has an older filter of {name} for {topic} than the consumer",
            )
        check_served(self._live.now, compiled.filter, subscription.expression_type)
        return self._by_sql(compiled.filter)

    def _by_sql(self, compiled: SqlFilter) -> WantedMessages:
        if not compiled.reads_body:
            return _by_properties(compiled)

        def matches(record: memoryview) -> bool:
            outline = scan_record(record)
            if outline is None:
                return False
            properties = decode_properties(bytes(record[outline.properties_start : outline.properties_end]))
            return compiled.matches(MessageWithBody(properties, lambda: self._body(record, outline)))

        return WantedMessages(matches=matches)

    def _body(self, record: memoryview, outline: RecordOutline) -> bytes | None:
        """The body as it was sent; None for one that is too large for a filter, or broken."""
        limit = self._live.now.filter_body_bytes
        raw = record[outline.body_start : outline.body_end]
        if len(raw) <= limit:
            if not outline.sys_flag & SysFlag.COMPRESSED:
                return bytes(raw)
            try:
                return decompress(bytes(raw), compression_of(outline.sys_flag), limit)
            except RemoteProtocolError as problem:
                reason = str(problem)
        else:
            reason = f"it has {len(raw)} bytes"
        if not self._statistics.bodies_unread:
            _log.warning(
                "a filter cannot read a body and passes the message over, topic=%s offset=%d: %s"
                " (filterMaxBodySize=%d; further ones are only counted:"
                " pyromq_filter_unread_bodies_total)",
                outline.topic,
                outline.queue_offset,
                reason,
                limit,
            )
        self._statistics.bodies_unread += 1
        return None

    # Messages

    def read(
        self,
        topic: str,
        queue_id: int,
        offset: int,
        max_messages: int,
        wanted: WantedMessages,
        max_bytes: int | None = None,
    ) -> ReadResult:
        """Read once; a filter examines messages only until its time slice ends."""
        only = None
        if wanted.matches is not None:
            only = RecordFilter(wanted.matches, self._slices.is_over_for_newcomer())
        result = self._store.read(
            topic,
            queue_id,
            offset,
            max_messages,
            max_bytes or _MAX_BYTES,
            tag_codes=wanted.tag_codes,
            only=only,
        )
        if result.status is not ReadStatus.FOUND:
            self._statistics.pulls_missed += 1
        return result


def check_served(settings: BrokerSettings, compiled: SqlFilter, expression_type: str | None) -> None:
    """Refuse a filter of a kind that this broker is not set to evaluate."""
    if not settings.sql_filters:
        raise sql_is_off(expression_type)
    if compiled.reads_body and not settings.body_filters:
        raise Refused(
            ResponseCode.SYSTEM_ERROR,
            "this broker does not filter by fields of bodies: filterSupportBody is off",
        )


def sql_is_off(expression_type: str | None) -> Refused:
    return Refused(
        ResponseCode.SYSTEM_ERROR,
        f"this broker does not filter by {expression_type}: enablePropertyFilter is off",
    )


def _by_tags(codes: Collection[int], version: int = _ANY_VERSION) -> WantedMessages:
    return WantedMessages(codes or None, version=version)


def _by_properties(compiled: SqlFilter) -> WantedMessages:
    def matches(record: memoryview) -> bool:
        outline = scan_record(record)
        if outline is None:
            return False
        raw = bytes(record[outline.properties_start : outline.properties_end])
        return compiled.matches(decode_properties(raw))

    return WantedMessages(matches=matches)
