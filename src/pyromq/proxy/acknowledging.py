"""Settles a received message: acknowledged, hidden for another time, or buried as a dead letter."""

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import Any

from pyromq.errors import PyroError, Refused, RemoteProtocolError
from pyromq.protocol.catalogue import Answer
from pyromq.protocol.codes import ResponseCode
from pyromq.protocol.message import shown_message_id
from pyromq.protocol.names import pop_retry_topics, retry_topic
from pyromq.protocol.record import StoredMessage, decode_record
from pyromq.protocol.request_forms import FilledForm, RequestForm, as_text
from pyromq.protocol.requests.popping import AckMessage
from pyromq.protocol.requests.pulling import ViewMessage
from pyromq.protocol.requests.sending import SendMessageBack
from pyromq.proxy.checks import check_group, check_invisible_time, check_topic, milliseconds
from pyromq.proxy.clients import CLIENT_ID, client_id_of
from pyromq.proxy.codes import OK, Code, Rejected, Status, status_of
from pyromq.proxy.context import FrontContext
from pyromq.proxy.grpc.call import Call, Later, Quick
from pyromq.proxy.messages import message
from pyromq.proxy.quick_calls import PREFIX_BYTES, QuickCall, quick_calls
from pyromq.proxy.receipts import Handle, decode_handle
from pyromq.proxy.renewal import Renewal
from pyromq.remoting.connection import StartedCall

_AckMessageRequest = message("AckMessageRequest")
_AckMessageResponse = message("AckMessageResponse")
_AckMessageResultEntry = message("AckMessageResultEntry")
_ChangeInvisibleDurationResponse = message("ChangeInvisibleDurationResponse")
_ForwardResponse = message("ForwardMessageToDeadLetterQueueResponse")

_TO_DEAD_LETTERS = -1
_VARYING = ("queue_id", "extra_info", "offset")
_MAX_FORMS = 1000


class ProxyAcknowledging:
    def __init__(self, context: FrontContext, renewal: Renewal) -> None:
        cluster = context.cluster
        self._cluster = cluster
        self._clients = context.clients
        self._renewal = renewal
        self._clock = context.clock
        self._settings = context.settings
        self._forms: dict[tuple[str, str, str | None], RequestForm[Answer]] = {}
        self._pieces: dict[tuple[str, str, str], tuple[bytes, ...]] = {}
        self._quick = quick_calls(cluster, AckMessage, "proxy.fast_acks")

    # One plain acknowledgement, straight from its bytes

    @property
    def quick(self) -> Quick | None:
        return self._ack_quickly if self._quick is not None else None

    def _ack_quickly(self, data: bytes, call: Call) -> bool:
        quick = self._quick
        assert quick is not None
        plain = quick.native.read_ack(data)
        client_id = call.metadata.get(CLIENT_ID)
        if plain is None or plain.expires_ms <= self._clock.now_ms() or not client_id.strip():
            return False
        broker_name = plain.broker_name
        connection = quick.connection(broker_name)
        if connection is None:
            return False
        key = (plain.topic, plain.group, broker_name)
        pieces = self._pieces.get(key)
        if pieces is None:
            try:
                pieces = self._new_pieces(key, plain.handle)
            except Rejected:
                return False
        opaque = connection.take_opaque()
        frame = plain.frame(pieces, opaque, quick.max_frame_bytes)
        if frame is None or not self._renewal.take_unchanged(plain.group, plain.handle):
            return False
        self._clients.seen(client_id)
        waiting = QuickCall(quick, plain, call, broker_name, connection, opaque, self._resume)
        connection.begin_quickly(frame, opaque, waiting, quick.timeout_s)
        return True

    def _new_pieces(self, key: tuple[str, str, str], handle: str) -> tuple[bytes, ...]:
        asked = decode_handle(handle).ack(check_topic(key[0]), check_group(key[1]))
        if len(self._pieces) == _MAX_FORMS:
            self._pieces.clear()
        pieces = self._pieces[key] = RequestForm(asked, _VARYING).pieces
        return pieces

    def _resume(self, quick: QuickCall, started: StartedCall[Answer]) -> Any:
        request = _AckMessageRequest.FromString(quick.plain.data[PREFIX_BYTES:])
        entry = request.entries[0]
        handle = decode_handle(entry.receipt_handle)
        asked = handle.ack(request.topic.name, request.group.name)
        return self._acked(started, asked, handle, entry, quick.call)

    # Any acknowledgements

    def ack(self, request: Any, call: Call) -> Any:
        self._clients.seen(client_id_of(call))
        topic, group = check_topic(request.topic.name), check_group(request.group.name)
        self._cluster.admit_consumer(topic, group, call)
        if not request.entries:
            raise Rejected(Code.INTERNAL_SERVER_ERROR, "no entry to acknowledge")
        entry = request.entries[0]
        if len(request.entries) > 1 or self._renewal.is_changing(group, entry.receipt_handle):
            return self._ack_all(request, topic, group, call)
        # Clients acknowledge each message alone: it needs no task.
        text = entry.receipt_handle
        try:
            handle = self._renewal.take_now(group, text) or decode_handle(text, entry.lite_topic)
            if self._is_over(handle):
                return self._ack_all(request, topic, group, call)
            asked = handle.ack(topic, group)
            started = self._cluster.begin(handle.receipt.broker_name, self._filled(asked), call, asked)
        except PyroError as problem:
            return _acknowledged([_entry(entry, status_of(problem))])
        if started is None:
            return self._ack_slowly(asked, handle, entry, call)
        return Later(started.answered, partial(self._acked, started, asked, handle, entry, call))

    def _filled(self, asked: AckMessage) -> AckMessage | FilledForm[Answer]:
        if not self._cluster.session.fills_forms or asked.lite_topic is not None:
            return asked
        key = (asked.topic, asked.consumer_group, asked.target_broker_name)
        form = self._forms.get(key)
        if form is None:
            if len(self._forms) == _MAX_FORMS:
                self._forms.clear()
            form = self._forms[key] = RequestForm(asked, _VARYING)
        return FilledForm(form, (asked.queue_id, as_text(asked.extra_info), asked.offset), b"")

    def _acked(
        self, started: StartedCall[Answer], asked: AckMessage, handle: Handle, entry: Any, call: Call
    ) -> Any:
        status = OK
        try:
            started.result()
        except Refused as refusal:
            if refusal.code == ResponseCode.GO_AWAY:
                return self._ack_slowly(asked, handle, entry, call)  # on a new connection
            status = status_of(refusal)
        except PyroError as problem:
            status = status_of(problem)
        return _acknowledged([_entry(entry, status)])

    async def _ack_slowly(self, asked: AckMessage, handle: Handle, entry: Any, call: Call) -> Any:
        status = OK
        try:
            await self._cluster.call(handle.receipt.broker_name, asked, call)
        except PyroError as problem:
            status = status_of(problem)
        return _acknowledged([_entry(entry, status)])

    async def _ack_all(self, request: Any, topic: str, group: str, call: Call) -> Any:
        entries = await asyncio.gather(*(self._ack(each, topic, group, call) for each in request.entries))
        return _acknowledged(entries)

    async def _ack(self, entry: Any, topic: str, group: str, call: Call) -> Any:
        status = OK
        try:
            handle = await self._newest(topic, group, entry, call)
            await self._cluster.call(handle.receipt.broker_name, handle.ack(topic, group), call)
        except PyroError as problem:
            status = status_of(problem)
        return _entry(entry, status)

    async def change(self, request: Any, call: Call) -> Any:
        self._clients.seen(client_id_of(call))
        topic, group = check_topic(request.topic.name), check_group(request.group.name)
        self._cluster.admit_consumer(topic, group, call)
        invisible_ms = check_invisible_time(milliseconds(request.invisible_duration), 0, self._settings)
        handle = await self._newest(topic, group, request, call)
        asked = handle.change(topic, group, invisible_ms, suspends=request.suspend)
        answer = await self._cluster.call(handle.receipt.broker_name, asked, call)
        return _ChangeInvisibleDurationResponse(status=OK, receipt_handle=str(handle.changed(answer)))

    async def forward_to_dead_letters(self, request: Any, call: Call) -> Any:
        self._clients.seen(client_id_of(call))
        topic, group = check_topic(request.topic.name), check_group(request.group.name)
        self._cluster.admit_consumer(topic, group, call)
        handle = await self._newest(topic, group, request, call)
        await self._check_place(topic, group, handle)
        await self._bury(topic, group, handle, request.message_id, call)
        return _ForwardResponse(status=OK)

    async def _check_place(self, topic: str, group: str, handle: Handle) -> None:
        """Raises Rejected if the log has another message there: a client can write any offset into a handle,
        and the broker would bury what the front may read."""
        found = await self._cluster.call(
            handle.receipt.broker_name, ViewMessage(topic=topic, offset=handle.log_offset), None
        )
        own = {topic, retry_topic(group), *pop_retry_topics(topic, group)}
        if decode_record(found.body).topic not in own:
            raise Rejected(
                Code.INVALID_RECEIPT_HANDLE,
                f"the message at log offset {handle.log_offset} is not one of the topic {topic}",
            )

    async def _newest(self, topic: str, group: str, asked: Any, call: Call) -> Handle:
        """The handle that the broker knows; raises Rejected if its time is over. `asked` names a handle."""
        text = asked.receipt_handle
        handle = await self._renewal.take(group, text) or decode_handle(text, asked.lite_topic)
        if not self._is_over(handle):
            return handle
        try:
            # Another front may have renewed it. Apache's brokers cannot tell.
            asked = handle.find(topic, group)
            return handle.found(await self._cluster.call(handle.receipt.broker_name, asked, call))
        except (Refused, RemoteProtocolError):
            raise Rejected(
                Code.INVALID_RECEIPT_HANDLE,
                f"the time of the receipt handle was over {self._clock.now_ms() - handle.expires_ms} ms ago:"
                " the message is delivered again",
            ) from None

    def _is_over(self, handle: Handle) -> bool:
        # A message of a lite topic is the client's until it is delivered again: its broker knows.
        return handle.lite_topic is None and handle.expires_ms <= self._clock.now_ms()

    # For messages that no client shall get

    async def drop(self, topic: str, group: str, handle: Handle) -> None:
        await self._cluster.call(handle.receipt.broker_name, handle.ack(topic, group), None)

    async def bury(self, topic: str, group: str, handle: Handle, stored: StoredMessage) -> None:
        """After too many attempts a message becomes a dead letter."""
        await self._bury(topic, group, handle, shown_message_id(stored), None)

    async def _bury(self, topic: str, group: str, handle: Handle, message_id: str, call: Call | None) -> None:
        back = SendMessageBack(
            offset=handle.log_offset,
            group=group,
            delay_level=_TO_DEAD_LETTERS,
            origin_msg_id=message_id,
            origin_topic=topic,
            max_reconsume_times=0,
            target_broker_name=handle.receipt.broker_name,
        )
        await self._cluster.call(handle.receipt.broker_name, back, call)
        await self._cluster.call(handle.receipt.broker_name, handle.ack(topic, group), call)


def _entry(asked: Any, status: Any) -> Any:
    return _AckMessageResultEntry(
        message_id=asked.message_id, receipt_handle=asked.receipt_handle, status=status
    )


def _acknowledged(entries: Sequence[Any]) -> Any:
    codes = {entry.status.code for entry in entries}
    status = entries[0].status if len(codes) == 1 else Status(code=Code.MULTIPLE_RESULTS, message="")
    return _AckMessageResponse(status=status, entries=entries)
