"""Popping: messages of any queue for any member of a group, hidden from the others for a while.

A pop that finds nothing waits. New messages, retries, and queues that are free again after a pop in order
wake it.
"""

import asyncio
from collections.abc import Callable, Iterable
from functools import partial

from msgspec.structs import replace

from pyromq.broker.context import Context
from pyromq.broker.flow.durability import Durability
from pyromq.broker.flow.held_requests import MAX_HOLD_S, HeldCall, HeldOutcome
from pyromq.broker.flow.popping.held_pops import ANY_QUEUE, HeldPops
from pyromq.broker.flow.popping.popper import Pop, Popper
from pyromq.broker.flow.quotas import Quotas
from pyromq.broker.flow.reading import Reading, WantedMessages
from pyromq.chance import randrange
from pyromq.errors import Refused
from pyromq.protocol.catalogue import RawAnswer
from pyromq.protocol.codes import ResponseCode
from pyromq.protocol.pop_receipt import (
    ORDER_REVIVE_QUEUE,
    encode_offsets,
    encode_order_counts,
    encode_start_offsets,
)
from pyromq.protocol.requests.popping import (
    GetPollingInfo,
    GetPollingInfoAnswer,
    PeekMessage,
    PopMessage,
    RollBackPopStore,
    WaitForMessage,
    WaitForMessageAnswer,
)
from pyromq.remoting.routing import Caller, handles
from pyromq.store.results import AppendStatus

_MAX_MESSAGES = 32
"""java: the number of bits of a checkpoint"""
_LATE_MS = 500
"""A request that arrives later than this after its time-out is not served: its client has given up."""
_ALL = WantedMessages()
_LOOK_AGAIN_MS = 100
"""When a new master looks whether its log is confirmed by now."""
_CLEAN_EVERY_ROUNDS = 12


class Popping:
    def __init__(
        self,
        context: Context,
        reading: Reading,
        popper: Popper,
        held: tuple[HeldPops, HeldPops],
        durability: Durability,
        quotas: Quotas,
        random_below: Callable[[int], int] = randrange,
    ) -> None:
        """`held`: the waiting pops, and those who wait only for the notice of a message."""
        tables = context.tables
        self._live = context.live
        self._store = context.store
        self._topics = tables.topics
        self._groups = tables.groups
        self._orders = tables.pop_orders
        self._role = tables.role
        self._reading = reading
        self._popper = popper
        self._held, self._notices = held
        self._durability = durability
        self._quotas = quotas
        self._clock = context.clock
        self._random_below = random_below
        self._pops = 0
        self._loop = asyncio.get_running_loop()

    def __repr__(self) -> str:
        return f"<Popping pops={self._pops} {self._held!r}>"

    async def run(self) -> None:
        rounds = 0
        while True:
            await asyncio.sleep(self._live.now.flush_offsets_ms / 1000)
            rounds += 1
            if rounds % _CLEAN_EVERY_ROUNDS == 0:
                self._orders.clean(self._store.time.now_ms(), self._queues_of)
            self._orders.save()

    def save_now(self) -> None:
        self._orders.save()
        self._orders.persist()

    def _queues_of(self, topic: str, group: str) -> int:
        config = self._topics.get(topic)
        return config.read_queue_nums if config is not None and self._groups.get(group) is not None else 0

    # Pop

    @handles(PopMessage, may_wait=True)
    def pop(self, request: PopMessage, caller: Caller) -> "RawAnswer | asyncio.Future[RawAnswer]":
        wanted = self._check_pop(request, caller)
        limits = self._quotas.of_reads(request.topic, request.consumer_group, caller.user)
        if not limits:
            return self._pop_some(request, caller, wanted, request.max_msg_nums)
        attempt = partial(self._pop_some, request, caller, wanted)
        return self._quotas.read(limits, request.max_msg_nums, attempt, lambda: caller.channel.is_open)

    def _pop_some(
        self, request: PopMessage, caller: Caller, wanted: WantedMessages, most: int
    ) -> "RawAnswer | asyncio.Future[RawAnswer]":
        if most < request.max_msg_nums:
            request = replace(request, max_msg_nums=most)
        pop = self._take(request, wanted)
        if pop.count:
            if pop.rest:
                self._held.wake(request.topic, request.consumer_group)
            return self._answer_when_safe(pop)
        code = self._refuse_to_hold(self._held, request)
        if code is not None and not (code == ResponseCode.POLLING_TIMEOUT and pop.is_unfinished):
            return _nothing(pop, code)
        return self._hold(request, wanted, pop, caller)

    def _check_pop(self, request: PopMessage, caller: Caller) -> WantedMessages:
        """java: the checks run in Apache's order"""
        now_ms = self._clock.now_ms()
        if request.born_time and now_ms - request.born_time - request.poll_time > _LATE_MS:
            raise Refused(
                ResponseCode.POLLING_TIMEOUT,
                f"the pop came {now_ms - request.born_time} ms after it was sent, and waits for"
                f" {request.poll_time} ms only; are the clocks of broker and consumer the same?",
            )
        self._check_limit(request.max_msg_nums)
        if not self._store.settings.timer_wheel:
            raise Refused(ResponseCode.SYSTEM_ERROR, "pops need timers, and timerWheelEnable is off")
        self._check_master()
        # java: a pop names any queue by any negative number
        queue_id = max(request.queue_id, 0)
        group = self._reading.check(request.consumer_group, request.topic, queue_id, caller.address)
        if not self._groups.may_read(group.group_name, request.topic):
            raise Refused(
                ResponseCode.NO_PERMISSION,
                f"the group {group.group_name} is not allowed to read {request.topic}",
            )
        if request.exp:
            return self._reading.wanted_by_expression(request.exp, request.exp_type)
        return _ALL

    def _check_limit(self, limit: int) -> None:
        if not 0 < limit <= _MAX_MESSAGES:
            raise Refused(
                ResponseCode.INVALID_PARAMETER,
                f"{limit} messages were asked for, expected 1 to {_MAX_MESSAGES}",
            )

    def _check_master(self) -> None:
        if not self._role.now.is_master:
            raise Refused(
                ResponseCode.SERVICE_NOT_AVAILABLE,
                f"this broker is replica {self._role.now.broker_id}: messages are popped from the master",
            )

    def _take(self, request: PopMessage, wanted: WantedMessages) -> Pop:
        self._pops += 1
        pop = Pop(
            request.topic,
            request.consumer_group,
            request.max_msg_nums,
            wanted,
            request.invisible_time,
            request.init_mode,
            revive_queue_id=ORDER_REVIVE_QUEUE
            if request.order
            else self._pops % self._live.now.revive_queues,
            time_ms=self._store.time.now_ms(),
            attempt_id=request.attempt_id,
        )
        for topic, queue_id in self._queues(pop, request.queue_id):
            self._popper.take(pop, topic, queue_id)
        return pop

    def _queues(self, pop: Pop, queue_id: int) -> Iterable[tuple[str, int]]:
        """Where to look for messages: nowhere while the queues have what another master may lack."""
        if not self._durability.is_readable:
            pop.free_at_ms = pop.time_ms + _LOOK_AGAIN_MS
            return ()
        return self._popper.queues(pop, queue_id, self._random_below(100))

    def _answer_when_safe(self, pop: Pop) -> "RawAnswer | asyncio.Future[RawAnswer]":
        if self._durability.is_immediate or not pop.written:
            return _found(pop)
        answered: asyncio.Future[RawAnswer] = self._loop.create_future()
        self._settle(pop, answered)
        return answered

    def _settle(self, pop: Pop, answered: "asyncio.Future[RawAnswer]") -> None:
        """Answer when the checkpoints are safe, or their time is up: then they are stored at least."""
        if self._durability.is_immediate or not pop.written:
            answered.set_result(_found(pop))
            return

        def settle(_: AppendStatus) -> None:
            if not answered.done():
                answered.set_result(_found(pop))

        self._durability.when_all_safe(pop.written, settle)

    # Waiting

    def _refuse_to_hold(self, held: HeldPops, request: PopMessage | WaitForMessage) -> int | None:
        settings = self._live.now
        if request.poll_time <= 0:
            return ResponseCode.POLLING_TIMEOUT
        if (
            held.held_count >= settings.held_pops_total
            or held.count(request.topic, request.consumer_group, request.queue_id) > settings.held_pops
        ):
            return ResponseCode.POLLING_FULL
        return ResponseCode.POLLING_TIMEOUT if self._hold_s(request) <= 0 else None

    def _hold_s(self, request: PopMessage | WaitForMessage) -> float:
        """A consumer counts from when it sent the request; a clock that is ahead does not hold it longer."""
        waited_ms = max(self._clock.now_ms() - request.born_time, 0) if request.born_time else 0
        return min((request.poll_time - waited_ms) / 1000, MAX_HOLD_S)

    def _hold(
        self, request: PopMessage, wanted: WantedMessages, first: Pop, caller: Caller
    ) -> "asyncio.Future[RawAnswer]":
        answered: asyncio.Future[RawAnswer] = self._loop.create_future()

        def look(is_last: bool) -> HeldOutcome:
            # The topic, the group and what they allow may have changed meanwhile.
            self._check_master()
            self._reading.check(
                request.consumer_group, request.topic, max(request.queue_id, 0), caller.address
            )
            pop = self._take(request, wanted)
            if pop.count:
                self._settle(pop, answered)
                return HeldOutcome.LEFT_SOME if pop.rest else HeldOutcome.ANSWERED
            if is_last:
                answered.set_result(_nothing(pop, ResponseCode.POLLING_TIMEOUT))
                return HeldOutcome.LEFT_SOME if pop.is_unfinished else HeldOutcome.ANSWERED
            self._wake_when_free(self._held, pop)
            return HeldOutcome.GOES_ON if pop.is_unfinished else HeldOutcome.WAITS

        self._keep(self._held, request, HeldCall(caller.channel, answered, look), first)
        if first.is_unfinished:
            self._held.wake(request.topic, request.consumer_group)
        return answered

    def _keep(self, held: HeldPops, request: PopMessage | WaitForMessage, call: HeldCall, first: Pop) -> None:
        queue_id = max(request.queue_id, ANY_QUEUE)
        held.hold(request.topic, request.consumer_group, queue_id, call, self._hold_s(request), call.channel)
        self._wake_when_free(held, first)

    def _wake_when_free(self, held: HeldPops, pop: Pop) -> None:
        if pop.free_at_ms:
            held.wake_at(pop.topic, pop.group, (pop.free_at_ms - pop.time_ms) / 1000)

    # Looking only

    @handles(PeekMessage)
    def peek(self, request: PeekMessage, caller: Caller) -> RawAnswer:
        self._check_limit(request.max_msg_nums)
        self._reading.check(request.consumer_group, request.topic, max(request.queue_id, 0), caller.address)
        pop = Pop(
            request.topic,
            request.consumer_group,
            request.max_msg_nums,
            _ALL,
            time_ms=self._store.time.now_ms(),
        )
        for topic, queue_id in self._queues(pop, request.queue_id):
            self._popper.peek(pop, topic, queue_id)
        return _found(pop) if pop.count else _nothing(pop, ResponseCode.PULL_NOT_FOUND)

    @handles(WaitForMessage, may_wait=True)
    def notify(
        self, request: WaitForMessage, caller: Caller
    ) -> "WaitForMessageAnswer | asyncio.Future[WaitForMessageAnswer]":
        queue_id = max(request.queue_id, 0)
        self._reading.check(request.consumer_group, request.topic, queue_id, caller.address)

        def look() -> Pop | None:
            """None if there is a message."""
            pop = Pop(
                request.topic,
                request.consumer_group,
                1,
                _ALL,
                revive_queue_id=ORDER_REVIVE_QUEUE if request.order else 0,
                time_ms=self._store.time.now_ms(),
                attempt_id=request.attempt_id,
            )
            queues = self._queues(pop, request.queue_id)
            return None if any(self._popper.has_message(pop, *queue) for queue in queues) else pop

        first = look()
        if first is None:
            return WaitForMessageAnswer(has_msg=True)
        code = self._refuse_to_hold(self._notices, request)
        if code is not None:
            return WaitForMessageAnswer(polling_full=code == ResponseCode.POLLING_FULL)
        answered: asyncio.Future[WaitForMessageAnswer] = self._loop.create_future()

        def answer_or_wait(is_last: bool) -> HeldOutcome:
            pop = look()
            if pop is None or is_last:
                answered.set_result(WaitForMessageAnswer(has_msg=pop is None))
                return HeldOutcome.ANSWERED
            self._wake_when_free(self._notices, pop)
            return HeldOutcome.WAITS

        self._keep(self._notices, request, HeldCall(caller.channel, answered, answer_or_wait), first)
        return answered

    @handles(RollBackPopStore)
    def roll_back_store(self, request: RollBackPopStore, caller: Caller) -> None:
        """There is nothing to do: the state of pops is always in the log, where the caller wants it."""

    @handles(GetPollingInfo)
    def polling_info(self, request: GetPollingInfo, caller: Caller) -> GetPollingInfoAnswer:
        self._reading.check(request.consumer_group, request.topic, max(request.queue_id, 0), caller.address)
        waiting = self._held.count(request.topic, request.consumer_group, request.queue_id)
        return GetPollingInfoAnswer(polling_num=waiting)


def _found(pop: Pop) -> RawAnswer:
    answer = _nothing(pop, ResponseCode.SUCCESS)
    answer.body = b"".join(pop.views)
    answer.remark = "FOUND"
    answer.ext["startOffsetInfo"] = encode_start_offsets(pop.starts)
    answer.ext["msgOffsetInfo"] = encode_offsets(pop.offsets)
    if pop.order_counts:
        answer.ext["orderCountInfo"] = encode_order_counts(pop.order_counts)
    return answer


def _nothing(pop: Pop, code: int) -> RawAnswer:
    ext = {
        "popTime": str(pop.time_ms),
        "invisibleTime": str(pop.invisible_ms),
        "reviveQid": str(pop.revive_queue_id),
        "restNum": str(pop.rest),
    }
    return RawAnswer(b"", ext, code, "NO_MESSAGE_IN_QUEUE")
