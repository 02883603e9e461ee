"""The state of one consumer, as it reports it."""

from enum import StrEnum

from msgspec import field

from pyromq.protocol.bodies.body import Body, Int32, Int64
from pyromq.protocol.bodies.heartbeat import SubscriptionData
from pyromq.protocol.bodies.queues import MessageQueue


class ProcessQueueInfo(Body):
    """A consumer's state of one queue that it pulls."""

    cached_msg_count: Int32 = 0
    cached_msg_max_offset: Int64 = 0
    cached_msg_min_offset: Int64 = 0
    cached_msg_size_in_mi_b: Int32 = field(name="cachedMsgSizeInMiB", default=0)
    commit_offset: Int64 = 0
    droped: bool = False  # java: sic
    last_consume_timestamp: Int64 = 0
    last_lock_timestamp: Int64 = 0
    last_pull_timestamp: Int64 = 0
    locked: bool = False
    transaction_msg_count: Int32 = 0
    transaction_msg_max_offset: Int64 = 0
    transaction_msg_min_offset: Int64 = 0
    try_unlock_times: Int64 = 0


class PopProcessQueueInfo(Body):
    """A consumer's state of one queue that it pops."""

    droped: bool = False  # java: sic
    last_pop_timestamp: Int64 = 0
    wait_ack_count: Int32 = 0


class ConsumeStatus(Body):
    """A consumer's figures for one topic: times in milliseconds, rates per second."""

    consume_failed_msgs: Int64 = 0
    consume_failed_tps: float = field(name="consumeFailedTPS", default=0.0)
    consume_ok_tps: float = field(name="consumeOKTPS", default=0.0)
    consume_rt: float = field(name="consumeRT", default=0.0)
    pull_rt: float = field(name="pullRT", default=0.0)
    pull_tps: float = field(name="pullTPS", default=0.0)


class ConsumerRunningInfo(Body):
    """The whole report of a consumer about itself; `jstack` has the stacks of its threads."""

    jstack: str | None = None
    mq_pop_table: dict[MessageQueue, PopProcessQueueInfo] = {}
    mq_table: dict[MessageQueue, ProcessQueueInfo] = {}
    properties: dict[str, str] = {}
    status_table: dict[str, ConsumeStatus] = {}
    subscription_set: list[SubscriptionData] = []
    user_consumer_info: dict[str, str] = {}


class CMResult(StrEnum):
    CR_SUCCESS = "CR_SUCCESS"
    CR_LATER = "CR_LATER"
    CR_ROLLBACK = "CR_ROLLBACK"
    CR_COMMIT = "CR_COMMIT"
    CR_THROW_EXCEPTION = "CR_THROW_EXCEPTION"
    CR_RETURN_NULL = "CR_RETURN_NULL"


class ConsumeMessageDirectlyResult(Body):
    """The result of a message that an operator had one consumer handle."""

    auto_commit: bool = True
    consume_result: CMResult | None = None
    order: bool = False
    remark: str | None = None
    spent_time_mills: Int64 = 0
