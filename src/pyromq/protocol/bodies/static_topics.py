"""Static topics: global queue ids mapped onto the queues of brokers, which may change over time."""

from pyromq.protocol.bodies.body import Body, Int32, Int64
from pyromq.protocol.bodies.topics import TopicConfig

GLOBAL_SCOPE = "__global__"


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
