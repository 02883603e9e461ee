"""Offsets: where groups stand, and where an operator wants them to stand."""

from pyromq.protocol.bodies.body import Body, Int32, Int64
from pyromq.protocol.bodies.queues import MessageQueue, MessageQueueForC
from pyromq.protocol.bodies.versions import DataVersion


class ResetOffsetBody(Body):
    """Where to continue, by queue."""

    offset_table: dict[MessageQueue, Int64] = {}


class ResetOffsetBodyForC(Body):
    """Where to continue, for clients whose JSON has no objects as keys."""

    offset_table: list[MessageQueueForC] = []


class GetConsumerStatusBody(Body):
    """Where clients stand: one client's own queues, or those of each client by its id."""

    consumer_table: dict[str, dict[MessageQueue, Int64]] = {}
    message_queue_table: dict[MessageQueue, Int64] = {}


class QueryCorrectionOffsetBody(Body):
    """The least offset any of several groups has reached, by queue id."""

    correction_offsets: dict[Int32, Int64] = {}


class ConsumerOffsetSerializeWrapper(Body):
    """Where every group stands: `topic@group`, then queue id; also `consumerOffset.json`."""

    data_version: DataVersion | None = None
    offset_table: dict[str, dict[Int32, Int64]] = {}


class DelayOffsetSerializeWrapper(Body):
    """How far each delay level is delivered; also `delayOffset.json`."""

    data_version: DataVersion | None = None
    offset_table: dict[Int32, Int64] = {}


class OffsetSerializeWrapper(Body):
    """The offsets that a broadcasting client keeps in a file of its own."""

    offset_table: dict[MessageQueue, Int64] = {}
