"""Acknowledgements of popped messages, and the records that a broker keeps about pops."""

from collections.abc import Mapping, Sequence
from typing import ClassVar

from msgspec import field

from pyromq.protocol.bodies.body import Body, Int32, Int64


class BatchAck(Body):
    """Acknowledged offsets of one pop: bit n of `bit_set`, lowest first, means offset `start_offset` + n."""

    wire_aliases: ClassVar[Mapping[str, str]] = {
        "bitSet": "b",
        "consumerGroup": "c",
        "invisibleTime": "it",
        "popTime": "pt",
        "queueId": "q",
        "retry": "r",
        "reviveQueueId": "rq",
        "startOffset": "so",
        "topic": "t",
    }

    bit_set: bytes = field(name="b", default=b"")
    consumer_group: str | None = field(name="c", default=None)
    invisible_time: Int64 = field(name="it", default=0)
    pop_time: Int64 = field(name="pt", default=0)
    queue_id: Int32 = field(name="q", default=0)
    retry: str | None = field(name="r", default=None)
    revive_queue_id: Int32 = field(name="rq", default=0)
    start_offset: Int64 = field(name="so", default=0)
    topic: str | None = field(name="t", default=None)

    def offsets(self, first: int, last: int) -> Sequence[int]:
        """The acknowledged offsets that lie between `first` and `last`."""
        bits, start = int.from_bytes(self.bit_set, "little"), self.start_offset
        if start < first:
            bits, start = bits >> min(first - start, bits.bit_length()), first
        room = max(last + 1 - start, 0)
        if bits.bit_length() > room:
            bits &= (1 << room) - 1
        if not bits & (bits + 1):
            return range(start, start + bits.bit_length())  # the usual: all of a pop without a filter
        digits = f"{bits:b}"[::-1]  # time is linear: strangers may send many bits
        return [start + bit for bit, digit in enumerate(digits) if digit == "1"]


class BatchAckMessageRequestBody(Body):
    """Acknowledgements of several pops."""

    acks: list[BatchAck] = []
    broker_name: str | None = None


class PopCheckPoint(Body):
    """A pop that waits for its acknowledgements, as the broker writes it into its revive log."""

    bit_map: Int32 = field(name="bm", default=0)
    broker_name: str | None = field(name="bn", default=None)
    consumer_group: str | None = field(name="c", default=None)
    queue_offset_diff: list[Int32] | None = field(name="d", default=None)
    invisible_time: Int64 = field(name="it", default=0)
    num: Int32 = field(name="n", default=0)
    pop_time: Int64 = field(name="pt", default=0)
    queue_id: Int32 = field(name="q", default=0)
    revive_offset: Int64 = field(name="ro", default=0)
    re_put_times: str | None = field(name="rp", default=None)
    start_offset: Int64 = field(name="so", default=0)
    topic: str | None = field(name="t", default=None)


class AckMsg(Body):
    """An acknowledgement, as the broker writes it into its revive log."""

    wire_aliases: ClassVar[Mapping[str, str]] = {
        "ackOffset": "ao",
        "brokerName": "bn",
        "consumerGroup": "c",
        "popTime": "pt",
        "queueId": "q",
        "startOffset": "so",
        "topic": "t",
    }

    ack_offset: Int64 = field(name="ao", default=0)
    broker_name: str | None = field(name="bn", default=None)
    consumer_group: str | None = field(name="c", default=None)
    pop_time: Int64 = field(name="pt", default=0)
    queue_id: Int32 = field(name="q", default=0)
    start_offset: Int64 = field(name="so", default=0)
    topic: str | None = field(name="t", default=None)


class BatchAckMsg(AckMsg):
    """Acknowledgements of several messages of one pop, as in the revive log."""

    wire_aliases: ClassVar[Mapping[str, str]] = {**AckMsg.wire_aliases, "ackOffsetList": "aol"}

    ack_offset_list: list[Int64] = field(name="aol", default_factory=list)
