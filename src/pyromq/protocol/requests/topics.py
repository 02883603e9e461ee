"""The topics of one broker: creating, changing, listing and deleting them."""

from pyromq.protocol.bodies.static_topics import TopicConfigAndQueueMapping, TopicQueueMappingDetail
from pyromq.protocol.bodies.topic_tables import TopicConfigAndMappingSerializeWrapper
from pyromq.protocol.bodies.topics import CreateTopicListRequestBody
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
from pyromq.protocol.needs import CREATE, DELETE, GET, LIST, every_topic, topic
from pyromq.protocol.requests.routes import TopicListAnswer


@request(17, to=BROKER, needs=(topic(CREATE),), java_name="update_and_create_topic")
class CreateOrUpdateTopic(TopicRequest[Answer]):
    """Create a topic or change its settings."""

    topic: str
    default_topic: str
    read_queue_nums: Int32
    write_queue_nums: Int32
    perm: Int32
    topic_filter_type: str
    topic_sys_flag: Int32 | None = None
    order: bool = False
    # A comma list: `+key=value` sets, `-key` removes.
    attributes: str | None = None
    force: bool = False


@request(
    18,
    to=BROKER,
    needs=(topic(CREATE, at="body.topic_config_list.topic_name"),),
    java_name="update_and_create_topic_list",
)
class CreateOrUpdateTopics(RoutedRequest[Answer]):
    """Create several topics or change their settings."""

    body: CreateTopicListRequestBody


@request(513, to=BROKER, needs=(topic(CREATE),), java_name="update_and_create_static_topic")
class CreateStaticTopic(CreateOrUpdateTopic):
    """Create a topic whose logical queues are mapped to the queues of brokers."""

    body: TopicQueueMappingDetail


@request(215, to=BROKER, needs=(topic(DELETE),), java_name="delete_topic_in_broker")
class DeleteTopicFromBroker(TopicRequest[Answer]):
    """Delete a topic and, in time, its queues."""

    topic: str


class GetAllTopicConfigsAnswer(Answer):
    # Absent where the broker knows no pages.
    total_topic_num: Int32 | None = None
    body: TopicConfigAndMappingSerializeWrapper


@request(21, to=BROKER, needs=(every_topic(LIST),), java_name="get_all_topic_config")
class GetAllTopicConfigs(Request[GetAllTopicConfigsAnswer]):
    """Read all topics of a broker, or one page of them."""

    # java: mandatory there, but releases before 5.3 send no fields at all
    topic_seq: Int32 | None = None
    data_version: str | None = None
    max_topic_num: Int32 | None = None


@request(351, to=BROKER, needs=(topic(GET),))
class GetTopicConfig(TopicRequest[BodyAnswer[TopicConfigAndQueueMapping]]):
    """Read the settings of one topic."""

    topic: str


@request(305, to=BROKER, needs=(every_topic(LIST),), java_name="get_system_topic_list_from_broker")
class GetSystemTopicsFromBroker(Request[TopicListAnswer]):
    """List the system topics of a broker."""
