"""Pulling: one queue, from an offset on; a pull that finds nothing waits for the next message.

A filter looks at messages only as long as its slice lasts. A pull that has found nothing by then is answered
with where to go on, which its consumer does at once.
"""

import asyncio
from collections.abc import Collection
from enum import IntEnum
from typing import cast

import msgspec

from pyromq.broker.flow.arrivals import Arrivals, Outcome
from pyromq.broker.flow.outlets import Outlet, Outlets
from pyromq.broker.settings import BrokerSettings
from pyromq.broker.tables.clients import ConsumerTable
from pyromq.broker.tables.filters import FilterTable, is_tag_type
from pyromq.broker.tables.groups import GroupTable
from pyromq.broker.tables.offsets import OffsetTable
from pyromq.broker.tables.statistics import Statistics
from pyromq.broker.tables.topics import TopicTable
from pyromq.config.live import LiveSettings
from pyromq.errors import BadExpression, Refused
from pyromq.filtering.sql_parser import SqlFilter, compile_sql
from pyromq.filtering.tags import parse_tags
from pyromq.protocol import names
from pyromq.protocol.bodies.groups import SubscriptionGroupConfig
from pyromq.protocol.bodies.heartbeat import ConsumeType
from pyromq.protocol.catalogue import RawAnswer, declaration_of
from pyromq.protocol.codes import ResponseCode
from pyromq.protocol.properties import decode_properties
from pyromq.protocol.record import scan_record
from pyromq.protocol.requests.pulling import LitePullMessage, PullMessage
from pyromq.remoting.routing import Caller, handles
from pyromq.remoting.slices import Slices
from pyromq.store.message_store import MessageStore
from pyromq.store.reading import RecordTest
from pyromq.store.results import ReadResult, ReadStatus

COMMIT_FLAG, SUSPEND_FLAG, SUBSCRIPTION_FLAG = 1, 2, 4
"""Bits of a pull's system flag."""

_ANY_VERSION = (1 << 63) - 1
_SHORT_SUBSCRIPTION_CHARS = 1024


class Forbidden(IntEnum):
    """Why a pull is refused with NO_PERMISSION."""

    BROKER = 1
    GROUP = 2
    TOPIC = 3
    BROADCASTING = 4
    SUBSCRIPTION = 5


class _NotAllowed(Exception):
    def __init__(self, forbidden: Forbidden, remark: str) -> None:
        super().__init__(remark)
        self.answer = RawAnswer(
            code=ResponseCode.NO_PERMISSION, remark=remark, ext={"forbiddenType": str(int(forbidden))}
        )


class Wanted(msgspec.Struct):
    """What of a queue a pull wants to see: all, some tags, or what passes an expression."""

    tag_codes: Collection[int] | None = None
    matches: RecordTest | None = None
    version: int = _ANY_VERSION
    """Of the subscription that says so; one that came with the pull itself is never too old."""


_CODES = {
    ReadStatus.FOUND: ResponseCode.SUCCESS,
    ReadStatus.NO_MATCHED_MESSAGE: ResponseCode.PULL_RETRY_IMMEDIATELY,
    ReadStatus.MESSAGE_WAS_REMOVING: ResponseCode.PULL_RETRY_IMMEDIATELY,
    ReadStatus.OFFSET_FOUND_NULL: ResponseCode.PULL_NOT_FOUND,
    ReadStatus.OFFSET_OVERFLOW_ONE: ResponseCode.PULL_NOT_FOUND,
    ReadStatus.OFFSET_OVERFLOW_BADLY: ResponseCode.PULL_OFFSET_MOVED,
    ReadStatus.OFFSET_TOO_SMALL: ResponseCode.PULL_OFFSET_MOVED,
}

_NOTHING_YET = (ResponseCode.PULL_NOT_FOUND, ResponseCode.PULL_RETRY_IMMEDIATELY)


class Pulling:
    def __init__(
        self,
        live: LiveSettings[BrokerSettings],
        store: MessageStore,
        topics: TopicTable,
        groups: GroupTable,
        offsets: OffsetTable,
        consumers: ConsumerTable,
        filters: FilterTable,
        arrivals: Arrivals,
        outlets: Outlets,
        statistics: Statistics,
        slices: Slices,
    ) -> None:
        self._live = live
        self._store = store
        self._topics = topics
        self._groups = groups
        self._offsets = offsets
        self._consumers = consumers
        self._filters = filters
        self._arrivals = arrivals
        self._outlets = outlets
        self._statistics = statistics
        self._slices = slices
        self._loop = asyncio.get_running_loop()
        self._changes = 0
        """How often something changed that decides who may read what."""
        outlets.on_change(self._note_change)

    def _note_change(self) -> None:
        self._changes += 1

    @handles(PullMessage, may_wait=True)
    def pull(self, request: PullMessage, caller: Caller) -> "RawAnswer | asyncio.Future[RawAnswer]":
        if self._is_heavy(request) and (self._slices.waiting or self._slices.is_over()):
            return self._pull_later(request, caller)
        return self._pull(request, caller, None)

    def _is_heavy(self, request: PullMessage) -> bool:
        """Whether a pull has a filter to compile or to ask about each message."""
        if request.sys_flag & SUBSCRIPTION_FLAG:
            is_long = len(request.subscription or "") > _SHORT_SUBSCRIPTION_CHARS
            return is_long or not is_tag_type(request.expression_type)
        subscription = self._consumers.subscription(request.consumer_group, request.topic)
        return subscription is not None and not is_tag_type(subscription.expression_type)

    def _pull_later(self, request: PullMessage, caller: Caller) -> "asyncio.Future[RawAnswer]":
        """Pull when others who came before have had their slices."""
        answered: asyncio.Future[RawAnswer] = self._loop.create_future()

        def step() -> bool:
            if not caller.channel.is_open:
                answered.cancel()
            if not answered.done():
                try:
                    answer = self._pull(request, caller, answered)
                except Exception as problem:
                    answered.set_exception(problem)
                else:
                    if answer is not answered:
                        answered.set_result(cast(RawAnswer, answer))
            return True

        self._slices.run(step)
        return answered

    def _pull(
        self, request: PullMessage, caller: Caller, answered: "asyncio.Future[RawAnswer] | None"
    ) -> "RawAnswer | asyncio.Future[RawAnswer]":
        """The answer, or where it will be: in `answered` if there is one already."""
        try:
            group = self._check(request, caller)
            wanted = self._wanted(request, group, caller)
        except _NotAllowed as refusal:
            return refusal.answer
        if request.sys_flag & COMMIT_FLAG:
            self._offsets.commit(
                request.consumer_group, request.topic, request.queue_id, request.commit_offset
            )
        reset = self._offsets.take_reset(request.consumer_group, request.topic, request.queue_id)
        if reset is not None and self._live.now.server_side_reset:
            return self._reset_answer(request, group, reset)
        result = self._read(request, wanted, request.queue_offset)
        code = _code_of(result, request.queue_offset)
        if code == ResponseCode.SUCCESS and wanted.matches is None:
            self._keep_outlet(request, group, wanted)
        if code != ResponseCode.PULL_NOT_FOUND or not request.sys_flag & SUSPEND_FLAG:
            return self._answer(request, group, result, code)
        return self._hold(request, group, wanted, caller, answered or self._loop.create_future())

    @handles(LitePullMessage, may_wait=True)
    def lite_pull(self, request: LitePullMessage, caller: Caller) -> "RawAnswer | asyncio.Future[RawAnswer]":
        if not self._live.now.lite_pull:
            return _NotAllowed(Forbidden.BROKER, "this broker does not serve lite pull consumers").answer
        return self.pull(request, caller)

    # May it

    def _check(self, request: PullMessage, caller: Caller) -> SubscriptionGroupConfig:
        """java: the checks stand in Apache's order, because clients tell errors apart by the first one."""
        settings = self._live.now
        if not settings.broker_permission & names.READ:
            raise _NotAllowed(Forbidden.BROKER, "this broker may not be read at the moment")
        group = self._groups.find(request.consumer_group)
        if group is None:
            raise Refused(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
                f"the consumer group {request.consumer_group} does not exist",
            )
        if not group.consume_enable:
            raise _NotAllowed(Forbidden.GROUP, f"the consumer group {group.group_name} may not consume")
        topic = self._topics.get(request.topic)
        if topic is None:
            raise Refused(ResponseCode.TOPIC_NOT_EXIST, f"the topic {request.topic} does not exist")
        if not topic.perm & names.READ:
            raise _NotAllowed(Forbidden.TOPIC, f"the topic {request.topic} may not be read")
        if not 0 <= request.queue_id < topic.read_queue_nums:
            raise Refused(
                ResponseCode.INVALID_PARAMETER,
                f"queue {request.queue_id} is not one of the {topic.read_queue_nums} read queues of"
                f" {request.topic}, consumer {caller.address}",
            )
        return group

    def _wanted(self, request: PullMessage, group: SubscriptionGroupConfig, caller: Caller) -> Wanted:
        if request.sys_flag & SUBSCRIPTION_FLAG:
            expression_type = request.expression_type
            try:
                if is_tag_type(expression_type):
                    wanted = _by_tags(parse_tags(request.subscription).codes)
                else:
                    wanted = _by_properties(compile_sql(request.subscription or ""))
            except BadExpression as problem:
                raise Refused(ResponseCode.SUBSCRIPTION_PARSE_FAILED, str(problem)) from None
        else:
            expression_type, wanted = self._subscribed(request, group)
        if not is_tag_type(expression_type) and not self._live.now.sql_filters:
            raise Refused(
                ResponseCode.SYSTEM_ERROR,
                f"this broker does not filter by {expression_type}: enablePropertyFilter is off",
            )
        if self._live.now.reject_pull_consumers:
            self._check_is_member(request, caller)
        return wanted

    def _subscribed(self, request: PullMessage, group: SubscriptionGroupConfig) -> tuple[str | None, Wanted]:
        """What the group said in its heartbeats that it wants."""
        members = self._consumers.group(request.consumer_group)
        if members is None:
            raise Refused(
                ResponseCode.SUBSCRIPTION_NOT_EXIST,
                f"no heartbeat came from a consumer of {request.consumer_group} yet",
            )
        if members.is_broadcasting and not group.consume_broadcast_enable:
            raise _NotAllowed(Forbidden.BROADCASTING, f"the group {group.group_name} may not broadcast")
        if not self._groups.may_read(request.consumer_group, request.topic):
            raise _NotAllowed(
                Forbidden.SUBSCRIPTION, f"the group {group.group_name} may not read {request.topic}"
            )
        subscription = members.subscriptions.get(request.topic)
        if subscription is None:
            raise Refused(
                ResponseCode.SUBSCRIPTION_NOT_EXIST,
                f"the group {request.consumer_group} does not subscribe to {request.topic};"
                " do all its members subscribe to the same topics?",
            )
        if subscription.sub_version < request.sub_version:
            raise Refused(
                ResponseCode.SUBSCRIPTION_NOT_LATEST,
                "the subscription known here is older than the consumer's",
            )
        expression_type = subscription.expression_type
        if is_tag_type(expression_type):
            return expression_type, _by_tags(subscription.code_set, subscription.sub_version)
        compiled = self._filters.get(request.topic, request.consumer_group)
        if compiled is None:
            raise Refused(
                ResponseCode.FILTER_DATA_NOT_EXIST,
                "no filter is known here; is the expression valid, and not too large?",
            )
        if compiled.version < request.sub_version:
            raise Refused(
                ResponseCode.FILTER_DATA_NOT_LATEST, "the filter known here is older than the consumer's"
            )
        return expression_type, _by_properties(compiled.filter)

    def _check_is_member(self, request: PullMessage, caller: Caller) -> None:
        members = self._consumers.group(request.consumer_group)
        if members is None or (
            members.consume_type is ConsumeType.CONSUME_ACTIVELY and caller.channel not in members.members
        ):
            raise Refused(
                ResponseCode.SUBSCRIPTION_NOT_EXIST,
                f"no heartbeat came from this consumer of {request.consumer_group}: such pulls are refused",
            )

    def _keep_outlet(self, request: PullMessage, group: SubscriptionGroupConfig, wanted: Wanted) -> None:
        """Remember that such pulls are allowed, for those who ask again and again."""
        settings = self._live.now
        topic = self._topics.get(request.topic)
        if settings.reject_pull_consumers or topic is None:
            return
        brings_subscription = request.sys_flag & SUBSCRIPTION_FLAG != 0
        self._outlets.keep(
            declaration_of(type(request)).code,
            Outlet(
                request.consumer_group,
                request.topic,
                topic.read_queue_nums,
                wanted.tag_codes,
                wanted.version,
                group.broker_id if settings.slave_read else 0,
                group.which_broker_when_consume_slowly if settings.slave_read else 0,
            ),
            request.subscription if brings_subscription else None,
            request.expression_type if brings_subscription else None,
        )

    # Reading and answering

    def _read(self, request: PullMessage, wanted: Wanted, offset: int) -> ReadResult:
        result = self._store.read(
            request.topic,
            request.queue_id,
            offset,
            request.max_msg_nums,
            request.max_msg_bytes or 1 << 30,
            tag_codes=wanted.tag_codes,
            matches=wanted.matches,
            is_over=self._slices.is_over_for_newcomer() if wanted.matches is not None else None,
        )
        if result.status is not ReadStatus.FOUND:
            self._statistics.pulls_missed += 1
        return result

    def _read_on(self, request: PullMessage, wanted: Wanted, offset: int) -> tuple[ReadResult, int]:
        """Read from an offset on, past all that is not wanted, until something is found or the slice is over:
        one read looks at only so many messages."""
        while True:
            result = self._read(request, wanted, offset)
            code = _code_of(result, offset)
            if code != ResponseCode.PULL_RETRY_IMMEDIATELY or result.next_offset >= result.max_offset:
                return result, code
            if self._slices.is_over():
                return result, code
            offset = result.next_offset

    def _answer(
        self, request: PullMessage, group: SubscriptionGroupConfig, result: ReadResult, code: int
    ) -> RawAnswer:
        if code == ResponseCode.SUCCESS:
            self._statistics.got(
                request.consumer_group,
                request.topic,
                request.queue_id,
                result.message_count,
                result.size_bytes,
            )
            self._offsets.pulled(request.consumer_group, request.topic, request.queue_id, result.next_offset)
        suggested = 0
        if self._live.now.slave_read:
            suggested = group.which_broker_when_consume_slowly if result.suggest_replica else group.broker_id
        return RawAnswer(
            b"".join(result.views),
            {
                "suggestWhichBrokerId": str(suggested),
                "nextBeginOffset": str(result.next_offset),
                "minOffset": str(result.min_offset),
                "maxOffset": str(result.max_offset),
            },
            code,
            result.status.value,
        )

    def _reset_answer(self, request: PullMessage, group: SubscriptionGroupConfig, offset: int) -> RawAnswer:
        result = ReadResult(
            ReadStatus.OFFSET_TOO_SMALL,
            offset,
            self._store.min_offset(request.topic, request.queue_id),
            self._store.max_offset(request.topic, request.queue_id),
        )
        answer = self._answer(request, group, result, ResponseCode.PULL_OFFSET_MOVED)
        answer.remark = "OFFSET_RESET"
        return answer

    def _hold(
        self,
        request: PullMessage,
        group: SubscriptionGroupConfig,
        wanted: Wanted,
        caller: Caller,
        answered: "asyncio.Future[RawAnswer]",
    ) -> "asyncio.Future[RawAnswer]":
        """Wait until something arrives that the pull wants, or until its time is over."""
        settings = self._live.now
        timeout_ms = request.suspend_timeout_millis
        if not settings.long_polling:
            timeout_ms = settings.short_polling_ms
        # Messages that were looked at and not wanted are not looked at again.
        offset = request.queue_offset
        checked = self._changes
        is_unfinished = False

        def look(is_last: bool) -> RawAnswer | None:
            nonlocal group, wanted, offset, checked, is_unfinished
            if checked != self._changes:
                checked, offset = self._changes, request.queue_offset
                group = self._check(request, caller)
                wanted = self._wanted(request, group, caller)
            result, code = self._read_on(request, wanted, offset)
            if code == ResponseCode.PULL_RETRY_IMMEDIATELY:
                offset = result.next_offset
            is_unfinished = code == ResponseCode.PULL_RETRY_IMMEDIATELY and offset < result.max_offset
            if not is_last and code in _NOTHING_YET:
                return None
            return self._answer(request, group, result, code)

        def attempt(is_last: bool) -> Outcome:
            if not caller.channel.is_open:
                answered.cancel()
                return Outcome.ANSWERED
            try:
                answer = look(is_last)
            except _NotAllowed as refusal:
                answer = refusal.answer
            except Exception as problem:
                # Whoever waits beside it shall not suffer; told and logged it is like any other request.
                answered.set_exception(problem)
                return Outcome.ANSWERED
            if answer is None:
                return Outcome.GOES_ON if is_unfinished else Outcome.WAITS
            answered.set_result(answer)
            return Outcome.ANSWERED

        timeout_s = max(timeout_ms, 0) / 1000
        self._arrivals.hold(request.topic, request.queue_id, attempt, timeout_s, caller.channel)
        return answered


def _code_of(result: ReadResult, offset: int) -> int:
    if result.status in (ReadStatus.NO_MATCHED_LOGIC_QUEUE, ReadStatus.NO_MESSAGE_IN_QUEUE):
        # java: a queue that has never had a message is only wrong for those who think it had
        return ResponseCode.PULL_OFFSET_MOVED if offset else ResponseCode.PULL_NOT_FOUND
    return _CODES[result.status]


def _by_tags(codes: Collection[int], version: int = _ANY_VERSION) -> Wanted:
    return Wanted(codes or None, version=version)


def _by_properties(compiled: SqlFilter) -> Wanted:
    def matches(record: memoryview) -> bool:
        outline = scan_record(record)
        if outline is None:
            return False
        raw = bytes(record[outline.properties_start : outline.properties_end])
        return compiled.matches(decode_properties(raw))

    return Wanted(matches=matches)
