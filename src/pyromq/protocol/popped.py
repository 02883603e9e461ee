"""Popped messages: the receipt of each, and the requests that a consumer makes with it."""

from collections.abc import Iterable, Iterator, Mapping

from msgspec.structs import replace

from pyromq.errors import RemoteProtocolError
from pyromq.protocol.pop_receipt import (
    NORMAL_TOPIC,
    PopReceipt,
    QueueKey,
    decode_pop_receipt,
    encode_pop_receipt,
    marked_topic,
    retry_mark_of,
)
from pyromq.protocol.properties import INNER_MULTI_QUEUE_OFFSET, LITE_TOPIC, POP_CK
from pyromq.protocol.record import StoredMessage, decode_records
from pyromq.protocol.requests.lite import PopLiteMessageAnswer
from pyromq.protocol.requests.popping import (
    AckMessage,
    BatchAck,
    ChangeInvisibleTime,
    ChangeInvisibleTimeAnswer,
    FindReceipt,
    PopMessageAnswer,
)


def receipt_of(
    record: StoredMessage, broker_name: str, answer: PopMessageAnswer, starts: Mapping[QueueKey, int]
) -> PopReceipt:
    """The receipt that a record brings along, or the one that the answer implies."""
    own = record.get(POP_CK)
    if own is not None:
        return decode_pop_receipt(own)
    mark = retry_mark_of(record.topic)
    return PopReceipt(
        starts.get((mark, record.queue_id), record.queue_offset),
        answer.pop_time,
        answer.invisible_time,
        answer.revive_qid,
        mark,
        broker_name,
        record.queue_id,
        record.queue_offset,
    )


def lite_records(
    answer: PopLiteMessageAnswer, broker_name: str
) -> Iterator[tuple[StoredMessage, str, PopReceipt]]:
    """The records of a pop, with their offsets in the lite topics; the lite topic and the receipt of each."""
    counts = (answer.order_count_info or "").split(";")
    for number, record in enumerate(decode_records(answer.body)):
        lite_topic, offset = record.get(LITE_TOPIC), record.get(INNER_MULTI_QUEUE_OFFSET) or ""
        if lite_topic is None or not offset.isdecimal():
            raise RemoteProtocolError(f"{broker_name} answered a lite pop with a message of no lite topic")
        record.queue_id, record.queue_offset = 0, int(offset)
        if number < len(counts) and counts[number].isdecimal():
            record.reconsume_times = int(counts[number])
        yield (
            record,
            lite_topic,
            PopReceipt(
                0,
                answer.pop_time,
                answer.invisible_time,
                answer.revive_qid,
                NORMAL_TOPIC,
                broker_name,
                0,
                record.queue_offset,
            ),
        )


def ack_request(receipt: PopReceipt, topic: str, group: str, offset: int) -> AckMessage:
    return AckMessage(
        consumer_group=group,
        topic=marked_topic(topic, group, receipt.retry_mark),
        queue_id=receipt.queue_id,
        extra_info=encode_pop_receipt(receipt),
        offset=offset,
        target_broker_name=receipt.broker_name,
    )


def batch_acks(popped: Iterable[tuple[PopReceipt, str, int]], group: str) -> list[BatchAck]:
    """Acknowledgements of messages, each given as receipt, topic and offset; those of one pop are one."""
    bits: dict[tuple[PopReceipt, str], int] = {}
    for receipt, topic, offset in popped:
        pop = (replace(receipt, queue_offset=None), topic)
        bits[pop] = bits.get(pop, 0) | 1 << (offset - receipt.checkpoint_offset)
    return [
        BatchAck(
            bit_set=acked.to_bytes((acked.bit_length() + 7) // 8, "little"),
            consumer_group=group,
            invisible_time=receipt.invisible_time_ms,
            pop_time=receipt.pop_time_ms,
            queue_id=receipt.queue_id,
            retry=receipt.retry_mark,
            revive_queue_id=receipt.revive_queue_id,
            start_offset=receipt.checkpoint_offset,
            topic=topic,
        )
        for (receipt, topic), acked in bits.items()
    ]


def find_request(receipt: PopReceipt, topic: str, group: str, offset: int) -> FindReceipt:
    """Asks for the receipt that replaced this one."""
    return FindReceipt(
        consumer_group=group,
        topic=marked_topic(topic, group, receipt.retry_mark),
        queue_id=receipt.queue_id,
        extra_info=encode_pop_receipt(receipt),
        offset=offset,
        target_broker_name=receipt.broker_name,
    )


def change_request(
    receipt: PopReceipt, topic: str, group: str, offset: int, invisible_ms: int
) -> ChangeInvisibleTime:
    return ChangeInvisibleTime(
        consumer_group=group,
        topic=marked_topic(topic, group, receipt.retry_mark),
        queue_id=receipt.queue_id,
        extra_info=encode_pop_receipt(receipt),
        offset=offset,
        invisible_time=invisible_ms,
        target_broker_name=receipt.broker_name,
    )


def changed_receipt(receipt: PopReceipt, offset: int, answer: ChangeInvisibleTimeAnswer) -> PopReceipt:
    """The receipt after a change of the invisible time."""
    return replace(
        receipt,
        checkpoint_offset=offset,
        pop_time_ms=answer.pop_time,
        invisible_time_ms=answer.invisible_time,
        revive_queue_id=answer.revive_qid,
        queue_offset=offset,
    )
