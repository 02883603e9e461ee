"""Heartbeats: a client reports its id, its producer groups and its subscriptions to every broker it uses."""

from enum import StrEnum

from msgspec import field

from pyromq.protocol.bodies.body import Body, Int32, Int64


class ConsumeType(StrEnum):
    CONSUME_ACTIVELY = "CONSUME_ACTIVELY"
    CONSUME_PASSIVELY = "CONSUME_PASSIVELY"
    CONSUME_POP = "CONSUME_POP"


class MessageModel(StrEnum):
    BROADCASTING = "BROADCASTING"
    CLUSTERING = "CLUSTERING"


class ConsumeFromWhere(StrEnum):
    CONSUME_FROM_LAST_OFFSET = "CONSUME_FROM_LAST_OFFSET"
    CONSUME_FROM_LAST_OFFSET_AND_FROM_MIN_WHEN_BOOT_FIRST = (
        "CONSUME_FROM_LAST_OFFSET_AND_FROM_MIN_WHEN_BOOT_FIRST"
    )
    CONSUME_FROM_MIN_OFFSET = "CONSUME_FROM_MIN_OFFSET"
    CONSUME_FROM_MAX_OFFSET = "CONSUME_FROM_MAX_OFFSET"
    CONSUME_FROM_FIRST_OFFSET = "CONSUME_FROM_FIRST_OFFSET"
    CONSUME_FROM_TIMESTAMP = "CONSUME_FROM_TIMESTAMP"


class SubscriptionData(Body):
    """A group's subscription to a topic; `sub_version` is the time of its last change."""

    class_filter_mode: bool = False
    code_set: set[Int32] = set()
    expression_type: str = "TAG"
    sub_string: str | None = None
    sub_version: Int64 = 0
    tags_set: set[str] = set()
    topic: str


class ProducerData(Body):
    """A producer group of the client."""

    group_name: str


class ConsumerData(Body):
    """A consumer group of the client."""

    consume_from_where: ConsumeFromWhere | None = None
    consume_type: ConsumeType | None = None
    group_name: str
    message_model: MessageModel | None = None
    subscription_data_set: list[SubscriptionData] = []
    unit_mode: bool = False


class HeartbeatData(Body):
    """One heartbeat. A fingerprint other than 0 stands for the subscriptions of an earlier heartbeat."""

    client_id: str = field(name="clientID")
    consumer_data_set: list[ConsumerData] = []
    heartbeat_fingerprint: Int32 = 0
    producer_data_set: list[ProducerData] = []
    without_sub: bool = False


class CheckClientRequestBody(Body):
    """A subscription that the broker checks before the client starts."""

    client_id: str | None = None
    group: str | None = None
    namespace: str | None = None
    subscription_data: SubscriptionData | None = None


class QuerySubscriptionResponseBody(Body):
    """A group's subscription to a topic, as its broker knows it."""

    group: str | None = None
    subscription_data: SubscriptionData | None = None
    topic: str | None = None
