"""Lite topics: names inside a parent topic of type LITE, to which clients subscribe while they run.

java: these codes do not fit into the two bytes of Apache's binary header; see binary_header.
"""

from enum import StrEnum

from msgspec import field

from pyromq.protocol.body import Body
from pyromq.protocol.catalogue import (
    BROKER,
    CLIENT,
    Answer,
    BodyAnswer,
    Int32,
    Int64,
    Request,
    RoutedRequest,
    TopicRequest,
    request,
)
from pyromq.protocol.codes import ResponseCode
from pyromq.protocol.needs import GET, LIST, NOTHING, SUB, UPDATE, cluster, group, topic


class LiteSubscriptionAction(StrEnum):
    PARTIAL_ADD = "PARTIAL_ADD"
    PARTIAL_REMOVE = "PARTIAL_REMOVE"
    COMPLETE_ADD = "COMPLETE_ADD"
    COMPLETE_REMOVE = "COMPLETE_REMOVE"


class OffsetOptionType(StrEnum):
    POLICY = "POLICY"
    OFFSET = "OFFSET"
    TAIL_N = "TAIL_N"
    TIMESTAMP = "TIMESTAMP"


POLICY_LAST, POLICY_MIN, POLICY_MAX = 0, 1, 2
"""Values of a POLICY: where the group is, the first message, the end."""


class OffsetOption(Body):
    """Where a group begins to read lite topics that a client subscribes to."""

    type: OffsetOptionType = OffsetOptionType.POLICY
    value: Int64 = POLICY_LAST


class LiteSubscriptionDTO(Body):
    """A change of the lite topics that one client reads."""

    action: LiteSubscriptionAction
    client_id: str
    group: str
    lite_topic_set: set[str] = set()
    offset_option: OffsetOption | None = None
    topic: str
    version: Int64 = 0


class LiteSubscriptionCtlRequestBody(Body):
    """Changes of the lite topics that clients read."""

    subscription_set: list[LiteSubscriptionDTO] = []


class GetBrokerLiteInfoResponseBody(Body):
    """The lite topics of a broker, in numbers."""

    cq_table_size: Int32 = 0
    current_lmq_num: Int32 = 0
    event_map_size: Int32 = 0
    group_meta: dict[str, set[str]] = {}
    lite_subscription_count: Int32 = 0
    max_lmq_num: Int32 = 0
    offset_table_size: Int32 = 0
    order_info_count: Int32 = 0
    store_type: str | None = None
    topic_meta: dict[str, Int32] = {}


class GetParentTopicInfoResponseBody(Body):
    """A parent topic: after how many minutes its lite topics expire, and who reads them."""

    groups: set[str] = set()
    lite_topic_count: Int32 = 0
    lmq_num: Int32 = 0
    topic: str | None = None
    ttl: Int32 = -1


class ClientGroup(Body):
    """A client of a group; `*` stands for all clients of a group that reads all lite topics."""

    client_id: str | None = None
    group: str | None = None


class LiteTopicOffset(Body):
    """Where a lite topic begins and ends."""

    last_update_timestamp: Int64 = 0
    max_offset: Int64 = 0
    min_offset: Int64 = 0


class GetLiteTopicInfoResponseBody(Body):
    """A lite topic on one broker."""

    lite_topic: str | None = None
    parent_topic: str | None = None
    sharding_to_broker: bool = False
    subscriber: list[ClientGroup] = []
    topic_offset: LiteTopicOffset | None = None


class GetLiteClientInfoResponseBody(Body):
    """The lite topics that one client of a lite group reads."""

    client_id: str | None = None
    group: str | None = None
    last_access_time: Int64 = 0
    last_consume_time: Int64 = 0
    lite_topic_count: Int32 = -1
    # java: the names of their light queues
    lite_topic_set: set[str] = set()
    parent_topic: str | None = None


class LiteOffsetWrapper(Body):
    """Where a lite topic ends, and where a group is in it."""

    broker_offset: Int64 = 0
    consumer_offset: Int64 = 0
    last_timestamp: Int64 = 0


class LiteLagInfo(Body):
    """How much of a lite topic a group has not consumed yet."""

    earliest_unconsumed_timestamp: Int64 = -1
    lag_count: Int64 = 0
    lite_topic: str | None = None


class GetLiteGroupInfoResponseBody(Body):
    """How far a lite group is behind, in one lite topic or in all."""

    earliest_unconsumed_timestamp: Int64 = -1
    group: str | None = None
    lag_count_top_k: list[LiteLagInfo] = field(name="lagCountTopK", default_factory=list)
    lag_timestamp_top_k: list[LiteLagInfo] = field(name="lagTimestampTopK", default_factory=list)
    lite_topic: str | None = None
    lite_topic_offset_wrapper: LiteOffsetWrapper | None = None
    parent_topic: str | None = None
    total_lag_count: Int64 = 0


class LiteTopicList(Body):
    """Lite topics of one parent topic."""

    lite_topics: list[str] = []
    # Where the next page begins; None after the last one.
    next: str | None = None


class PopLiteMessageAnswer(Answer):
    # Zero where nothing was found.
    pop_time: Int64 = 0
    invisible_time: Int64 = 0
    revive_qid: Int32 = 0
    start_offset_info: str | None = None
    msg_offset_info: str | None = None
    # How often each message was popped before, with semicolons in between.
    order_count_info: str | None = None
    body: bytes = b""


@request(
    200070,
    to=BROKER,
    needs=(topic(SUB), group(SUB)),
    accepts=(
        ResponseCode.SUCCESS,
        ResponseCode.PULL_NOT_FOUND,
        ResponseCode.POLLING_FULL,
        ResponseCode.POLLING_TIMEOUT,
    ),
)
class PopLiteMessage(TopicRequest[PopLiteMessageAnswer]):
    """Pop messages of the lite topics that a client subscribes to, in order; waits if there is none yet."""

    client_id: str
    consumer_group: str
    topic: str
    max_msg_num: Int32
    invisible_time: Int64
    poll_time: Int64
    born_time: Int64
    attempt_id: str | None = None


@request(
    200071,
    to=BROKER,
    needs=(topic(SUB, at="body.subscription_set.topic"), group(SUB, at="body.subscription_set.group")),
    java_name="lite_subscription_ctl",
)
class ChangeLiteSubscriptions(Request[Answer]):
    """Change the lite topics that clients read."""

    body: LiteSubscriptionCtlRequestBody


@request(200073, to=CLIENT, needs=NOTHING, oneway=True)
class NotifyUnsubscribeLite(RoutedRequest[Answer]):
    """Tell a client that another one reads a lite topic now."""

    lite_topic: str
    consumer_group: str
    client_id: str


@request(200074, to=BROKER, needs=(cluster(GET),))
class GetBrokerLiteInfo(Request[BodyAnswer[GetBrokerLiteInfoResponseBody]]):
    """Read how many lite topics, subscriptions and events a broker has."""


@request(200075, to=BROKER, needs=(topic(GET),))
class GetParentTopicInfo(TopicRequest[BodyAnswer[GetParentTopicInfoResponseBody]]):
    """Read how many lite topics a topic has, and which groups read them."""

    topic: str


@request(200076, to=BROKER, needs=(topic(GET, at="parent_topic"),))
class GetLiteTopicInfo(RoutedRequest[BodyAnswer[GetLiteTopicInfoResponseBody]]):
    """Read where a lite topic begins and ends, and who subscribes to it."""

    parent_topic: str | None = None
    lite_topic: str | None = None


@request(200077, to=BROKER, needs=(topic(GET, at="parent_topic"), group(GET, at="group")))
class GetLiteClientInfo(RoutedRequest[BodyAnswer[GetLiteClientInfoResponseBody]]):
    """Read which lite topics a client subscribes to."""

    parent_topic: str | None = None
    group: str | None = None
    client_id: str | None = None
    max_count: Int32 = 1000


@request(200078, to=BROKER, needs=(group(GET, at="group"),))
class GetLiteGroupInfo(RoutedRequest[BodyAnswer[GetLiteGroupInfoResponseBody]]):
    """Read how far a lite group is behind."""

    group: str
    lite_topic: str | None = None
    top_k: Int32 = 0


@request(200079, to=BROKER, needs=(group(UPDATE, at="group"),))
class TriggerLiteDispatch(RoutedRequest[Answer]):
    """Let a broker look through all lite topics of a group, or of one client, for messages."""

    group: str
    client_id: str | None = None


@request(30030, to=BROKER, needs=(topic(LIST),), extension=True)
class ListLiteTopics(TopicRequest[BodyAnswer[LiteTopicList]]):
    """List the lite topics of a topic that have messages, page by page."""

    topic: str
    # Where the page begins: the `next` of the one before.
    begin: str | None = None
    max_count: Int32 = 1000
