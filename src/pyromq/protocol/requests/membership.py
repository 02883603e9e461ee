"""Connected clients: their heartbeats, their unregistration, and questions about them."""

from enum import StrEnum

from msgspec import field

from pyromq.protocol.body import Body, Int32, Int64
from pyromq.protocol.catalogue import BROKER, Answer, BodyAnswer, Request, RoutedRequest, request, wire
from pyromq.protocol.needs import GET, SUB, cluster, group, topic


class ConsumeType(StrEnum):
    CONSUME_ACTIVELY = "CONSUME_ACTIVELY"
    CONSUME_PASSIVELY = "CONSUME_PASSIVELY"
    CONSUME_POP = "CONSUME_POP"


class MessageModel(StrEnum):
    BROADCASTING = "BROADCASTING"
    CLUSTERING = "CLUSTERING"
    LITE_SELECTIVE = "LITE_SELECTIVE"


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


class ClientLanguage(StrEnum):
    """The languages of clients by name, in the order of their numbers in frames."""

    JAVA = "JAVA"
    CPP = "CPP"
    DOTNET = "DOTNET"
    PYTHON = "PYTHON"
    DELPHI = "DELPHI"
    ERLANG = "ERLANG"
    RUBY = "RUBY"
    OTHER = "OTHER"
    HTTP = "HTTP"
    GO = "GO"
    PHP = "PHP"
    OMS = "OMS"
    RUST = "RUST"
    NODE_JS = "NODE_JS"


class ClientConnection(Body):
    """One connected client."""

    client_addr: str | None = None
    client_id: str | None = None
    language: ClientLanguage | None = None
    version: Int32 = 0


class ConsumerConnection(Body):
    """The members of a consumer group, and their subscriptions."""

    connection_set: list[ClientConnection] = []
    consume_from_where: ConsumeFromWhere | None = None
    consume_type: ConsumeType | None = None
    message_model: MessageModel | None = None
    subscription_table: dict[str, SubscriptionData] = {}


class ProducerConnection(Body):
    """The members of a producer group."""

    connection_set: list[ClientConnection] = []


class ProducerInfo(Body):
    """One producer."""

    client_id: str | None = None
    language: ClientLanguage | None = None
    last_update_timestamp: Int64 = 0
    remote_ip: str | None = field(name="remoteIP", default=None)
    version: Int32 = 0


class ProducerTableInfo(Body):
    """The producers of a broker, by group."""

    data: dict[str, list[ProducerInfo]] = {}


class GetConsumerListByGroupResponseBody(Body):
    """The client ids of the members of a consumer group."""

    consumer_id_list: list[str] = []


class SendHeartbeatAnswer(Answer):
    supports_heartbeat_v2: bool | None = wire(name="IS_SUPPORT_HEART_BEAT_V2", default=None)
    is_subscription_changed: bool | None = wire(name="IS_SUB_CHANGE", default=None)
    conflict: str | None = wire(name="subscriptionConflict", default=None)


@request(
    34,
    to=BROKER,
    needs=(
        group(SUB, at="body.consumer_data_set.group_name"),
        topic(SUB, at="body.consumer_data_set.subscription_data_set.topic"),
    ),
    java_name="heart_beat",
)
class SendHeartbeat(RoutedRequest[SendHeartbeatAnswer]):
    """Report that a client is alive, with its producer groups and its subscriptions."""

    body: HeartbeatData


@request(35, to=BROKER, needs=(group(SUB, may_be_missing=True),))
class UnregisterClient(RoutedRequest[Answer]):
    """Unregister a client from a producer or consumer group."""

    client_id: str = wire(name="clientID")
    producer_group: str | None = None
    consumer_group: str | None = None


@request(46, to=BROKER, needs=(group(SUB, at="body.group"), topic(SUB, at="body.subscription_data.topic")))
class CheckClientConfig(Request[Answer]):
    """Check whether the broker can apply the filter of a consumer."""

    body: CheckClientRequestBody


@request(38, to=BROKER, needs=(group(SUB, GET),), java_name="get_consumer_list_by_group")
class GetConsumerIds(RoutedRequest[BodyAnswer[GetConsumerListByGroupResponseBody]]):
    """List the members of a consumer group, which then divide the queues among themselves."""

    consumer_group: str


@request(203, to=BROKER, needs=(group(GET),), java_name="get_consumer_connection_list")
class GetConsumerConnections(RoutedRequest[BodyAnswer[ConsumerConnection]]):
    """List the members of a consumer group and their subscriptions."""

    consumer_group: str


@request(204, to=BROKER, needs=(cluster(GET),), java_name="get_producer_connection_list")
class GetProducerConnections(RoutedRequest[BodyAnswer[ProducerConnection]]):
    """List the members of a producer group."""

    producer_group: str


@request(328, to=BROKER, needs=(cluster(GET),), java_name="get_all_producer_info")
class GetAllProducers(Request[BodyAnswer[ProducerTableInfo]]):
    """List the producers of all groups."""
