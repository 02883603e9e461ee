"""The results of the store's operations, in RocketMQ's terms."""

from enum import Enum

import msgspec

from pyromq.protocol.message_id import encode_offset_message_id
from pyromq.protocol.record import Host


class AppendStatus(Enum):
    """java: the put statuses; the store itself does not use those about replicas and timers."""

    PUT_OK = "PUT_OK"
    FLUSH_DISK_TIMEOUT = "FLUSH_DISK_TIMEOUT"
    FLUSH_SLAVE_TIMEOUT = "FLUSH_SLAVE_TIMEOUT"
    SLAVE_NOT_AVAILABLE = "SLAVE_NOT_AVAILABLE"
    SERVICE_NOT_AVAILABLE = "SERVICE_NOT_AVAILABLE"
    CREATE_MAPPED_FILE_FAILED = "CREATE_MAPPED_FILE_FAILED"
    MESSAGE_ILLEGAL = "MESSAGE_ILLEGAL"
    PROPERTIES_SIZE_EXCEEDED = "PROPERTIES_SIZE_EXCEEDED"
    LMQ_CONSUME_QUEUE_NUM_EXCEEDED = "LMQ_CONSUME_QUEUE_NUM_EXCEEDED"
    WHEEL_TIMER_MSG_ILLEGAL = "WHEEL_TIMER_MSG_ILLEGAL"
    WHEEL_TIMER_FLOW_CONTROL = "WHEEL_TIMER_FLOW_CONTROL"
    WHEEL_TIMER_NOT_ENABLE = "WHEEL_TIMER_NOT_ENABLE"


class AppendResult(msgspec.Struct, frozen=True, gc=False):
    """The result of an append; for a batch, the offsets of its first message and the size of all."""

    status: AppendStatus
    log_offset: int = -1
    size_bytes: int = 0
    queue_offset: int = -1
    store_timestamp: int = 0
    store_host: bytes = b""
    record_offsets: tuple[int, ...] = ()
    reason: str = ""

    @property
    def is_ok(self) -> bool:
        return self.status is AppendStatus.PUT_OK

    @property
    def end_offset(self) -> int:
        """The append is safe on disk once the log is flushed up to here."""
        return self.log_offset + self.size_bytes

    @property
    def message_count(self) -> int:
        return len(self.record_offsets) or 1

    @property
    def message_id(self) -> str:
        # java: the ids of a batch are joined with commas
        host = Host(self.store_host[:-4], int.from_bytes(self.store_host[-4:], "big"))
        offsets = self.record_offsets or (self.log_offset,)
        return ",".join(encode_offset_message_id(host, offset) for offset in offsets)


class QueueAdvance(msgspec.Struct, frozen=True, order=True, gc=False):
    """A queue has messages up to here now."""

    topic: str
    queue_id: int
    max_offset: int


class ReadStatus(Enum):
    """java: the get-message statuses that a store by itself can give, and one of ours."""

    FOUND = "FOUND"
    NO_MATCHED_MESSAGE = "NO_MATCHED_MESSAGE"
    MESSAGE_WAS_REMOVING = "MESSAGE_WAS_REMOVING"
    OFFSET_FOUND_NULL = "OFFSET_FOUND_NULL"
    OFFSET_OVERFLOW_BADLY = "OFFSET_OVERFLOW_BADLY"
    OFFSET_OVERFLOW_ONE = "OFFSET_OVERFLOW_ONE"
    OFFSET_TOO_SMALL = "OFFSET_TOO_SMALL"
    NO_MATCHED_LOGIC_QUEUE = "NO_MATCHED_LOGIC_QUEUE"
    NO_MESSAGE_IN_QUEUE = "NO_MESSAGE_IN_QUEUE"
    QUEUE_IS_MENDED = "QUEUE_IS_MENDED"
    """The unit at this offset is damaged and is being rebuilt from the log: ask again."""
    IN_TIER = "IN_TIER"
    """The message is not on this disk any more, and is being fetched: ask again."""


class ReadResult(msgspec.Struct, frozen=True):
    """Records found in a queue: slices of the mapped log, each one record or several that lie together."""

    status: ReadStatus
    next_offset: int
    min_offset: int
    max_offset: int
    views: list[memoryview] = []
    message_count: int = 0
    size_bytes: int = 0
    suggest_replica: bool = False


class Boundary(Enum):
    """Which message to choose if a time lies between two messages, or several have it."""

    LOWER = "LOWER"
    UPPER = "UPPER"
