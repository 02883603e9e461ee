"""Replies: the broker passes the reply to a request on to the producer that waits for it."""

from functools import partial

from pyromq.broker.flow.draft import Draft
from pyromq.broker.flow.inbound import Inbound
from pyromq.broker.flow.message_properties import closed, pair
from pyromq.broker.flow.writable_queues import NotWrittenYet, SendRequest, WritableQueue
from pyromq.broker.settings import BrokerSettings
from pyromq.broker.tables.all_tables import Tables
from pyromq.clock import Clock
from pyromq.config.live import LiveSettings
from pyromq.errors import Refused, RemoteProtocolError, TransportError
from pyromq.protocol import properties as props
from pyromq.protocol.catalogue import RawAnswer
from pyromq.protocol.codes import ResponseCode
from pyromq.protocol.properties import get_property
from pyromq.protocol.record import SysFlag
from pyromq.protocol.requests.pushes import PushReply
from pyromq.protocol.requests.sending import SendReply, SendReplyV2
from pyromq.remoting.routing import Caller, handles

_PUSH_TIMEOUT_S = 10.0


class Replies:
    def __init__(
        self,
        live: LiveSettings[BrokerSettings],
        inbound: Inbound,
        tables: Tables,
        clock: Clock,
        store_address: str,
    ) -> None:
        """`store_address`: the address that clients use for this broker."""
        self._live = live
        self._queues = inbound.writable_queues
        self._appending = inbound.appending
        self._broker_properties = inbound.broker_properties
        self._born_hosts = inbound.born_hosts
        self._producers = tables.producers
        self._statistics = tables.statistics
        self._clock = clock
        self._store_address = store_address

    @handles(SendReply)
    async def send_reply(self, request: SendReply, caller: Caller) -> RawAnswer:
        return await self._reply(request, caller)

    @handles(SendReplyV2)
    async def send_reply_v2(self, request: SendReplyV2, caller: Caller) -> RawAnswer:
        return await self._reply(request, caller)

    async def _reply(self, request: SendRequest, caller: Caller) -> RawAnswer:
        queue = self._queues.find(request.topic, request.queue_id)
        if queue is None:
            queue = await self._open(request, caller)
        properties = closed(request.properties) + self._broker_properties.reply_suffix
        problem = await self._push(request, properties, caller)
        answer = RawAnswer(ext=dict(self._broker_properties.answer_fields))
        if problem is None:
            # java: producers read these fields even if nothing is stored
            answer.ext |= {"msgId": "0", "queueId": str(queue.queue_id), "queueOffset": "0"}
        else:
            answer.code, answer.remark = ResponseCode.SYSTEM_ERROR, problem
        # java: the reply is stored even if it could not be passed on
        if self._live.now.store_replies and request.body:
            self._store(request, queue, properties, caller, answer)
        return answer

    async def _open(self, request: SendRequest, caller: Caller) -> WritableQueue:
        try:
            return self._queues.open(request, caller.address)
        except NotWrittenYet as missing:
            again = partial(self._queues.open, request, caller.address)
            return await self._queues.when_written(missing.topic, again)

    async def _push(self, request: SendRequest, properties: str, caller: Caller) -> str | None:
        """Pass the reply on; returns the problem, if any."""
        client_id = get_property(properties, props.REPLY_TO_CLIENT)
        if client_id is None:
            return (
                f"the reply has no property {props.REPLY_TO_CLIENT}, which names the client that waits for it"
            )
        producer = self._producers.find(client_id)
        if producer is None:
            return f"the client {client_id} that waits for the reply is not connected to this broker"
        now_ms = self._clock.now_ms()
        push = PushReply(
            producer_group=request.producer_group,
            topic=request.topic,
            default_topic=request.default_topic,
            default_topic_queue_nums=request.default_topic_queue_nums,
            queue_id=request.queue_id,
            sys_flag=request.sys_flag,
            born_timestamp=request.born_timestamp,
            flag=request.flag,
            properties=properties + pair(props.PUSH_REPLY_TIME, str(now_ms)),
            reconsume_times=request.reconsume_times,
            unit_mode=bool(request.unit_mode),
            born_host=caller.address,
            store_host=self._store_address,
            store_timestamp=now_ms,
            body=request.body,
        )
        try:
            await producer.channel.call(push, _PUSH_TIMEOUT_S)
        except (Refused, TransportError, RemoteProtocolError) as problem:
            return f"the reply could not be sent to {client_id}: {problem}"
        return None

    def _store(
        self, request: SendRequest, queue: WritableQueue, properties: str, caller: Caller, answer: RawAnswer
    ) -> None:
        draft = Draft(
            queue.topic,
            queue.queue_id,
            request.body,
            properties.encode(),
            request.born_timestamp,
            self._born_hosts.of(caller.channel),
            request.flag,
            request.sys_flag & ~SysFlag.TRANSACTION_MASK,
            request.reconsume_times or 0,
        )
        result = self._appending.append(draft)
        if not result.is_ok:
            # java: a copy that is not stored is not an error for the client
            self._statistics.put_failures += 1
            return
        self._statistics.put(draft.topic, draft.queue_id, 1, result.size_bytes)
        answer.ext |= {
            "msgId": self._appending.message_ids(result),
            "queueId": str(queue.queue_id),
            "queueOffset": str(result.queue_offset),
        }
