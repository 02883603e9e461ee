"""The topics of a broker as one table, as brokers send it and keep it in `topics.json`."""

from msgspec import field

from pyromq.protocol.bodies.body import Body
from pyromq.protocol.bodies.static_topics import TopicQueueMappingDetail, TopicQueueMappingInfo
from pyromq.protocol.bodies.topics import TopicConfig
from pyromq.protocol.bodies.versions import DataVersion


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
