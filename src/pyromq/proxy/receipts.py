"""The handle of a received message: the broker's receipt and, behind it, where the log has the message."""

from typing import NamedTuple

from pyromq.errors import RemoteProtocolError
from pyromq.protocol.pop_receipt import (
    PopReceipt,
    decode_offsets,
    decode_order_counts,
    decode_pop_receipt,
    decode_start_offsets,
    encode_pop_receipt,
)
from pyromq.protocol.popped import (
    ack_request,
    change_request,
    changed_receipt,
    find_request,
    lite_records,
    receipt_of,
)
from pyromq.protocol.properties import POP_CK
from pyromq.protocol.record import StoredMessage, decode_records
from pyromq.protocol.requests.lite import PopLiteMessageAnswer
from pyromq.protocol.requests.popping import (
    AckMessage,
    ChangeInvisibleTime,
    ChangeInvisibleTimeAnswer,
    FindReceipt,
    FindReceiptAnswer,
    PopMessageAnswer,
)
from pyromq.proxy.codes import Code, Rejected

_RECEIPT_WORDS = 8


class Handle(NamedTuple):
    receipt: PopReceipt
    log_offset: int
    lite_topic: str | None = None
    """Clients send it next to the text of the handle."""

    def __str__(self) -> str:
        return f"{encode_pop_receipt(self.receipt)} {self.log_offset}"

    @property
    def expires_ms(self) -> int:
        return self.receipt.pop_time_ms + self.receipt.invisible_time_ms

    @property
    def offset(self) -> int:
        assert self.receipt.queue_offset is not None
        return self.receipt.queue_offset

    def ack(self, topic: str, group: str) -> AckMessage:
        asked = ack_request(self.receipt, topic, group, self.offset)
        asked.lite_topic = self.lite_topic
        return asked

    def change(
        self, topic: str, group: str, invisible_ms: int, *, suspends: bool = False
    ) -> ChangeInvisibleTime:
        asked = change_request(self.receipt, topic, group, self.offset, invisible_ms)
        asked.lite_topic, asked.suspend = self.lite_topic, suspends
        return asked

    def find(self, topic: str, group: str) -> FindReceipt:
        return find_request(self.receipt, topic, group, self.offset)

    def found(self, answer: FindReceiptAnswer) -> "Handle":
        """The handle that is good now; raises RemoteProtocolError."""
        return Handle(decode_pop_receipt(answer.extra_info), self.log_offset)

    def changed(self, answer: ChangeInvisibleTimeAnswer) -> "Handle":
        """The handle after a change."""
        return self._replace(receipt=changed_receipt(self.receipt, self.offset, answer))


def decode_handle(text: str, lite_topic: str = "") -> Handle:
    """Raises Rejected if the text is not a handle."""
    words = text.split(" ")
    try:
        receipt = decode_pop_receipt(" ".join(words[:_RECEIPT_WORDS]))
        if receipt.queue_offset is None or len(words) < _RECEIPT_WORDS + 1:
            raise RemoteProtocolError("the handle ends too early")
        # java: handles of Apache's proxy in the broker's process may have a zero in between
        return Handle(receipt, int(words[-1]), lite_topic or None)
    except (RemoteProtocolError, ValueError) as problem:
        raise Rejected(Code.INVALID_RECEIPT_HANDLE, f"the receipt handle {text[:200]!r}: {problem}") from None


def popped(answer: PopMessageAnswer, broker_name: str) -> list[tuple[StoredMessage, Handle]]:
    """The messages of a pop with their handles; raises RemoteProtocolError if some have none."""
    found: list[tuple[StoredMessage, Handle]] = []
    starts = decode_start_offsets(answer.start_offset_info or "")
    offsets = decode_offsets(answer.msg_offset_info or "")
    counts = decode_order_counts(answer.order_count_info or "")
    for stored in decode_records(answer.body):
        receipt = receipt_of(stored, broker_name, answer, starts)
        if stored.get(POP_CK) is None:
            key = (receipt.retry_mark, stored.queue_id)
            if starts and (key not in starts or stored.queue_offset not in offsets.get(key, ())):
                raise RemoteProtocolError(
                    f"a pop from {broker_name} does not say where a message of {key} was"
                )
            count = counts.get((*key, stored.queue_offset), counts.get((*key, None), 0))
            if receipt.is_ordered and count > 0:
                stored.reconsume_times = count
        found.append((stored, Handle(receipt, stored.log_offset)))
    return found


def lite_popped(answer: PopLiteMessageAnswer, broker_name: str) -> list[tuple[StoredMessage, Handle]]:
    """The same for a pop of lite topics; the messages have their offsets there."""
    return [
        (record, Handle(receipt, record.log_offset, lite_topic))
        for record, lite_topic, receipt in lite_records(answer, broker_name)
    ]
