"""Consumer groups of one broker: their settings and what they read."""

from pyromq.protocol.bodies.groups import (
    GroupForbidden,
    GroupList,
    SubscriptionGroupConfig,
    SubscriptionGroupList,
    SubscriptionGroupWrapper,
)
from pyromq.protocol.bodies.heartbeat import QuerySubscriptionResponseBody
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
from pyromq.protocol.requests.routes import TopicListAnswer


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
