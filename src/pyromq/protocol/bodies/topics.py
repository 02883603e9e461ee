"""Topics as brokers configure them."""

from enum import StrEnum
from typing import Final

from pyromq.protocol.bodies.body import Body, Int32

MAX_QUEUES_PER_TOPIC: Final = 65_536
"""The limit on one broker: clients and brokers allocate memory for each queue of a topic."""


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
