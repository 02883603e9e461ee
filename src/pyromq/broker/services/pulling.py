"""Pulling: reads one queue from an offset on; a pull that finds nothing waits for the next message.

A filter examines messages only until its time slice ends. A pull that has found nothing by then continues in
the next slices. After `_MAX_SEARCHED` messages it is answered with the offset to continue from, and its
consumer pulls again at once.
"""

import asyncio
from collections.abc import Callable
from functools import partial

from msgspec.structs import replace

from pyromq.broker.context import Context
from pyromq.broker.flow.held_pulls import HeldPulls
from pyromq.broker.flow.held_requests import HeldCall, HeldOutcome
from pyromq.broker.flow.quotas import Quotas
from pyromq.broker.flow.read_grants import ReadGrant, ReadGrants
from pyromq.broker.flow.reading import Forbidden, ReadForbidden, Reading, WantedMessages
from pyromq.broker.tables.filters import is_tag_type
from pyromq.errors import Refused
from pyromq.protocol.catalogue import RawAnswer, declaration_of
from pyromq.protocol.codes import ResponseCode
from pyromq.protocol.requests.groups import SubscriptionGroupConfig
from pyromq.protocol.requests.membership import ConsumeType
from pyromq.protocol.requests.pulling import LitePullMessage, PullMessage
from pyromq.remoting.routing import Caller, handles
from pyromq.store.results import ReadResult, ReadStatus

COMMIT_FLAG, SUSPEND_FLAG, SUBSCRIPTION_FLAG = 1, 2, 4
"""Bits of a pull's system flag."""

_SHORT_SUBSCRIPTION_CHARS = 1024
_MAX_SEARCHED = 800
"""java: the number of messages that one pull examines."""


_CODES = {
    ReadStatus.FOUND: ResponseCode.SUCCESS,
    ReadStatus.NO_MATCHED_MESSAGE: ResponseCode.PULL_RETRY_IMMEDIATELY,
    ReadStatus.MESSAGE_WAS_REMOVING: ResponseCode.PULL_RETRY_IMMEDIATELY,
    ReadStatus.OFFSET_FOUND_NULL: ResponseCode.PULL_NOT_FOUND,
    ReadStatus.OFFSET_OVERFLOW_ONE: ResponseCode.PULL_NOT_FOUND,
    ReadStatus.OFFSET_OVERFLOW_BADLY: ResponseCode.PULL_OFFSET_MOVED,
    ReadStatus.OFFSET_TOO_SMALL: ResponseCode.PULL_OFFSET_MOVED,
    # Not PULL_NOT_FOUND: some readers take that for the end of the queue.
    ReadStatus.QUEUE_IS_MENDED: ResponseCode.PULL_RETRY_IMMEDIATELY,
    ReadStatus.IN_TIER: ResponseCode.PULL_RETRY_IMMEDIATELY,
}

_COMES_SOON = (ReadStatus.QUEUE_IS_MENDED, ReadStatus.IN_TIER)
"""Whoever waits is woken when it can be read."""
_NO_MATCH = ReadStatus.NO_MATCHED_MESSAGE.value
_NOTHING_YET = (ResponseCode.PULL_NOT_FOUND, ResponseCode.PULL_RETRY_IMMEDIATELY)


class Pulling:
    def __init__(
        self,
        context: Context,
        reading: Reading,
        held_pulls: HeldPulls,
        read_grants: ReadGrants,
        quotas: Quotas,
        is_master_near: Callable[[], bool] = lambda: False,
        is_readable: Callable[[], bool] = lambda: True,
    ) -> None:
        """`is_master_near`: whether this broker is a replica that is connected to its master. `is_readable`:
        see `Durability`."""
        tables = context.tables
        self._live = context.live
        self._store = context.store
        self._topics = tables.topics
        self._static_topics = tables.static_topics
        self._role = tables.role
        self._is_master_near = is_master_near
        self._is_readable = is_readable
        self._reading = reading
        self._offsets = tables.offsets
        self._consumers = tables.consumers
        self._held_pulls = held_pulls
        self._read_grants = read_grants
        self._quotas = quotas
        self._statistics = tables.statistics
        self._slices = context.slices
        self._loop = asyncio.get_running_loop()
        self._changes = 0
        """Counts the changes that may affect who may read what."""
        read_grants.on_change(self._note_change)

    def _note_change(self) -> None:
        self._changes += 1

    @handles(PullMessage, may_wait=True)
    def pull(self, request: PullMessage, caller: Caller) -> "RawAnswer | asyncio.Future[RawAnswer]":
        limits = self._quotas.of_reads(request.topic, request.consumer_group, caller.user)
        if not limits:
            return self._pull_some(request, caller, request.max_msg_nums)
        attempt = partial(self._pull_some, request, caller)
        return self._quotas.read(limits, request.max_msg_nums, attempt, lambda: caller.channel.is_open)

    def _pull_some(
        self, request: PullMessage, caller: Caller, most: int
    ) -> "RawAnswer | asyncio.Future[RawAnswer]":
        if most < request.max_msg_nums:
            request = replace(request, max_msg_nums=most)
        if self._is_heavy(request):
            return self._search(request, caller)
        return self._pull(request, caller, None)

    def _is_heavy(self, request: PullMessage) -> bool:
        """Whether a pull has to compile a filter or to match messages against one."""
        if request.sys_flag & SUBSCRIPTION_FLAG:
            is_long = len(request.subscription or "") > _SHORT_SUBSCRIPTION_CHARS
            return is_long or not is_tag_type(request.expression_type)
        subscription = self._consumers.subscription(request.consumer_group, request.topic)
        return subscription is not None and not is_tag_type(subscription.expression_type)

    def _search(self, request: PullMessage, caller: Caller) -> "RawAnswer | asyncio.Future[RawAnswer]":
        """Pull when the requests that came before have had their slices; a filter may need many of them."""
        answered: asyncio.Future[RawAnswer] = self._loop.create_future()
        end = request.queue_offset + _MAX_SEARCHED

        def look(_: bool) -> HeldOutcome:
            nonlocal request
            answer = self._pull(request, caller, answered)
            if isinstance(answer, asyncio.Future):
                return HeldOutcome.ANSWERED
            if (offset := _where_to_continue(answer)) and request.queue_offset < offset < end:
                flags = request.sys_flag & ~COMMIT_FLAG
                request = replace(request, queue_offset=offset, sys_flag=flags)
                return HeldOutcome.GOES_ON
            answered.set_result(answer)
            return HeldOutcome.ANSWERED

        call = HeldCall(caller.channel, answered, look)
        self._slices.run(lambda: call(False) is not HeldOutcome.GOES_ON)
        return answered.result() if answered.done() and not answered.cancelled() else answered

    def _pull(
        self, request: PullMessage, caller: Caller, answered: "asyncio.Future[RawAnswer] | None"
    ) -> "RawAnswer | asyncio.Future[RawAnswer]":
        """The answer, or a future of it: `answered`, if given."""
        try:
            group = self._check(request, caller)
            wanted = self._wanted(request, group, caller)
        except ReadForbidden as refusal:
            return _forbidden(refusal)
        if request.sys_flag & COMMIT_FLAG:
            self._offsets.commit(
                request.consumer_group, request.topic, request.queue_id, request.commit_offset
            )
        if not self._is_readable():
            return self._unreadable(request, group)
        if (reset := self._reset_of(request)) is not None:
            return self._reset_answer(request, group, reset)
        result = self._read(request, wanted, request.queue_offset)
        code = self._code_of(result, request.queue_offset)
        if code != ResponseCode.SUCCESS and self._is_master_near():
            # java: only a replica without a master says what its queues lack
            return self._answer(request, group, result, ResponseCode.PULL_RETRY_IMMEDIATELY)
        if code == ResponseCode.SUCCESS and wanted.matches is None:
            self._keep_grant(request, group, wanted)
        may_come = code == ResponseCode.PULL_NOT_FOUND or result.status in _COMES_SOON
        # Without a wait, a reader that has to ask again for what is being fetched would ask without a pause.
        waits = request.sys_flag & SUSPEND_FLAG or result.status is ReadStatus.IN_TIER
        if not may_come or not waits:
            return self._answer(request, group, result, code)
        return self._hold(request, group, wanted, caller, answered or self._loop.create_future())

    @handles(LitePullMessage, may_wait=True)
    def lite_pull(self, request: LitePullMessage, caller: Caller) -> "RawAnswer | asyncio.Future[RawAnswer]":
        if not self._live.now.lite_pull:
            return _forbidden(
                ReadForbidden(Forbidden.BROKER, "this broker does not serve lite pull consumers")
            )
        return self.pull(request, caller)

    # Permission and filter

    def _check(self, request: PullMessage, caller: Caller) -> SubscriptionGroupConfig:
        return self._reading.check(request.consumer_group, request.topic, request.queue_id, caller.address)

    def _wanted(self, request: PullMessage, group: SubscriptionGroupConfig, caller: Caller) -> WantedMessages:
        if request.sys_flag & SUBSCRIPTION_FLAG:
            wanted = self._reading.wanted_by_expression(request.subscription, request.expression_type)
        else:
            wanted = self._reading.wanted_by_subscription(group, request.topic, request.sub_version)
        if self._live.now.reject_pull_consumers:
            self._check_is_member(request, caller)
        return wanted

    def _check_is_member(self, request: PullMessage, caller: Caller) -> None:
        members = self._consumers.group(request.consumer_group)
        if members is None or (
            members.consume_type is ConsumeType.CONSUME_ACTIVELY and caller.channel not in members.members
        ):
            raise Refused(
                ResponseCode.SUBSCRIPTION_NOT_EXIST,
                f"no heartbeat from this consumer of {request.consumer_group}, see rejectPullConsumerEnable",
            )

    def _keep_grant(
        self, request: PullMessage, group: SubscriptionGroupConfig, wanted: WantedMessages
    ) -> None:
        """Remember that such pulls are allowed; the fast path takes them from now on."""
        settings = self._live.now
        topic = self._topics.get(request.topic)
        if settings.reject_pull_consumers or topic is None or request.topic in self._static_topics:
            return
        if self._quotas.of_readers(request.topic, request.consumer_group):
            return
        brings_subscription = request.sys_flag & SUBSCRIPTION_FLAG != 0
        self._read_grants.keep(
            declaration_of(type(request)).code,
            ReadGrant(
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

    def _read(self, request: PullMessage, wanted: WantedMessages, offset: int) -> ReadResult:
        return self._reading.read(
            request.topic,
            request.queue_id,
            offset,
            request.max_msg_nums,
            wanted,
            request.max_msg_bytes,
        )

    def _read_on(self, request: PullMessage, wanted: WantedMessages, offset: int) -> tuple[ReadResult, int]:
        """Read until something is found or the slice is over; one read examines only some messages."""
        while True:
            result = self._read(request, wanted, offset)
            code = self._code_of(result, offset)
            is_stuck = result.status in _COMES_SOON or result.next_offset >= result.max_offset
            if code != ResponseCode.PULL_RETRY_IMMEDIATELY or is_stuck:
                return result, code
            if self._slices.is_over():
                return result, code
            offset = result.next_offset

    def _code_of(self, result: ReadResult, offset: int) -> int:
        if result.status is ReadStatus.OFFSET_OVERFLOW_BADLY and not self._role.now.is_master:
            # The replica lacks messages that its master had: consumers wait for them instead of going back.
            return ResponseCode.PULL_NOT_FOUND
        return _code_of(result, offset)

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
        is_elsewhere = code != ResponseCode.SUCCESS and not self._role.now.is_master
        if self._live.now.slave_read and not is_elsewhere:
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

    def _reset_of(self, request: PullMessage) -> int | None:
        """Where the group has to read instead."""
        if not self._offsets.resets:
            return None
        return self._offsets.take_reset(
            request.consumer_group, request.topic, request.queue_id, request.queue_offset
        )

    def _reset_answer(self, request: PullMessage, group: SubscriptionGroupConfig, offset: int) -> RawAnswer:
        result = self._nothing(ReadStatus.OFFSET_TOO_SMALL, request, offset)
        answer = self._answer(request, group, result, ResponseCode.PULL_OFFSET_MOVED)
        answer.remark = "OFFSET_RESET"
        return answer

    def _unreadable(self, request: PullMessage, group: SubscriptionGroupConfig) -> RawAnswer:
        """The queues have what another master may lack."""
        nothing = self._nothing(ReadStatus.NO_MATCHED_MESSAGE, request, request.queue_offset)
        return self._answer(request, group, nothing, ResponseCode.PULL_RETRY_IMMEDIATELY)

    def _nothing(self, status: ReadStatus, request: PullMessage, next_offset: int) -> ReadResult:
        return ReadResult(
            status,
            next_offset,
            self._store.queues.min_offset(request.topic, request.queue_id),
            self._store.queues.max_offset(request.topic, request.queue_id),
        )

    def _hold(
        self,
        request: PullMessage,
        group: SubscriptionGroupConfig,
        wanted: WantedMessages,
        caller: Caller,
        answered: "asyncio.Future[RawAnswer]",
    ) -> "asyncio.Future[RawAnswer]":
        """Wait until a message arrives that matches, or until the time-out."""
        settings = self._live.now
        timeout_ms = request.suspend_timeout_millis
        if not request.sys_flag & SUSPEND_FLAG:
            timeout_ms = settings.tier_read_timeout_ms
        elif not settings.long_polling:
            timeout_ms = settings.short_polling_ms
        # Messages that did not match are not examined again.
        offset = request.queue_offset
        checked = self._changes

        def look(is_last: bool) -> RawAnswer | HeldOutcome:
            nonlocal group, wanted, offset, checked
            if checked != self._changes:
                checked, offset = self._changes, request.queue_offset
                group = self._check(request, caller)
                wanted = self._wanted(request, group, caller)
                if (reset := self._reset_of(request)) is not None:  # this broker is the master now
                    return self._reset_answer(request, group, reset)
            if not self._is_readable():
                return self._unreadable(request, group)
            result, code = self._read_on(request, wanted, offset)
            if code == ResponseCode.PULL_RETRY_IMMEDIATELY:
                offset = result.next_offset
            if is_last or code not in _NOTHING_YET:
                return self._answer(request, group, result, code)
            is_unfinished = (
                code == ResponseCode.PULL_RETRY_IMMEDIATELY
                and result.status not in _COMES_SOON
                and offset < result.max_offset
            )
            return HeldOutcome.GOES_ON if is_unfinished else HeldOutcome.WAITS

        def answer_or_wait(is_last: bool) -> HeldOutcome:
            try:
                answer = look(is_last)
            except ReadForbidden as refusal:
                answer = _forbidden(refusal)
            if isinstance(answer, HeldOutcome):
                return answer
            answered.set_result(answer)
            return HeldOutcome.ANSWERED

        call = HeldCall(caller.channel, answered, answer_or_wait)
        self._held_pulls.hold([(request.topic, request.queue_id)], call, timeout_ms / 1000, caller.channel)
        return answered


def _code_of(result: ReadResult, offset: int) -> int:
    if result.status in (ReadStatus.NO_MATCHED_LOGIC_QUEUE, ReadStatus.NO_MESSAGE_IN_QUEUE):
        # java: an empty queue is an error only for a pull from an offset other than 0
        return ResponseCode.PULL_OFFSET_MOVED if offset else ResponseCode.PULL_NOT_FOUND
    return _CODES[result.status]


def _where_to_continue(answer: RawAnswer) -> int:
    """0 for an answer of a pull that examined everything, or something else than a filter."""
    if answer.code != ResponseCode.PULL_RETRY_IMMEDIATELY or answer.remark != _NO_MATCH:
        return 0
    offset = int(answer.ext["nextBeginOffset"])
    return offset if offset < int(answer.ext["maxOffset"]) else 0


def _forbidden(refusal: ReadForbidden) -> RawAnswer:
    return RawAnswer(
        code=refusal.code, remark=refusal.remark, ext={"forbiddenType": str(int(refusal.forbidden))}
    )
