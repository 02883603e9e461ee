"""Requests of servers to a client, passed on to the producer or consumer they are for."""

import logging
import sys
import threading
import traceback
from collections.abc import Mapping, Sequence

from pyromq.client.members import ConsumerMember, ProducerMember
from pyromq.client.namespaces import unwrap
from pyromq.client.requesting import PendingReplies
from pyromq.client.values import ReceivedMessage
from pyromq.clock import Clock
from pyromq.cluster.route_table import KnownRoutes
from pyromq.errors import PyroError, Refused, RemoteProtocolError
from pyromq.protocol import json_body
from pyromq.protocol import properties as props
from pyromq.protocol.body import MessageQueue
from pyromq.protocol.catalogue import BodyAnswer
from pyromq.protocol.codes import ResponseCode
from pyromq.protocol.message import open_message
from pyromq.protocol.properties import NAME_SEPARATOR, PAIR_SEPARATOR
from pyromq.protocol.record import NOWHERE, Host, StoredMessage, decode_record
from pyromq.protocol.requests.inspection import (
    ConsumeMessageDirectly,
    ConsumeMessageDirectlyResult,
    ConsumerRunningInfo,
    GetConsumerRunningInfo,
)
from pyromq.protocol.requests.lite import NotifyUnsubscribeLite
from pyromq.protocol.requests.offsets import ResetOffsetBody, ResetOffsetBodyForC
from pyromq.protocol.requests.pushes import (
    CheckTransactionState,
    GetConsumerStatusBody,
    GetConsumerStatusFromClient,
    NotifyConsumerIdsChanged,
    NotifyRoutesChanged,
    PushReply,
    ResetConsumerOffset,
)
from pyromq.remoting.routing import Caller, handles

_log = logging.getLogger(__name__)


class Callbacks:
    def __init__(
        self,
        producers: Mapping[str, Sequence[ProducerMember]],
        consumers: Mapping[str, ConsumerMember],
        routes: KnownRoutes,
        replies: PendingReplies,
        namespace: str | None,
        clock: Clock,
    ) -> None:
        self._producers = producers
        self._consumers = consumers
        self._routes = routes
        self._replies = replies
        self._namespace = namespace
        self._clock = clock

    @handles(NotifyRoutesChanged)
    def routes_changed(self, request: NotifyRoutesChanged, caller: Caller) -> None:
        self._routes.changed(request.body)

    @handles(NotifyConsumerIdsChanged)
    def members_changed(self, request: NotifyConsumerIdsChanged, caller: Caller) -> None:
        member = self._consumers.get(request.consumer_group)
        if member is not None:
            member.members_changed()

    @handles(NotifyUnsubscribeLite)
    def lite_topic_lost(self, request: NotifyUnsubscribeLite, caller: Caller) -> None:
        # Only members of lite groups have it.
        lost = getattr(self._consumers.get(request.consumer_group), "lite_topic_lost", None)
        if lost is not None:
            lost(request.lite_topic)

    @handles(CheckTransactionState)
    def check_transaction(self, request: CheckTransactionState, caller: Caller) -> None:
        message = self._received(request.body, request.target_broker_name or "")
        group = message.get(props.PRODUCER_GROUP) or ""
        members = self._producers.get(group, ())
        if not any(member.check_transaction(request, message, caller.address) for member in members):
            _log.warning("transaction check for a group without a transaction producer group=%s", group)

    @handles(PushReply)
    def take_reply(self, request: PushReply, caller: Caller) -> None:
        text = request.properties or ""
        if text and not text.endswith(PAIR_SEPARATOR):
            text += PAIR_SEPARATOR
        text += f"{props.ARRIVE_TIME}{NAME_SEPARATOR}{self._clock.now_ms()}{PAIR_SEPARATOR}"
        stored = StoredMessage(
            request.topic,
            request.body,
            text.encode(),
            queue_id=request.queue_id,
            flag=request.flag,
            sys_flag=request.sys_flag,
            born_timestamp=request.born_timestamp,
            born_host=_host(request.born_host),
            store_timestamp=request.store_timestamp,
            store_host=_host(request.store_host),
            reconsume_times=request.reconsume_times or 0,
        )
        queue = MessageQueue(request.topic, request.target_broker_name or "", request.queue_id)
        self._replies.take(ReceivedMessage(open_message(stored)[0], queue))

    @handles(ResetConsumerOffset)
    def reset_offsets(self, request: ResetConsumerOffset, caller: Caller) -> None:
        member = self._consumers.get(request.group)
        if member is None:
            return
        try:
            offsets = _offsets(request.body)
        except PyroError as problem:
            _log.warning("offset reset cannot be read group=%s: %s", request.group, problem)
            return
        member.offsets_reset(request.topic, offsets)

    @handles(GetConsumerStatusFromClient)
    def consumer_status(
        self, request: GetConsumerStatusFromClient, caller: Caller
    ) -> BodyAnswer[GetConsumerStatusBody]:
        member = self._consumer(request.group)
        return BodyAnswer(body=GetConsumerStatusBody(message_queue_table=member.status(request.topic)))

    @handles(GetConsumerRunningInfo)
    def running_info(
        self, request: GetConsumerRunningInfo, caller: Caller
    ) -> BodyAnswer[ConsumerRunningInfo]:
        info = self._consumer(request.consumer_group).running_info()
        if request.jstack_enable:
            info.jstack = _stacks()
        return BodyAnswer(body=info)

    @handles(ConsumeMessageDirectly)
    async def consume_directly(
        self, request: ConsumeMessageDirectly, caller: Caller
    ) -> BodyAnswer[ConsumeMessageDirectlyResult]:
        member = self._consumer(request.consumer_group)
        message = self._received(request.body, request.broker_name or "")
        return BodyAnswer(body=await member.consume_directly(message))

    def _consumer(self, group: str) -> ConsumerMember:
        member = self._consumers.get(group)
        if member is None:
            raise Refused(ResponseCode.SYSTEM_ERROR, f"this client has no consumer of group {group}")
        return member

    def _received(self, record: bytes, broker_name: str) -> ReceivedMessage:
        try:
            stored = open_message(decode_record(record))[0]
        except RemoteProtocolError as problem:
            raise Refused(ResponseCode.SYSTEM_ERROR, f"the message cannot be read: {problem}") from None
        queue = MessageQueue(stored.topic, broker_name, stored.queue_id)
        return ReceivedMessage(stored, queue, unwrap(stored.topic, self._namespace))


def _offsets(body: bytes) -> dict[MessageQueue, int]:
    try:
        return json_body.decode(body, ResetOffsetBody).offset_table
    except RemoteProtocolError:
        # java: for a reset by a C++ tool the broker sends a list
        listed = json_body.decode(body, ResetOffsetBodyForC).offset_table
    return {MessageQueue(each.topic, each.broker_name, each.queue_id): each.offset for each in listed}


def _host(text: str) -> Host:
    """`ip:port`, perhaps behind a slash, as Java writes addresses."""
    ip, _, port = text.rpartition("/")[2].rpartition(":")
    try:
        return Host.of(ip.strip("[]"), int(port))
    except (PyroError, ValueError):
        return NOWHERE


def _stacks() -> str:
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    return "\n".join(
        f"{names.get(ident, ident)}\n" + "".join(traceback.format_stack(frame))
        for ident, frame in sys._current_frames().items()
    )
