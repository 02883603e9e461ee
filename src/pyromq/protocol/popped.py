"""Popped messages: the receipt of each, and the requests that a consumer makes with it."""

from collections.abc import Mapping

from msgspec.structs import replace

from pyromq.protocol.pop_receipt import (
    PopReceipt,
    QueueKey,
    decode_pop_receipt,
    encode_pop_receipt,
    marked_topic,
    retry_mark_of,
)
from pyromq.protocol.properties import POP_CK
from pyromq.protocol.record import StoredMessage
from pyromq.protocol.requests.popping import (
    AckMessage,
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


def ack_request(receipt: PopReceipt, topic: str, group: str, offset: int) -> AckMessage:
    return AckMessage(
        consumer_group=group,
        topic=marked_topic(topic, group, receipt.retry_mark),
        queue_id=receipt.queue_id,
        extra_info=encode_pop_receipt(receipt),
        offset=offset,
        target_broker_name=receipt.broker_name,
    )


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
