"""Stores the messages of producers, and takes back those that are not due yet."""

import asyncio
from typing import Any

from pyromq.clock import Clock
from pyromq.errors import NoRoute, PyroError, Refused, RemoteProtocolError
from pyromq.protocol.codes import ResponseCode
from pyromq.protocol.message_id import decode_offset_message_id, decode_recall_handle
from pyromq.protocol.requests.sending import RecallMessage
from pyromq.proxy.checks import check_topic
from pyromq.proxy.clients import Clients, client_id_of
from pyromq.proxy.cluster import Cluster
from pyromq.proxy.codes import OK, Code, Rejected, Status, code_of_broker, status_of
from pyromq.proxy.grpc.call import Call
from pyromq.proxy.messages import message
from pyromq.proxy.outgoing import Outgoing, prepare
from pyromq.proxy.queue_choice import QueueChoice
from pyromq.proxy.settings import ProxySettings
from pyromq.proxy.topics import DELAY, TRANSACTION, Topics
from pyromq.proxy.transactions import Half, Transactions

_SendMessageResponse = message("SendMessageResponse")
_SendResultEntry = message("SendResultEntry")
_RecallMessageResponse = message("RecallMessageResponse")


class Sending:
    def __init__(
        self,
        cluster: Cluster,
        topics: Topics,
        clients: Clients,
        transactions: Transactions,
        clock: Clock,
        settings: ProxySettings,
    ) -> None:
        self._cluster = cluster
        self._topics = topics
        self._clients = clients
        self._transactions = transactions
        self._clock = clock
        self._settings = settings
        self._queues = QueueChoice()

    async def send(self, request: Any, call: Call) -> Any:
        """Every message has an entry of its own in the answer; a request that cannot be sent has none."""
        self._clients.seen(client_id_of(call))
        messages = request.messages
        if not messages or len({each.topic.name for each in messages}) > 1:
            raise Rejected(Code.MESSAGE_CORRUPTED, f"{len(messages)} messages; expected some of one topic")
        now_ms, host = self._clock.now_ms(), call.peer_address.rpartition(":")[0].strip("[]")
        prepared = [prepare(each, self._settings, now_ms, host) for each in messages]
        if self._settings.checks_message_types:
            for each in prepared:
                await self._topics.check_type(each.request.topic, each.message_type)
        if len(prepared) == 1:
            entries = [await self._send(prepared[0], call)]
        else:
            entries = await asyncio.gather(*(self._send_one_of_many(each, call) for each in prepared))
        codes = {entry.status.code for entry in entries}
        status = entries[0].status if len(codes) == 1 else Status(code=Code.MULTIPLE_RESULTS, message="")
        return _SendMessageResponse(status=status, entries=entries)

    async def _send_one_of_many(self, outgoing: Outgoing, call: Call) -> Any:
        try:
            return await self._send(outgoing, call)
        except PyroError as problem:
            return _SendResultEntry(status=status_of(problem), message_id=outgoing.message_id)

    async def _send(self, outgoing: Outgoing, call: Call) -> Any:
        request = outgoing.request
        route = await self._cluster.route(request.topic)
        queue = self._queues.choose(route, outgoing.message_group)
        request.queue_id = queue.queue_id
        broker_name = route.broker_of(queue)
        try:
            answer = await self._cluster.call(broker_name, request, call)
        except Refused as refusal:
            if refusal.code == ResponseCode.TOPIC_NOT_EXIST:
                raise NoRoute(request.topic, self._cluster.name_servers) from None
            raise
        status = OK
        if answer.code != ResponseCode.SUCCESS:
            status = Status(code=code_of_broker(answer.code), message=ResponseCode(answer.code).name)
        entry = _SendResultEntry(
            status=status,
            message_id=outgoing.message_id,
            transaction_id=answer.transaction_id or outgoing.message_id,
            offset=answer.queue_offset,
            recall_handle=answer.recall_handle or "",
        )
        if outgoing.message_type == TRANSACTION:
            log_offset = decode_offset_message_id(answer.msg_id).log_offset
            address = self._cluster.address(broker_name)
            half = Half(address, broker_name, answer.queue_offset, log_offset)
            self._transactions.remember(request.topic, entry.transaction_id, half)
        return entry

    async def recall(self, request: Any, call: Call) -> Any:
        topic = check_topic(request.topic.name)
        await self._topics.check_type(topic, DELAY)
        try:
            handle = decode_recall_handle(request.recall_handle)
        except RemoteProtocolError as problem:
            raise Rejected(Code.INTERNAL_SERVER_ERROR, str(problem)) from None
        if handle.topic != topic:
            raise Rejected(
                Code.ILLEGAL_TOPIC, f"the recall handle is of the topic {handle.topic}, expected {topic}"
            )
        await self._cluster.route(topic)
        recall = RecallMessage(
            producer_group=topic,
            topic=topic,
            recall_handle=request.recall_handle,
            target_broker_name=handle.broker_name,
        )
        try:
            answer = await self._cluster.call(handle.broker_name, recall, call)
        except Refused as refusal:
            if refusal.code == ResponseCode.NO_PERMISSION:
                raise Rejected(
                    Code.INTERNAL_SERVER_ERROR,
                    f"{refusal.remark}; does the broker {handle.broker_name} have recallMessageEnable=true?",
                ) from None
            raise
        return _RecallMessageResponse(status=OK, message_id=answer.msg_id)
