"""Receives: a pop for a client, long polls included, and what happens to messages that it must not get."""

import asyncio
from math import inf
from typing import Any

from pyromq.errors import PyroError
from pyromq.filtering.tags import ALL, TagFilter, parse_tags
from pyromq.protocol.codes import ResponseCode
from pyromq.protocol.lite import lite_group
from pyromq.protocol.record import StoredMessage
from pyromq.protocol.requests.groups import SubscriptionGroupConfig
from pyromq.protocol.requests.lite import PopLiteMessage
from pyromq.protocol.requests.popping import PopMessage, PopMessageAnswer
from pyromq.proxy.acknowledging import ProxyAcknowledging
from pyromq.proxy.checks import check_group, check_invisible_time, check_topic, milliseconds
from pyromq.proxy.client_settings import Settings
from pyromq.proxy.clients import (
    LITE_PUSH_CONSUMER,
    LITE_SIMPLE_CONSUMER,
    PUSH_CONSUMER,
    SIMPLE_CONSUMER,
    FrontClient,
    client_id_of,
    has_lived,
)
from pyromq.proxy.codes import OK, Code, Rejected, Status, code_of_broker, status_of
from pyromq.proxy.context import FrontContext
from pyromq.proxy.grpc.call import Call
from pyromq.proxy.grpc.framing import frame_message
from pyromq.proxy.incoming import Framed, framed, received
from pyromq.proxy.membership import ProxyMembership
from pyromq.proxy.messages import enum_values, message
from pyromq.proxy.pops import AnyPop, AnyPopAnswer, Pops
from pyromq.proxy.receipts import Handle, decode_handle, lite_popped, popped
from pyromq.proxy.renewal import Renewal

_Answer = message("ReceiveMessageResponse")
_SQL = enum_values("FilterType")["SQL"]
_TAGS_OF = "TAGS"
_FROM_END = 1
"""A new group begins at the end of a queue, unless the broker decides otherwise."""
_ANY_QUEUE = -1
_MAX_LITE_BATCH = 32
"""java: brokers refuse to pop more at once"""
_ON_THE_WAY_MS = 100
"""An answer that leaves so long before the deadline arrives in time."""
_VERSION = b"x-mq-client-version"

_Found = list[tuple[StoredMessage, Handle]]
_BEGIN = frame_message(_Answer(status=OK).SerializeToString())


class Receiving:
    def __init__(
        self,
        context: FrontContext,
        membership: ProxyMembership,
        acknowledging: ProxyAcknowledging,
        renewal: Renewal,
    ) -> None:
        clock, settings = context.clock, context.settings
        self._cluster = context.cluster
        self._topics = context.topics
        self._clients = context.clients
        self._membership = membership
        self._acknowledging = acknowledging
        self._renewal = renewal
        self._clock = clock
        self._settings = settings
        self._turn = 0
        self._pops = Pops(membership, self._give_back, clock, settings.send_timeout_ms / 1000)

    async def receive(self, request: Any, call: Call) -> None:
        """First a status, then messages, then the time of their delivery."""
        try:
            topic = check_topic(request.message_queue.topic.name)
            group = check_group(request.group.name)
            try:
                client = await self._clients.known(call)
            except Rejected as problem:
                moved = has_lived(client_id_of(call), self._clock.now_ms())
                if problem.code is not Code.UNRECOGNIZED_CLIENT_TYPE or not moved:
                    raise
                client = self._adopt(request, call, await self._topics.group(group))
            status, found = await self._pop(request, client, topic, group, call)
        except PyroError as problem:
            status, found = status_of(problem), []
        renews = request.auto_renew and self._settings.renews
        if isinstance(found, Framed):
            await self._deliver_framed(found, client, topic, group, renews, call)
            return
        await call.send(_Answer(status=status))
        if found:
            await self._deliver(found, client, topic, group, renews, call)
        await call.send(self._ended())

    def _ended(self) -> Any:
        ended = _Answer()
        ended.delivery_timestamp.FromMilliseconds(self._clock.now_ms())
        return ended

    def _adopt(self, request: Any, call: Call, group: SubscriptionGroupConfig) -> FrontClient:
        """A client that sent its settings to a front that is gone.

        Python's client opens another stream only minutes later; the request says all that is needed.
        """
        kinds = (SIMPLE_CONSUMER, PUSH_CONSUMER)
        if lite_group(group.attributes) is not None:
            kinds = (LITE_SIMPLE_CONSUMER, LITE_PUSH_CONSUMER)
        settings = Settings(client_type=kinds[request.auto_renew])
        settings.subscription.group.CopyFrom(request.group)
        entry = settings.subscription.subscriptions.add(expression=request.filter_expression)
        entry.topic.CopyFrom(request.message_queue.topic)
        joining = FrontClient(call, settings)
        self._membership.admit(joining, call)
        client = self._clients.adopt(joining)
        self._membership.join(client)
        return client

    async def _deliver(
        self, found: _Found, client: FrontClient, topic: str, group: str, renews: bool, call: Call
    ) -> None:
        delivered = 0
        try:
            for stored, handle in found:
                shown = received(stored, topic)
                shown.system_properties.receipt_handle = str(handle)
                if renews:
                    self._renewal.hold(client, group, topic, handle, stored.reconsume_times + 1)
                delivered += 1
                await call.send(_Answer(message=shown))
        finally:
            if not call.is_open:
                # The client is gone: what it did not get, and what it got too late to handle, goes to others.
                for _, handle in found[max(0, delivered - 1) :]:
                    self._renewal.give_back(topic, group, handle)

    async def _deliver_framed(
        self, found: Framed, client: FrontClient, topic: str, group: str, renews: bool, call: Call
    ) -> None:
        """The whole answer in one write."""
        try:
            if renews:
                for text, attempt in found.handles:
                    self._renewal.hold(client, group, topic, decode_handle(text), attempt)
            ended = frame_message(self._ended().SerializeToString())
            await call.send_framed(_BEGIN + found.data + ended)
        finally:
            if not call.is_open:
                for text, _ in found.handles:
                    self._renewal.give_back(topic, group, decode_handle(text))

    async def _pop(
        self, request: Any, client: FrontClient, topic: str, group: str, call: Call
    ) -> tuple[Any, _Found | Framed]:
        # Before anything is looked up: an error would say whether a topic of others exists.
        self._cluster.admit_consumer(topic, group, call)
        poll_ms = self._polling_ms(request, client, call)
        if request.auto_renew:
            invisible_ms = self._settings.default_invisible_ms
        else:
            asked_ms = milliseconds(request.invisible_duration)
            invisible_ms = check_invisible_time(asked_ms, self._settings.min_invisible_ms, self._settings)
        expression = request.filter_expression
        is_sql = expression.type == _SQL
        if is_sql and not expression.expression.strip():
            raise Rejected(Code.ILLEGAL_FILTER_EXPRESSION, "the SQL expression is empty")
        wanted = None if is_sql else parse_tags(expression.expression)
        if wanted is not None and wanted.wants_all and expression.expression not in ("", ALL):
            raise Rejected(
                Code.ILLEGAL_FILTER_EXPRESSION,
                f"the expression {expression.expression!r} has no tag; {ALL} means all messages",
            )
        settings = await self._topics.group(group)
        broker_name = await self._broker(topic, request.message_queue.broker.name)
        most = min(max(request.batch_size, 1), self._settings.max_receive_batch)
        if client.is_lite:
            if is_sql:
                raise Rejected(Code.ILLEGAL_FILTER_EXPRESSION, "lite topics are not filtered by SQL")
            lite = PopLiteMessage(
                client_id=client.client_id,
                consumer_group=group,
                topic=topic,
                max_msg_num=min(most, _MAX_LITE_BATCH),
                invisible_time=invisible_ms,
                poll_time=poll_ms,
                born_time=self._clock.now_ms(),
                attempt_id=request.attempt_id or None,
                target_broker_name=broker_name,
            )
            return await self._found(lite, client, broker_name, wanted, settings)
        pop = PopMessage(
            consumer_group=group,
            topic=topic,
            queue_id=_ANY_QUEUE,
            max_msg_nums=most,
            invisible_time=invisible_ms,
            poll_time=poll_ms,
            born_time=self._clock.now_ms(),
            init_mode=_FROM_END,
            exp_type="SQL92" if is_sql else "TAG",
            exp=expression.expression or "*",
            order=settings.consume_message_orderly,
            attempt_id=request.attempt_id or None,
            target_broker_name=broker_name,
        )
        return await self._found(pop, client, broker_name, wanted, settings)

    async def _found(
        self,
        pop: AnyPop,
        client: FrontClient,
        broker_name: str,
        wanted: TagFilter | None,
        settings: SubscriptionGroupConfig,
    ) -> tuple[Any, _Found | Framed]:
        topic, group = pop.topic, pop.consumer_group
        answer = await self._pops.call(client, broker_name, pop)
        if answer is None or answer.code != ResponseCode.SUCCESS:
            if answer is not None and code_of_broker(answer.code) is Code.TOO_MANY_REQUESTS:
                code = Code.TOO_MANY_REQUESTS
                return Status(code=code, message="too many receives of this group wait already"), []
            return Status(code=Code.MESSAGE_NOT_FOUND, message="no new message"), []
        if isinstance(answer, PopMessageAnswer):
            plain = framed(answer, broker_name, topic, wanted, settings.retry_max_times)
            if plain is not None:
                return OK, plain
        found: _Found = []
        for stored, handle in _popped(answer, broker_name):
            if wanted is not None and not wanted.matches_tag(stored.get(_TAGS_OF)):
                # Brokers compare hashes of tags, which may be equal for different ones.
                await self._acknowledging.drop(topic, group, handle)
            elif stored.reconsume_times > settings.retry_max_times:
                await self._acknowledging.bury(topic, group, handle, stored)
            else:
                found.append((stored, handle))
        if not found:
            return Status(code=Code.MESSAGE_NOT_FOUND, message="no new message"), []
        return OK, found

    def _give_back(self, answer: AnyPopAnswer, broker_name: str, pop: AnyPop) -> None:
        for _, handle in _popped(answer, broker_name):
            self._renewal.give_back(pop.topic, pop.consumer_group, handle)

    async def _broker(self, topic: str, asked: str) -> str:
        """The broker that the client named, if it has the topic; else one that has it."""
        route = await self._cluster.route(topic)
        names = list(dict.fromkeys(route.broker_of(queue) for queue in route.subscribe_queues))
        if not names:
            raise Rejected(Code.FORBIDDEN, f"no queue of the topic {topic} can be read")
        if asked in names:
            return asked
        self._turn += 1
        return names[self._turn % len(names)]

    def _polling_ms(self, request: Any, client: FrontClient, call: Call) -> int:
        settings = self._settings
        left_s = call.deadline - asyncio.get_running_loop().time()
        left_ms = settings.max_polling_ms + _ON_THE_WAY_MS if left_s == inf else int(left_s * 1000)
        if request.HasField("long_polling_timeout"):
            wanted_ms = milliseconds(request.long_polling_timeout)
        else:
            wanted_ms = left_ms - milliseconds(client.settings.request_timeout) // 2
        wanted_ms = min(max(wanted_ms, settings.min_polling_ms), settings.max_polling_ms)
        if wanted_ms <= left_ms - _ON_THE_WAY_MS:
            return wanted_ms
        if left_ms >= settings.min_polling_ms:
            return max(left_ms - _ON_THE_WAY_MS, settings.min_polling_ms)
        # java: older clients know no code for this
        is_old = call.metadata.get(_VERSION) < "5.0.3"
        raise Rejected(
            Code.BAD_REQUEST if is_old else Code.ILLEGAL_POLLING_TIME,
            f"the deadline leaves {left_ms} ms to wait; expected at least {settings.min_polling_ms}",
        )

    async def close(self) -> None:
        await self._pops.close()


def _popped(answer: AnyPopAnswer, broker_name: str) -> _Found:
    if isinstance(answer, PopMessageAnswer):
        return popped(answer, broker_name)
    return lite_popped(answer, broker_name)
