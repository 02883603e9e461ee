"""Pops of lite topics: messages of those that a client subscribes to, in order; a pop without any waits."""

import asyncio
from functools import partial

from msgspec.structs import replace

from pyromq.broker.context import Context
from pyromq.broker.flow.held_requests import MAX_HOLD_S, HeldCall, HeldOutcome
from pyromq.broker.flow.lite.delivery import LiteDelivery, LitePop
from pyromq.broker.flow.lite.subscriptions import LiteClient
from pyromq.broker.flow.popping.held_pops import ANY_QUEUE, HeldPops
from pyromq.broker.flow.quotas import Quotas
from pyromq.broker.flow.reading import Reading
from pyromq.clock import elapsed_ms
from pyromq.errors import Refused
from pyromq.protocol.catalogue import RawAnswer
from pyromq.protocol.codes import ResponseCode
from pyromq.protocol.lite import is_lite, lite_group
from pyromq.protocol.pop_receipt import ORDER_REVIVE_QUEUE
from pyromq.protocol.requests.lite import PopLiteMessage
from pyromq.remoting.routing import Caller, handles

_MAX_MESSAGES = 32
_LATE_MS = 500
"""A request that arrives later than this after its time-out is not served: its client has given up."""


class LitePopping:
    def __init__(
        self, context: Context, reading: Reading, delivery: LiteDelivery, held: HeldPops, quotas: Quotas
    ) -> None:
        self._live = context.live
        self._store = context.store
        self._topics = context.tables.topics
        self._groups = context.tables.groups
        self._role = context.tables.role
        self._clock = context.clock
        self._reading = reading
        self._delivery = delivery
        self._held = held
        self._quotas = quotas
        self._loop = asyncio.get_running_loop()

    def __repr__(self) -> str:
        return f"<LitePopping {self._delivery!r} {self._held!r}>"

    @handles(PopLiteMessage, may_wait=True)
    def pop(self, request: PopLiteMessage, caller: Caller) -> "RawAnswer | asyncio.Future[RawAnswer]":
        """java: the checks run in Apache's order"""
        now_ms = self._clock.now_ms()
        if request.born_time and now_ms - request.born_time - request.poll_time > _LATE_MS:
            raise Refused(
                ResponseCode.POLLING_TIMEOUT,
                f"the pop came {now_ms - request.born_time} ms after it was sent, and waits for"
                f" {request.poll_time} ms only; are the clocks of broker and consumer the same?",
            )
        if not 0 < request.max_msg_num <= _MAX_MESSAGES:
            raise Refused(
                ResponseCode.INVALID_PARAMETER,
                f"{request.max_msg_num} messages were asked for, expected 1 to {_MAX_MESSAGES}",
            )
        self._check(request, caller)
        limits = self._quotas.of_reads(request.topic, request.consumer_group, caller.user)
        if not limits:
            return self._pop_some(request, caller, request.max_msg_num)
        attempt = partial(self._pop_some, request, caller)
        return self._quotas.read(limits, request.max_msg_num, attempt, lambda: caller.channel.is_open)

    def _check(self, request: PopLiteMessage, caller: Caller) -> LiteClient:
        """The client; raises Refused. Its group, and what that may read, may change while it waits."""
        if not self._role.now.is_master:
            raise Refused(
                ResponseCode.SERVICE_NOT_AVAILABLE,
                f"this broker is replica {self._role.now.broker_id}: messages are popped from the master",
            )
        name, topic = request.consumer_group, request.topic
        group = self._reading.check(name, topic, 0, caller.address)
        config, lite = self._topics.get(topic), lite_group(group.attributes)
        if config is None or not is_lite(config.attributes):
            raise Refused(ResponseCode.INVALID_PARAMETER, f"the topic {topic} is not of type LITE")
        if lite is None or lite.topic != topic:
            raise Refused(
                ResponseCode.INVALID_PARAMETER,
                f"the group {name} is bound to {lite.topic if lite else 'no topic'}, not to {topic}: see"
                " lite.bind.topic",
            )
        if not self._groups.may_read(name, topic):
            raise Refused(ResponseCode.NO_PERMISSION, f"the group {name} is not allowed to read {topic}")
        subscriptions, client_id = self._delivery.subscriptions, request.client_id
        known = subscriptions.get(name, client_id)
        if known is None:
            # It reads nothing yet: it is kept when it subscribes.
            return LiteClient(client_id, name, topic, caller.channel, client_id)
        client = subscriptions.join(name, client_id, topic, caller.channel, reads_all=lite.is_wildcard)
        client.seen_ms = elapsed_ms(self._clock)
        return client

    def _pop_some(
        self, request: PopLiteMessage, caller: Caller, most: int
    ) -> "RawAnswer | asyncio.Future[RawAnswer]":
        if most < request.max_msg_num:
            request = replace(request, max_msg_num=most)
        client = self._check(request, caller)
        pop = self._take(request, client)
        if pop.views:
            return _found(pop)
        hold_s = self._hold_s(request)
        settings = self._live.now
        if hold_s <= 0:
            return _nothing(pop, ResponseCode.POLLING_TIMEOUT)
        if (
            self._held.held_count >= settings.held_pops_total
            or self._held.count(client.line, client.group, ANY_QUEUE) > settings.held_pops
        ):
            return _nothing(pop, ResponseCode.POLLING_FULL)
        answered: asyncio.Future[RawAnswer] = self._loop.create_future()
        look = partial(self._look, request, caller, answered)
        call = HeldCall(caller.channel, answered, look)
        self._held.hold(client.line, client.group, ANY_QUEUE, call, hold_s, caller.channel)
        return answered

    def _look(
        self, request: PopLiteMessage, caller: Caller, answered: "asyncio.Future[RawAnswer]", is_last: bool
    ) -> HeldOutcome:
        client = self._check(request, caller)
        pop = self._take(request, client)
        if pop.views:
            answered.set_result(_found(pop))
        elif is_last:
            answered.set_result(_nothing(pop, ResponseCode.POLLING_TIMEOUT))
        else:
            return HeldOutcome.WAITS
        return HeldOutcome.LEFT_SOME if client.ready else HeldOutcome.ANSWERED

    def _take(self, request: PopLiteMessage, client: LiteClient) -> LitePop:
        now_ms = self._store.time.now_ms()
        pop = LitePop(request.max_msg_num, request.invisible_time, now_ms, request.attempt_id)
        self._delivery.take(client, pop)
        return pop

    def _hold_s(self, request: PopLiteMessage) -> float:
        """A consumer counts from when it sent the request; a clock that is ahead does not hold it longer."""
        waited_ms = max(self._clock.now_ms() - request.born_time, 0) if request.born_time else 0
        return min((request.poll_time - waited_ms) / 1000, MAX_HOLD_S)


def _found(pop: LitePop) -> RawAnswer:
    answer = _nothing(pop, ResponseCode.SUCCESS)
    answer.body = b"".join(pop.views)
    answer.remark = "FOUND"
    answer.ext["orderCountInfo"] = ";".join(map(str, pop.counts))
    return answer


def _nothing(pop: LitePop, code: int) -> RawAnswer:
    ext = {
        "popTime": str(pop.time_ms),
        "invisibleTime": str(pop.invisible_ms),
        "reviveQid": str(ORDER_REVIVE_QUEUE),
    }
    return RawAnswer(b"", ext, code, "NO_MESSAGE_IN_QUEUE")
