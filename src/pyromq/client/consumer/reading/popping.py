"""Popping from a broker: what a pop asks for, what its answer says, and how a message is acknowledged."""

from collections.abc import Iterable
from contextlib import suppress
from typing import Any

from pyromq.client.consumer.reading.offsets import StartFrom
from pyromq.client.consumer.reading.pop_starts import PopStarts
from pyromq.client.consumer.reading.subscriptions import Subscription
from pyromq.client.session import Session
from pyromq.client.values import MessageQueue, ReceivedMessage
from pyromq.errors import NoRoute, PyroError, Refused
from pyromq.protocol.codes import ResponseCode
from pyromq.protocol.message import open_message
from pyromq.protocol.pop_receipt import (
    PopReceipt,
    decode_order_counts,
    decode_start_offsets,
)
from pyromq.protocol.popped import ack_request, batch_acks, change_request, changed_receipt, receipt_of
from pyromq.protocol.record import StoredMessage, decode_records
from pyromq.protocol.requests.popping import (
    AckMessage,
    AckMessages,
    BatchAckMessageRequestBody,
    ChangeInvisibleTime,
    PopMessage,
    PopMessageAnswer,
)

ANY_QUEUE = -1
_START_AT_MIN, _START_AT_MAX = 0, 1


class PoppedMessage(ReceivedMessage):
    """A message that is hidden from the other members of the group until it is acknowledged, or its invisible
    time is over. `receipt` is the right to do that."""

    __slots__ = ("receipt",)

    def __init__(
        self, stored: StoredMessage, queue: MessageQueue, topic: str | None, receipt: PopReceipt
    ) -> None:
        super().__init__(stored, queue, topic)
        self.receipt = receipt

    def __reduce__(self) -> tuple[type, tuple[Any, ...]]:
        return type(self), (self.stored, self.queue, self.topic, self.receipt)

    @property
    def invisible_until_ms(self) -> int:
        """By the clock of the broker, in milliseconds since 1970."""
        return self.receipt.pop_time_ms + self.receipt.invisible_time_ms


class PopReading:
    """`group` has the name that brokers know. `starts` are where it begins."""

    def __init__(self, session: Session, group: str, timeout_s: float, start_from: StartFrom) -> None:
        self._session = session
        self._group = group
        self._timeout_s = timeout_s
        self._init_mode = _START_AT_MIN if start_from == "first" else _START_AT_MAX
        self.starts = PopStarts(session, group, start_from)

    async def pop(
        self,
        broker_name: str,
        subscription: Subscription,
        limit: int,
        invisible_s: float,
        wait_s: float,
        queue_id: int = ANY_QUEUE,
        attempt_id: str | None = None,
    ) -> list[PoppedMessage]:
        """With an attempt id, in order: later messages of a queue are held back until these are acknowledged.
        If the answer was lost, the same id gets the same messages."""
        await self.starts.place(subscription.topic, broker_name)
        request = PopMessage(
            consumer_group=self._group,
            topic=subscription.topic,
            queue_id=queue_id,
            max_msg_nums=limit,
            invisible_time=round(invisible_s * 1000),
            poll_time=round(wait_s * 1000),
            born_time=self._session.clock.now_ms(),
            init_mode=self._init_mode,
            exp_type=subscription.expression_type,
            exp=subscription.expression,
            order=attempt_id is not None,
            attempt_id=attempt_id,
            target_broker_name=broker_name,
        )
        answer = await self._session.call(self._address(broker_name), request, wait_s + self._timeout_s)
        if answer.code != ResponseCode.SUCCESS:
            return []
        messages = self._received(broker_name, subscription, answer)
        wanted = [message for message in messages if subscription.wants(message.tags)]
        for message in messages if len(wanted) < len(messages) else ():
            # Brokers compare hashes of tags. A message whose tag only has the same hash is dropped.
            if message not in wanted:
                with suppress(PyroError):
                    await self.acknowledge(message)
        return wanted

    def _received(
        self, broker_name: str, subscription: Subscription, answer: PopMessageAnswer
    ) -> list[PoppedMessage]:
        starts = decode_start_offsets(answer.start_offset_info or "")
        counts = decode_order_counts(answer.order_count_info or "")
        shown = self._session.unwrap(subscription.topic)
        found = []
        for record in decode_records(answer.body):
            receipt = receipt_of(record, broker_name, answer, starts)
            if receipt.is_ordered:
                key = (receipt.retry_mark, record.queue_id)
                count = counts.get((*key, record.queue_offset), counts.get((*key, None), 0))
                record.reconsume_times = max(record.reconsume_times, count)
            queue = MessageQueue(topic=subscription.topic, broker_name=broker_name, queue_id=record.queue_id)
            (opened,) = open_message(record)
            found.append(PoppedMessage(opened, queue, shown, receipt))
        return found

    async def acknowledge(self, message: PoppedMessage) -> None:
        request = self._ack_request(message)
        await self._session.call(self._address(message.receipt.broker_name), request, self._timeout_s)

    def _ack_request(self, message: PoppedMessage) -> AckMessage:
        return ack_request(message.receipt, message.queue.topic, self._group, message.queue_offset)

    async def acknowledge_together(self, broker_name: str, messages: Iterable[PoppedMessage]) -> None:
        """Messages of one broker, in one request if the broker knows that."""
        messages = list(messages)
        if len(messages) > 1:
            popped = [(each.receipt, each.queue.topic, each.queue_offset) for each in messages]
            body = BatchAckMessageRequestBody(acks=batch_acks(popped, self._group), broker_name=broker_name)
            try:
                await self._session.call(self._address(broker_name), AckMessages(body=body), self._timeout_s)
                return
            except Refused as refusal:
                if refusal.code != ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
                    raise
        for message in messages:
            await self.acknowledge(message)

    async def change_invisible_time(self, message: PoppedMessage, seconds: float) -> None:
        """The message has a new receipt afterwards."""
        await self._change(message, self._change_request(message, seconds))

    def _change_request(self, message: PoppedMessage, seconds: float) -> ChangeInvisibleTime:
        offset, invisible_ms = message.queue_offset, round(seconds * 1000)
        return change_request(message.receipt, message.queue.topic, self._group, offset, invisible_ms)

    async def _change(self, message: PoppedMessage, request: ChangeInvisibleTime) -> None:
        address = self._address(message.receipt.broker_name)
        answer = await self._session.call(address, request, self._timeout_s)
        message.receipt = changed_receipt(message.receipt, message.queue_offset, answer)

    def _address(self, broker_name: str) -> str:
        address = self._session.broker_address(broker_name)
        if address is None:
            raise NoRoute(broker_name, str(self._session.name_servers))
        return address
