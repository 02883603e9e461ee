"""The topics of one broker: creating, changing, listing and deleting them."""

from enum import StrEnum
from typing import Any, Final, Self

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
from pyromq.protocol.names import AUTO_CREATE_TOPIC
from pyromq.protocol.needs import CREATE, DELETE, GET, LIST, every_topic, topic

MAX_QUEUES_PER_TOPIC: Final = 65_536
"""The limit on one broker: clients and brokers allocate memory for each queue of a topic."""

GLOBAL_SCOPE = "__global__"


class TopicFilterType(StrEnum):
    SINGLE_TAG = "SINGLE_TAG"
    MULTI_TAG = "MULTI_TAG"


class TopicConfig(Body):
    """One topic on one broker."""

    attributes: dict[str, str] = {}
    order: bool = False
    perm: Int32 = 6
    read_queue_nums: Int32 = 16
    topic_filter_type: TopicFilterType = TopicFilterType.SINGLE_TAG
    topic_name: str
    topic_sys_flag: Int32 = 0
    write_queue_nums: Int32 = 16


class CreateTopicListRequestBody(Body):
    """Topics to create or change in one request."""

    topic_config_list: list[TopicConfig] = []


class TopicList(Body):
    """Names of topics; from a name server also the address of one broker."""

    broker_addr: str | None = None
    topic_list: list[str] = []


class TopicListAnswer(Answer):
    body: TopicList


class LogicQueueMappingItem(Body):
    """A part of a logical queue that one queue of one broker stores."""

    bname: str | None = None
    end_offset: Int64 = -1
    gen: Int32 = 0
    logic_offset: Int64 = 0
    queue_id: Int32 = 0
    start_offset: Int64 = 0
    time_of_end: Int64 = -1
    time_of_start: Int64 = -1


class TopicQueueMappingInfo(Body):
    """Which queue of this broker serves which global queue of a static topic."""

    bname: str | None = None
    curr_id_map: dict[Int32, Int32] = {}
    dirty: bool = False
    epoch: Int64 = 0
    scope: str = GLOBAL_SCOPE
    topic: str | None = None
    total_queues: Int32 = 0


class TopicQueueMappingDetail(Body):
    """A mapping with the history of every global queue that the broker hosts."""

    bname: str | None = None
    curr_id_map: dict[Int32, Int32] = {}
    dirty: bool = False
    epoch: Int64 = 0
    hosted_queues: dict[Int32, list[LogicQueueMappingItem]] = {}
    scope: str = GLOBAL_SCOPE
    topic: str | None = None
    total_queues: Int32 = 0


class TopicConfigAndQueueMapping(TopicConfig):
    """A topic's configuration, with its mapping if it is a static topic."""

    mapping_detail: TopicQueueMappingDetail | None = None


class TopicRemappingDetailWrapper(Body):
    """The plan of a static topic's creation or move, before or after it."""

    broker_config_map: dict[str, TopicConfigAndQueueMapping] = {}
    broker_to_map_in: set[str] = set()
    broker_to_map_out: set[str] = set()
    epoch: Int64 = 0
    topic: str | None = None
    type: str | None = None


class TopicConfigSerializeWrapper(Body):
    """Every topic of a broker, by name."""

    data_version: DataVersion = field(default_factory=DataVersion)
    topic_config_table: dict[str, TopicConfig] = {}


class TopicConfigAndMappingSerializeWrapper(Body):
    """Every topic of a broker with the mappings of its static topics (5.x)."""

    data_version: DataVersion = field(default_factory=DataVersion)
    mapping_data_version: DataVersion = field(default_factory=DataVersion)
    topic_config_table: dict[str, TopicConfig] = {}
    topic_queue_mapping_detail_map: dict[str, TopicQueueMappingDetail] = {}
    topic_queue_mapping_info_map: dict[str, TopicQueueMappingInfo] = {}


class TopicQueueMappingSerializeWrapper(Body):
    """The static topics of a broker, as in `topicQueueMapping.json`."""

    data_version: DataVersion = field(default_factory=DataVersion)
    # java: the member is called an info map and holds details
    topic_queue_mapping_info_map: dict[str, TopicQueueMappingDetail] = {}


class PurgeQueueAnswer(Answer):
    # The first message that is left.
    offset: Int64


@request(30029, to=BROKER, needs=(topic(DELETE),), extension=True)
class PurgeQueue(TopicRequest[PurgeQueueAnswer]):
    """Let a queue begin at a later message: those before it are not delivered any more."""

    topic: str
    queue_id: Int32
    # Negative: all that are there now.
    offset: Int64 = -1


class EraseMessagesAnswer(Answer):
    # Messages that were stored before this log offset go.
    log_offset: Int64


@request(30031, to=BROKER, needs=(topic(DELETE),), extension=True)
class EraseMessages(TopicRequest[EraseMessagesAnswer]):
    """Remove the bytes of all messages that have one of these keys."""

    topic: str
    # With spaces between them, as in the property KEYS.
    keys: str


class Erasure(Body):
    """A key whose messages a broker erases, or has erased since the oldest message of its log."""

    # In the log of this broker.
    is_done_here: bool
    # In the lake tier; true without one.
    is_done_in_tier: bool
    key: str
    log_offset: Int64
    # Why it must wait.
    problem: str = ""
    time_ms: Int64


class ErasureList(Body):
    erasures: list[Erasure] = []


class ErasuresAnswer(BodyAnswer[ErasureList]):
    """The body is never empty."""


@request(30032, to=BROKER, needs=(topic(DELETE),), extension=True)
class GetErasures(TopicRequest[ErasuresAnswer]):
    """How far a broker is with the messages of a topic that are to be erased; replicas answer as well."""

    topic: str


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

    @classmethod
    def of(cls, config: TopicConfig, **more: Any) -> Self:
        """The request with these settings; `more` are fields that the settings do not have."""
        return cls(
            topic=config.topic_name,
            default_topic=AUTO_CREATE_TOPIC,
            read_queue_nums=config.read_queue_nums,
            write_queue_nums=config.write_queue_nums,
            perm=config.perm,
            topic_filter_type=config.topic_filter_type.value,
            topic_sys_flag=config.topic_sys_flag,
            order=config.order,
            **more,
        )

    def config(self) -> TopicConfig:
        """The settings, without attributes; raises ValueError for an unknown type of filter."""
        return TopicConfig(
            topic_name=self.topic,
            read_queue_nums=self.read_queue_nums,
            write_queue_nums=self.write_queue_nums,
            perm=self.perm,
            topic_filter_type=TopicFilterType(self.topic_filter_type),
            topic_sys_flag=self.topic_sys_flag or 0,
            order=self.order,
        )


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
