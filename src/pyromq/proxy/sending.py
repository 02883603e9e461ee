"""Stores the messages of producers, and takes back those that are not due yet."""

import asyncio
from functools import partial
from typing import Any

from pyromq.cluster.sending.request import SendForms, SendTerms
from pyromq.errors import NoRoute, PyroError, Refused, RemoteProtocolError
from pyromq.protocol.codes import ResponseCode
from pyromq.protocol.message_id import decode_offset_message_id, decode_recall_handle
from pyromq.protocol.properties import RESERVED_NAMES, SHARDING_KEY, TRACE_CONTEXT
from pyromq.protocol.requests.sending import RecallMessage, SendMessageAnswer, SendMessageV2
from pyromq.proxy.checks import check_topic
from pyromq.proxy.clients import CLIENT_ID, client_id_of
from pyromq.proxy.codes import OK, Code, Rejected, Status, code_of_broker, status_of
from pyromq.proxy.context import FrontContext
from pyromq.proxy.grpc.call import Call, Later, Quick
from pyromq.proxy.messages import message
from pyromq.proxy.outgoing import Outgoing, prepare
from pyromq.proxy.queue_choice import QueueChoice
from pyromq.proxy.quick_calls import PREFIX_BYTES, QuickCall, quick_calls
from pyromq.proxy.topics import DELAY, FIFO, MIXED, NORMAL, TRANSACTION
from pyromq.proxy.transactions import HalfPlace, ProxyTransactions
from pyromq.remoting.connection import StartedCall

_SendMessageRequest = message("SendMessageRequest")
_SendMessageResponse = message("SendMessageResponse")
_SendResultEntry = message("SendResultEntry")
_RecallMessageResponse = message("RecallMessageResponse")

TERMS = SendTerms(group=None)
_MAX_TOPICS = 1000
UNUSUAL = frozenset(name.encode() for name in (*RESERVED_NAMES, SHARDING_KEY, TRACE_CONTEXT))
"""Properties that only the general path knows."""


def without_flag(pieces: tuple[bytes, ...]) -> tuple[bytes, ...]:
    """The pieces of a request whose flag is always 0: clients of the front cannot set it."""
    queue_id, sys_flag, born, flag, text, *rest = pieces
    return (queue_id, sys_flag, born, flag + b"0" + text, *rest)


class ProxySending:
    def __init__(self, context: FrontContext, transactions: ProxyTransactions) -> None:
        cluster, settings = context.cluster, context.settings
        self._cluster = cluster
        self._topics = context.topics
        self._clients = context.clients
        self._transactions = transactions
        self._clock = context.clock
        self._settings = settings
        self._queues = QueueChoice()
        self._forms = SendForms(TERMS)
        self._pieces: dict[str, tuple[bytes, ...]] = {}
        self._quick = quick_calls(cluster, SendMessageV2, "proxy.fast_sends")
        if self._quick is not None:
            self._reader = self._quick.native.SendReader(
                UNUSUAL,
                max_body_bytes=settings.max_message_bytes,
                refuses_empty=settings.refuses_empty_bodies,
                max_properties=settings.user_property_max_num,
                max_properties_bytes=settings.max_user_property_bytes,
                max_group_bytes=settings.max_message_group_size,
            )

    # One plain message, straight from its bytes

    @property
    def quick(self) -> Quick | None:
        return self._send_quickly if self._quick is not None else None

    def _send_quickly(self, data: bytes, call: Call) -> bool:
        quick = self._quick
        assert quick is not None
        plain = self._reader.read(data, call.peer_host)
        client_id = call.metadata.get(CLIENT_ID)
        if plain is None or not client_id.strip():
            return False
        topic, group = plain.topic, plain.message_group
        route = self._cluster.known_route(topic)
        takes = self._topics.known_type(topic) if self._settings.checks_message_types else MIXED
        if route is None or takes not in (NORMAL if group is None else FIFO, MIXED):
            return False
        pieces = self._pieces.get(topic)
        try:
            if pieces is None:
                pieces = self._new_pieces(topic)
            queue = self._queues.choose(route, group or "")
        except Rejected:
            return False
        broker_name = route.broker_of(queue)
        connection = quick.connection(broker_name)
        if connection is None:
            return False
        opaque = connection.take_opaque()
        now_ms = self._clock.now_ms()
        frame = plain.frame(pieces, queue.queue_id, now_ms, opaque, quick.max_frame_bytes)
        if frame is None:
            return False
        self._clients.seen(client_id)
        waiting = QuickCall(quick, plain, call, broker_name, connection, opaque, self._resume)
        connection.begin_quickly(frame, opaque, waiting, quick.timeout_s)
        return True

    def _new_pieces(self, topic: str) -> tuple[bytes, ...]:
        if len(self._pieces) == _MAX_TOPICS:
            self._pieces.clear()
        pieces = self._pieces[topic] = without_flag(self._forms.pieces(SendMessageV2, check_topic(topic)))
        return pieces

    def _resume(self, quick: QuickCall, started: StartedCall[SendMessageAnswer]) -> Any:
        request = _SendMessageRequest.FromString(quick.plain.data[PREFIX_BYTES:])
        call = quick.call
        outgoing = prepare(request.messages[0], self._settings, self._clock.now_ms(), call.peer_address)
        return self._stored(started, outgoing, quick.broker_name, call)

    # Any message

    def send(self, request: Any, call: Call) -> Any:
        """Every message has its own entry in the answer; a request that cannot be sent has none."""
        self._clients.seen(client_id_of(call))
        messages = request.messages
        if not messages or (len(messages) > 1 and len({each.topic.name for each in messages}) > 1):
            raise Rejected(Code.MESSAGE_CORRUPTED, f"{len(messages)} messages; expected some of one topic")
        now_ms = self._clock.now_ms()
        prepared = [prepare(each, self._settings, now_ms, call.peer_address) for each in messages]
        # Before anything is looked up: an error would say whether a topic of others exists.
        self._cluster.admit_producer([prepared[0].message.topic], call)
        at_once = self._begin(prepared[0], call) if len(prepared) == 1 else None
        return at_once if at_once is not None else self._send_all(prepared, call)

    def _begin(self, outgoing: Outgoing, call: Call) -> Later | None:
        """Send one message without a task; None if something must be asked for first."""
        message = outgoing.message
        topic = message.topic
        route = self._cluster.known_route(topic)
        message_type = self._topics.known_type(topic) if self._settings.checks_message_types else MIXED
        if route is None or message_type is None:
            return None
        self._topics.compare_type(topic, outgoing.message_type, message_type)
        queue = self._queues.choose(route, outgoing.message_group)
        broker_name = route.broker_of(queue)
        request = self._forms.request(message, queue.queue_id)
        sent = self._forms.filled(message, queue.queue_id) if self._cluster.session.fills_forms else request
        started = self._cluster.begin(broker_name, sent, call, request)
        if started is None:
            return None
        return Later(started.answered, partial(self._stored, started, outgoing, broker_name, call))

    def _stored(
        self, started: StartedCall[SendMessageAnswer], outgoing: Outgoing, broker_name: str, call: Call
    ) -> Any:
        try:
            entry = self._entry(started.result(), outgoing, broker_name)
        except Refused as refusal:
            if refusal.code == ResponseCode.GO_AWAY:
                return self._send_all([outgoing], call)  # on a new connection
            raise self._explained(refusal, outgoing) from None
        return _SendMessageResponse(status=entry.status, entries=(entry,))

    async def send_prepared(self, prepared: list[Outgoing]) -> Any:
        """Send messages of one topic whose sender has been admitted."""
        return await self._send_all(prepared, None)

    async def _send_all(self, prepared: list[Outgoing], call: Call | None) -> Any:
        if self._settings.checks_message_types:
            for each in prepared:
                await self._topics.check_type(each.message.topic, each.message_type)
        if len(prepared) == 1:
            entries = [await self._send(prepared[0], call)]
        else:
            entries = await asyncio.gather(*(self._send_one_of_many(each, call) for each in prepared))
        codes = {entry.status.code for entry in entries}
        status = entries[0].status if len(codes) == 1 else Status(code=Code.MULTIPLE_RESULTS, message="")
        return _SendMessageResponse(status=status, entries=entries)

    async def _send_one_of_many(self, outgoing: Outgoing, call: Call | None) -> Any:
        try:
            return await self._send(outgoing, call)
        except PyroError as problem:
            return _SendResultEntry(status=status_of(problem), message_id=outgoing.message.unique_key)

    async def _send(self, outgoing: Outgoing, call: Call | None) -> Any:
        route = await self._cluster.route(outgoing.message.topic)
        queue = self._queues.choose(route, outgoing.message_group)
        broker_name = route.broker_of(queue)
        request = self._forms.request(outgoing.message, queue.queue_id)
        try:
            answer = await self._cluster.call(broker_name, request, call)
        except Refused as refusal:
            raise self._explained(refusal, outgoing) from None
        return self._entry(answer, outgoing, broker_name)

    def _explained(self, refusal: Refused, outgoing: Outgoing) -> PyroError:
        if refusal.code == ResponseCode.TOPIC_NOT_EXIST:
            return NoRoute(outgoing.message.topic, self._cluster.name_servers)
        return refusal

    def _entry(self, answer: SendMessageAnswer, outgoing: Outgoing, broker_name: str) -> Any:
        status = OK
        if answer.code != ResponseCode.SUCCESS:
            status = Status(code=code_of_broker(answer.code), message=ResponseCode(answer.code).name)
        entry = _SendResultEntry(
            status=status,
            message_id=outgoing.message.unique_key,
            transaction_id=answer.transaction_id or outgoing.message.unique_key,
            offset=answer.queue_offset,
            recall_handle=answer.recall_handle or "",
        )
        if outgoing.message_type == TRANSACTION:
            log_offset = decode_offset_message_id(answer.msg_id).log_offset
            address = self._cluster.address(broker_name)
            half = HalfPlace(address, broker_name, answer.queue_offset, log_offset)
            self._transactions.remember(outgoing.message.topic, entry.transaction_id, half)
        return entry

    async def recall(self, request: Any, call: Call) -> Any:
        topic = check_topic(request.topic.name)
        self._cluster.admit_producer([topic], call)
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
