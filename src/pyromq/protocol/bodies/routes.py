"""Routes: which brokers hold a topic, where they listen, which queues they offer."""

from collections.abc import Mapping
from typing import ClassVar

from pyromq.protocol.bodies.body import Body, Int32, Int64
from pyromq.protocol.bodies.static_topics import TopicQueueMappingInfo


class QueueData(Body):
    """The queues of a topic on one broker."""

    # java: releases before 4.9.0 misspell the flag
    wire_aliases: ClassVar[Mapping[str, str]] = {"topicSynFlag": "topicSysFlag"}

    broker_name: str
    perm: Int32 = 0
    read_queue_nums: Int32 = 0
    topic_sys_flag: Int32 = 0
    write_queue_nums: Int32 = 0


class BrokerData(Body):
    """A master and its replicas under their common name; broker id 0 is the master."""

    broker_addrs: dict[Int64, str] = {}
    broker_name: str
    cluster: str | None = None
    enable_acting_master: bool = False
    zone_name: str | None = None


class TopicRouteData(Body):
    """Everything a client must know to find a topic."""

    broker_datas: list[BrokerData] = []
    filter_server_table: dict[str, list[str]] = {}
    order_topic_conf: str | None = None
    queue_datas: list[QueueData] = []
    topic_queue_mapping_by_broker: dict[str, TopicQueueMappingInfo] | None = None
