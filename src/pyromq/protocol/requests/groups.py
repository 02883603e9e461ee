"""Consumer groups of one broker: their settings and what they read."""

from enum import StrEnum

from msgspec import field

from pyromq.protocol.body import Body, DataVersion, Int64
from pyromq.protocol.catalogue import (
    BROKER,
    Answer,
    BodyAnswer,
    Int32,
    Request,
    RoutedRequest,
    TopicRequest,
    request,
)
from pyromq.protocol.needs import CREATE, DELETE, GET, LIST, UPDATE, every_group, group, topic
from pyromq.protocol.requests.membership import SubscriptionData
from pyromq.protocol.requests.topics import TopicListAnswer


class GroupRetryPolicyType(StrEnum):
    EXPONENTIAL = "EXPONENTIAL"
    CUSTOMIZED = "CUSTOMIZED"


def _delays_of_the_levels() -> list[int]:
    seconds = [1, 5, 10, 30, *(60 * minutes for minutes in (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 20, 30, 60, 120))]
    return [second * 1000 for second in seconds]


class CustomizedRetryPolicy(Body):
    """The wait before each further attempt, in milliseconds."""

    next: list[Int64] = field(default_factory=_delays_of_the_levels)


class ExponentialRetryPolicy(Body):
    """A wait that grows by a factor up to a limit, in milliseconds."""

    initial: Int64 = 5_000
    max: Int64 = 7_200_000
    multiplier: Int64 = 2


class GroupRetryPolicy(Body):
    """The delays between retries of a group."""

    customized_retry_policy: CustomizedRetryPolicy | None = None
    exponential_retry_policy: ExponentialRetryPolicy | None = None
    type: GroupRetryPolicyType = GroupRetryPolicyType.CUSTOMIZED


class SimpleSubscriptionData(Body):
    """A subscription that is fixed in the group's configuration."""

    expression: str | None = None
    expression_type: str | None = None
    topic: str | None = None
    version: Int64 = 0


class SubscriptionGroupConfig(Body):
    """One consumer group on one broker."""

    attributes: dict[str, str] = {}
    broker_id: Int64 = 0
    consume_broadcast_enable: bool = True
    consume_enable: bool = True
    consume_from_min_enable: bool = True
    consume_message_orderly: bool = False
    consume_timeout_minute: Int32 = 15
    group_name: str
    group_retry_policy: GroupRetryPolicy = field(default_factory=GroupRetryPolicy)
    group_sys_flag: Int32 = 0
    notify_consumer_ids_changed_enable: bool = True
    retry_max_times: Int32 = 16
    retry_queue_nums: Int32 = 1
    subscription_data_set: list[SimpleSubscriptionData] | None = None
    which_broker_when_consume_slowly: Int64 = 1


class SubscriptionGroupList(Body):
    """Groups to create or change in one request."""

    group_config_list: list[SubscriptionGroupConfig] = []


class SubscriptionGroupWrapper(Body):
    """Every group of a broker by name, as brokers send it and keep it in `subscriptionGroup.json`."""

    data_version: DataVersion = field(default_factory=DataVersion)
    forbidden_table: dict[str, dict[str, Int32]] = {}
    subscription_group_table: dict[str, SubscriptionGroupConfig] = {}


class GroupForbidden(Body):
    """Whether a group may read a topic."""

    group: str | None = None
    readable: bool | None = None
    topic: str | None = None


class GroupList(Body):
    """Names of groups."""

    group_list: list[str] = []


class QuerySubscriptionResponseBody(Body):
    """A group's subscription to a topic, as its broker knows it."""

    group: str | None = None
    subscription_data: SubscriptionData | None = None
    topic: str | None = None


@request(
    200,
    to=BROKER,
    needs=(group(CREATE, at="body.group_name"),),
    java_name="update_and_create_subscriptiongroup",
)
class CreateOrUpdateGroup(Request[Answer]):
    """Create a consumer group or change its settings."""

    body: SubscriptionGroupConfig


@request(
    225,
    to=BROKER,
    needs=(group(CREATE, at="body.group_config_list.group_name"),),
    java_name="update_and_create_subscriptiongroup_list",
)
class CreateOrUpdateGroups(Request[Answer]):
    """Create several consumer groups or change their settings."""

    body: SubscriptionGroupList


class GetAllGroupConfigsAnswer(Answer):
    # Absent where the broker knows no pages.
    total_group_num: Int32 | None = None
    body: SubscriptionGroupWrapper


@request(201, to=BROKER, needs=(every_group(LIST),), java_name="get_all_subscriptiongroup_config")
class GetAllGroupConfigs(Request[GetAllGroupConfigsAnswer]):
    """Read the settings of all groups of a broker, or one page of them."""

    # java: mandatory there, but releases before 5.3 send no fields at all
    group_seq: Int32 | None = None
    data_version: str | None = None
    max_group_num: Int32 | None = None


@request(352, to=BROKER, needs=(group(GET, at="group"),), java_name="get_subscriptiongroup_config")
class GetGroupConfig(RoutedRequest[BodyAnswer[SubscriptionGroupConfig]]):
    """Read the settings of one group."""

    group: str


@request(207, to=BROKER, needs=(group(DELETE, at="group_name"),), java_name="delete_subscriptiongroup")
class DeleteGroup(RoutedRequest[Answer]):
    """Delete a group, with its offsets if asked for."""

    group_name: str
    clean_offset: bool = False


@request(
    353,
    to=BROKER,
    needs=(group(UPDATE, at="group"), topic(UPDATE)),
    java_name="update_and_get_group_forbidden",
)
class UpdateGroupForbidden(TopicRequest[BodyAnswer[GroupForbidden]]):
    """Forbid or allow a group to read a topic; the answer says which applies now."""

    group: str
    topic: str
    readable: bool | None = None


@request(300, to=BROKER, needs=(topic(GET),), java_name="query_topic_consume_by_who")
class GetGroupsOfTopic(TopicRequest[BodyAnswer[GroupList]]):
    """List the groups that read a topic."""

    topic: str


@request(343, to=BROKER, needs=(group(GET, at="group"),), java_name="query_topics_by_consumer")
class GetTopicsOfGroup(RoutedRequest[TopicListAnswer]):
    """List the topics that a group reads."""

    group: str


@request(
    345, to=BROKER, needs=(group(GET, at="group"), topic(GET)), java_name="query_subscription_by_consumer"
)
class GetSubscriptionOfGroup(TopicRequest[BodyAnswer[QuerySubscriptionResponseBody]]):
    """Read the filter of a group for a topic."""

    group: str
    topic: str | None = None
