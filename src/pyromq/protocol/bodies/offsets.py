"""Offsets of groups, committed or reset by an operator."""

from pyromq.protocol.bodies.body import Body, Int32, Int64
from pyromq.protocol.bodies.queues import MessageQueue, MessageQueueForC
from pyromq.protocol.bodies.versions import DataVersion


class ResetOffsetBody(Body):
    """The offsets at which to continue, by queue."""

    offset_table: dict[MessageQueue, Int64] = {}


class ResetOffsetBodyForC(Body):
    """The same for clients whose JSON has no objects as keys."""

    offset_table: list[MessageQueueForC] = []


class GetConsumerStatusBody(Body):
    """The offsets of clients: those of one, or of each by its client id."""

    consumer_table: dict[str, dict[MessageQueue, Int64]] = {}
    message_queue_table: dict[MessageQueue, Int64] = {}


class QueryCorrectionOffsetBody(Body):
    """The lowest offset of several groups, by queue id."""

    correction_offsets: dict[Int32, Int64] = {}


class ConsumerOffsetSerializeWrapper(Body):
    """The offsets of every group by `topic@group`, then queue id; also `consumerOffset.json`."""

    data_version: DataVersion | None = None
    offset_table: dict[str, dict[Int32, Int64]] = {}


class DelayOffsetSerializeWrapper(Body):
    """The next offset to deliver of each delay level; also `delayOffset.json`."""

    data_version: DataVersion | None = None
    offset_table: dict[Int32, Int64] = {}


class OffsetSerializeWrapper(Body):
    """The offsets that a broadcasting client keeps in a file of its own."""

    offset_table: dict[MessageQueue, Int64] = {}
