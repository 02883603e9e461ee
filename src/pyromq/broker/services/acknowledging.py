"""Acknowledging: popped messages are done, or stay hidden for another while.

Acknowledgements of one pop that arrive together are written as one record. An acknowledgement is answered
when its record is as safe as a message would be, and refused if that takes too long: the next master may not
have it.
"""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial

import msgspec
from msgspec.structs import replace

from pyromq.broker.flow.durability import Durability
from pyromq.broker.flow.lite.delivery import LiteDelivery
from pyromq.broker.flow.popping.changed_receipts import ChangedReceipts
from pyromq.broker.flow.popping.held_pops import HeldPops
from pyromq.broker.flow.popping.revive_log import ReviveLog
from pyromq.broker.flow.safe_answers import refusal_of, when_safe
from pyromq.broker.tables.all_tables import Tables
from pyromq.errors import Refused, RemoteProtocolError
from pyromq.protocol.catalogue import Answer
from pyromq.protocol.codes import ResponseCode
from pyromq.protocol.names import lite_queue
from pyromq.protocol.pop_receipt import (
    NORMAL_TOPIC,
    ORDER_REVIVE_QUEUE,
    PopReceipt,
    decode_pop_receipt,
    encode_pop_receipt,
    marked_topic,
)
from pyromq.protocol.pop_records import PopCheckPoint
from pyromq.protocol.requests.popping import (
    AckMessage,
    AckMessages,
    BatchAck,
    ChangeInvisibleTime,
    ChangeInvisibleTimeAnswer,
    FindReceipt,
    FindReceiptAnswer,
)
from pyromq.remoting.routing import Caller, handles
from pyromq.remoting.soon import soon_of
from pyromq.store.message_store import MessageStore
from pyromq.store.results import AppendResult, AppendStatus

Settle = Callable[[Refused | None], None]
"""Called once, when acknowledgements are safe or refused."""


class AckedPop(msgspec.Struct, frozen=True):
    """The pop of which a message is acknowledged, and the offsets that its queue may have."""

    topic: str
    """The one in which its messages are stored."""
    group: str
    receipt: PopReceipt
    first: int
    end: int


class Acknowledging:
    def __init__(
        self,
        store: MessageStore,
        tables: Tables,
        revive_log: ReviveLog,
        changed: ChangedReceipts,
        held: Sequence[HeldPops],
        durability: Durability,
        lite: LiteDelivery,
    ) -> None:
        self._store = store
        self._lite = lite
        self._topics = tables.topics
        self._offsets = tables.offsets
        self._orders = tables.pop_orders
        self._counts = tables.pop_counts
        self._role = tables.role
        self._revive_log = revive_log
        self._changed = changed
        self._held = held
        self._durability = durability
        self._loop = asyncio.get_running_loop()
        self._soon = soon_of(self._loop)
        self._gathered: list[tuple[AckedPop, Sequence[int], Settle]] = []

    def __repr__(self) -> str:
        return f"<Acknowledging {self._changed!r}>"

    @handles(AckMessage, may_wait=True)
    def acknowledge(self, request: AckMessage, caller: Caller) -> "Answer | asyncio.Future[Answer]":
        topic, group, offset = request.topic, request.consumer_group, request.offset
        if request.lite_topic:
            queue, receipt = self._lite_queue(request)
            self._lite.acknowledge(queue, group, offset, receipt.pop_time_ms)
            return Answer()
        pop = self.find_pop(topic, group, request.queue_id, request.extra_info, offset)
        if pop is None:
            receipt = decode_pop_receipt(request.extra_info)
            self._acknowledge_in_order(topic, group, receipt, offset)
            return Answer()
        answered: asyncio.Future[Answer] = self._loop.create_future()
        self.gather(pop, (offset,), partial(_answer, answered))
        return answered

    def find_pop(
        self, topic: str, group: str, queue_id: int, receipt: str, offset: int | None = None
    ) -> AckedPop | None:
        """None if it was popped in order. java: the checks run in Apache's order"""
        first, end = self._check_queue(topic, queue_id)
        if offset is not None and not first <= offset <= end:
            raise _no_message(topic, queue_id, offset, first, end)
        popped = self._receipt_of(receipt)
        if popped.is_ordered:
            return None
        return AckedPop(topic, group, replace(popped, queue_offset=None), first, end)

    def gather(self, pop: AckedPop, offsets: Sequence[int], settle: Settle) -> None:
        """Acknowledge messages of a pop at the end of this turn of the loop."""
        if not self._gathered:
            self._soon.call(self.write_gathered)
        self._gathered.append((pop, offsets, settle))

    def write_gathered(self) -> None:
        """Write the acknowledgements of this turn of the loop, those of one pop together."""
        gathered, self._gathered = self._gathered, []
        pops: dict[tuple[str, str, PopReceipt], tuple[dict[int, None], list[Settle]]] = {}
        for pop, offsets, settle in gathered:
            now_good = self._changed.newest_of(pop.topic, pop.group, offsets, pop.receipt)
            settle = _once(settle, len(now_good))
            for receipt, its_offsets in now_good.items():
                acked, waiting = pops.setdefault((pop.topic, pop.group, receipt), ({}, []))
                acked.update(dict.fromkeys(its_offsets))
                waiting.append(settle)
        for (topic, group, receipt), (acked, waiting) in pops.items():
            try:
                written = self._write_ack(topic, group, receipt, list(acked))
            except Refused as refusal:
                _settle(waiting, refusal)
            else:
                if self._durability.is_immediate:
                    _settle(waiting)
                else:
                    self._durability.when_safe(written, partial(_settle_as, waiting))

    @handles(AckMessages, may_wait=True)
    def acknowledge_many(self, request: AckMessages, caller: Caller) -> "Answer | asyncio.Future[Answer]":
        if not request.body.acks:
            raise Refused(ResponseCode.NO_MESSAGE, "the request acknowledges nothing")
        self._check_master()
        broker_name = request.body.broker_name or ""
        written = [
            result for each in request.body.acks for result in self._acknowledge_batch(each, broker_name)
        ]
        return when_safe(self._durability, Answer(), *written)

    def _acknowledge_batch(self, batch: BatchAck, broker_name: str) -> list[AppendResult]:
        group = batch.consumer_group or ""
        topic = marked_topic(batch.topic or "", group, batch.retry or NORMAL_TOPIC)
        queue_id = batch.queue_id
        if self._topics.get(topic) is None or self._store.queues.find(topic, queue_id) is None:
            return []  # java: the client gets no error
        first, end = (
            self._store.queues.min_offset(topic, queue_id),
            self._store.queues.max_offset(topic, queue_id),
        )
        offsets = batch.offsets(first, end)
        receipt = PopReceipt(
            batch.start_offset,
            batch.pop_time,
            batch.invisible_time,
            batch.revive_queue_id,
            batch.retry or NORMAL_TOPIC,
            broker_name,
            queue_id,
        )
        self._checked(receipt)
        if receipt.is_ordered:
            for offset in offsets:
                self._acknowledge_in_order(topic, group, receipt, offset)
            return []
        now_good = self._changed.newest_of(topic, group, offsets, receipt)
        return [self._write_ack(topic, group, each, its) for each, its in now_good.items() if its]

    def _write_ack(self, topic: str, group: str, receipt: PopReceipt, offsets: Sequence[int]) -> AppendResult:
        result = self._revive_log.write_ack(topic, group, receipt, offsets)
        _require(result)
        self._counts.ended(topic, group, receipt.queue_id, len(offsets))
        return result

    def _acknowledge_in_order(self, topic: str, group: str, receipt: PopReceipt, offset: int) -> None:
        begin = self._offsets.query(group, topic, receipt.queue_id)
        if begin < 0 or offset < begin:
            return  # a group that is nowhere has popped from a topic that was deleted
        consumed = self._orders.acknowledge(
            topic, group, receipt.queue_id, offset, receipt.pop_time_ms, begin
        )
        if consumed is not None:
            # A pending reset keeps its own offset.
            self._offsets.commit(group, topic, receipt.queue_id, consumed)
            self._wake_if_free(topic, group, receipt.queue_id)

    def _wake_if_free(self, topic: str, group: str, queue_id: int) -> None:
        free_at = self._orders.free_at(topic, group, queue_id)
        wait_ms = free_at - self._store.time.now_ms()
        for held in self._held:
            if wait_ms <= 0:
                held.wake(topic, group, queue_id)
            else:
                held.wake_at(topic, group, wait_ms / 1000)

    # Other times

    @handles(ChangeInvisibleTime, may_wait=True)
    def change(
        self, request: ChangeInvisibleTime, caller: Caller
    ) -> "ChangeInvisibleTimeAnswer | asyncio.Future[ChangeInvisibleTimeAnswer]":
        """java: the checks run in Apache's order"""
        topic, group, offset = request.topic, request.consumer_group, request.offset
        if request.lite_topic:
            return self._change_lite(request)
        first, end = self._check_queue(topic, request.queue_id)
        if not first <= offset < end:
            raise _no_message(topic, request.queue_id, offset, first, end)
        receipt = self._receipt_of(request.extra_info)
        now_ms = self._store.time.now_ms()
        if receipt.is_ordered:
            visible_ms = now_ms + request.invisible_time
            if offset >= self._offsets.query(group, topic, request.queue_id):
                pop_ms = receipt.pop_time_ms
                self._orders.hide(topic, group, request.queue_id, offset, pop_ms, visible_ms)
                self._wake_if_free(topic, group, request.queue_id)
            return ChangeInvisibleTimeAnswer(
                pop_time=receipt.pop_time_ms,
                invisible_time=visible_ms - receipt.pop_time_ms,
                revive_qid=receipt.revive_queue_id,
            )
        newest = self._good(request, receipt)
        # The time of a pop identifies it.
        pop_ms = max(now_ms, newest.pop_time_ms + 1)
        successor = PopReceipt(
            offset,
            pop_ms,
            request.invisible_time,
            newest.revive_queue_id,
            newest.retry_mark,
            newest.broker_name,
            request.queue_id,
            offset,
        )
        begun = self._revive_log.write_checkpoint(
            PopCheckPoint(
                broker_name=successor.broker_name,
                consumer_group=group,
                queue_offset_diff=[0],
                invisible_time=request.invisible_time,
                num=1,
                pop_time=pop_ms,
                queue_id=request.queue_id,
                start_offset=offset,
                topic=topic,
            ),
            successor.revive_queue_id,
        )
        _require(begun)
        ended = self._revive_log.write_ack(topic, group, newest, [offset])
        _require(ended)
        self._changed.replace(topic, group, offset, newest, successor, now_ms)
        answer = ChangeInvisibleTimeAnswer(
            pop_time=pop_ms, invisible_time=request.invisible_time, revive_qid=successor.revive_queue_id
        )
        return when_safe(self._durability, answer, begun, ended)

    def _change_lite(self, request: ChangeInvisibleTime) -> ChangeInvisibleTimeAnswer:
        """java: the time of the pop stays, so that the first receipt stays good"""
        queue, receipt = self._lite_queue(request)
        visible_ms = self._store.time.now_ms() + request.invisible_time
        pop_ms, suspends = receipt.pop_time_ms, request.suspend
        self._lite.hide(queue, request.consumer_group, request.offset, pop_ms, visible_ms, suspends=suspends)
        return ChangeInvisibleTimeAnswer(
            pop_time=pop_ms, invisible_time=visible_ms - pop_ms, revive_qid=receipt.revive_queue_id
        )

    def _lite_queue(self, request: AckMessage | ChangeInvisibleTime) -> tuple[str, PopReceipt]:
        """The light queue of a message of a lite topic, and its receipt; raises Refused."""
        self._check_topic(request.topic, 0)
        receipt = self._receipt_of(request.extra_info)
        if request.queue_id != 0 or not receipt.is_ordered:
            raise Refused(
                ResponseCode.INVALID_PARAMETER,
                f"queue {request.queue_id} and revive queue {receipt.revive_queue_id} of a message of the"
                f" lite topic {request.lite_topic}: expected 0 and {ORDER_REVIVE_QUEUE}",
            )
        queue, offset = lite_queue(request.topic, request.lite_topic or ""), request.offset
        end = self._lite.end(queue)
        if not 0 <= offset < end:
            raise _no_message(queue, 0, offset, self._store.queues.min_offset(queue, 0), end)
        return queue, receipt

    @handles(FindReceipt)
    def find(self, request: FindReceipt, caller: Caller) -> FindReceiptAnswer:
        """For a consumer that knows only the first receipt, because another renewed it and is gone."""
        self._check_queue(request.topic, request.queue_id)
        newest = self._good(request, self._receipt_of(request.extra_info))
        return FindReceiptAnswer(extra_info=encode_pop_receipt(replace(newest, queue_offset=request.offset)))

    def _good(self, request: ChangeInvisibleTime | FindReceipt, receipt: PopReceipt) -> PopReceipt:
        """The receipt that is good now; raises Refused if its time is over."""
        topic, offset, now_ms = request.topic, request.offset, self._store.time.now_ms()
        newest = self._changed.newest(topic, request.consumer_group, offset, receipt)
        if newest.pop_time_ms + newest.invisible_time_ms <= now_ms:
            raise Refused(
                ResponseCode.NO_MESSAGE,
                f"the receipt of the message at offset {offset} of queue {request.queue_id} of {topic} ended"
                f" {now_ms - newest.pop_time_ms - newest.invisible_time_ms} ms ago",
            )
        return newest

    # Checks and answers

    def _check_queue(self, topic: str, queue_id: int) -> tuple[int, int]:
        """The first offset and the end of a queue."""
        self._check_topic(topic, queue_id)
        return self._store.queues.min_offset(topic, queue_id), self._store.queues.max_offset(topic, queue_id)

    def _check_topic(self, topic: str, queue_id: int) -> None:
        self._check_master()
        config = self._topics.get(topic)
        if config is None:
            raise Refused(ResponseCode.TOPIC_NOT_EXIST, f"the topic {topic} does not exist")
        if not 0 <= queue_id < config.read_queue_nums:
            raise Refused(
                ResponseCode.MESSAGE_ILLEGAL,
                f"queue {queue_id} is not one of the {config.read_queue_nums} read queues of {topic}",
            )

    def _check_master(self) -> None:
        if not self._role.now.is_master:
            raise Refused(
                ResponseCode.SERVICE_NOT_AVAILABLE,
                f"this broker is replica {self._role.now.broker_id}: only the master takes acknowledgements",
            )

    def _receipt_of(self, text: str) -> PopReceipt:
        try:
            return self._checked(decode_pop_receipt(text))
        except RemoteProtocolError as problem:
            raise Refused(ResponseCode.MESSAGE_ILLEGAL, str(problem)) from None

    def _checked(self, receipt: PopReceipt) -> PopReceipt:
        config = self._topics.get(self._revive_log.topic)
        queues = config.write_queue_nums if config is not None else 0
        if not receipt.is_ordered and not 0 <= receipt.revive_queue_id < queues:
            raise Refused(
                ResponseCode.MESSAGE_ILLEGAL,
                f"the receipt names revive queue {receipt.revive_queue_id}, expected 0 to {queues - 1}",
            )
        return receipt


def _settle_as(waiting: Sequence[Settle], status: AppendStatus) -> None:
    _settle(waiting, refusal_of(status))


def _settle(waiting: Sequence[Settle], refusal: Refused | None = None) -> None:
    for settle in waiting:
        settle(refusal)


def _answer(answered: "asyncio.Future[Answer]", refusal: Refused | None) -> None:
    if answered.done():
        return
    if refusal is None:
        answered.set_result(Answer())
    else:
        answered.set_exception(refusal)


def _once(settle: Settle, parts: int) -> Settle:
    """Settle once all parts have ended, with the last refusal."""
    if parts == 1:
        return settle
    refused: Refused | None = None

    def settle_part(refusal: Refused | None) -> None:
        nonlocal parts, refused
        parts -= 1
        refused = refusal or refused
        if not parts:
            settle(refused)

    return settle_part


def _no_message(topic: str, queue_id: int, offset: int, first: int, end: int) -> Refused:
    return Refused(
        ResponseCode.NO_MESSAGE,
        f"queue {queue_id} of {topic} has no message at offset {offset}: it has {first} to {end - 1}",
    )


def _require(result: AppendResult) -> None:
    if not result.is_ok:
        raise Refused(ResponseCode.SYSTEM_ERROR, f"{result.status.value}: {result.reason}")
