"""The records that a broker keeps about pops, in messages of its revive topics."""

from collections.abc import Mapping
from typing import ClassVar

from msgspec import field

from pyromq.protocol.body import Body, Int32, Int64


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
