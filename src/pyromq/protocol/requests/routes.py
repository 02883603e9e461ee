"""Questions to the name server about topics and clusters.

Every topic list is answered alike; only the question differs.
"""

from collections.abc import Mapping
from typing import ClassVar

from pyromq.protocol.body import Body, Int32, Int64
from pyromq.protocol.catalogue import NAMESERVER, Answer, BodyAnswer, Request, TopicRequest, request, wire
from pyromq.protocol.needs import GET, LIST, PUB, SUB, UPDATE, cluster, every_topic, topic
from pyromq.protocol.requests.topics import TopicListAnswer, TopicQueueMappingInfo


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


class ClusterInfo(Body):
    """All brokers a name server knows, by name, and their names by cluster."""

    broker_addr_table: dict[str, BrokerData] = {}
    cluster_addr_table: dict[str, list[str]] = {}


class RouteDigests(Body):
    """Topic → hash of its route, in hexadecimal: equal routes have equal hashes on every name server."""

    digests: dict[str, str] = {}


class GetRouteAnswer(Answer):
    # Ours alone: whether NotifyRoutesChanged will come. Other name servers leave it out.
    watch: bool | None = None
    body: TopicRouteData


@request(105, to=NAMESERVER, needs=(topic(PUB, SUB, GET),), java_name="get_routeinfo_by_topic")
class GetRoute(TopicRequest[GetRouteAnswer]):
    """Find the brokers and queues of a topic."""

    topic: str
    accept_standard_json_only: bool | None = None
    zone_name: str | None = wire(name="__ZONE_NAME", default=None)
    zone_mode: bool | None = wire(name="__ZONE_MODE", default=None)
    # Ours alone: asks for NotifyRoutesChanged on this connection.
    watch: bool | None = None


@request(106, to=NAMESERVER, needs=(cluster(GET),), java_name="get_broker_cluster_info")
class GetClusterInfo(Request[BodyAnswer[ClusterInfo]]):
    """List every broker and the clusters they form."""


@request(206, to=NAMESERVER, needs=(every_topic(LIST),), java_name="get_all_topic_list_from_nameserver")
class GetAllTopics(Request[TopicListAnswer]):
    """List every topic that any broker has registered."""


@request(30206, to=NAMESERVER, needs=(every_topic(LIST),), extension=True)
class GetRouteDigests(Request[BodyAnswer[RouteDigests]]):
    """Read a hash of the route of every topic, to compare name servers."""


@request(216, to=NAMESERVER, needs=(cluster(UPDATE),), java_name="delete_topic_in_namesrv")
class DeleteTopicFromNameServer(TopicRequest[Answer]):
    """Delete the route of a topic, in one cluster or everywhere."""

    topic: str
    cluster_name: str | None = None


@request(217, to=NAMESERVER, needs=(cluster(UPDATE),), java_name="register_topic_in_namesrv")
class RegisterTopic(TopicRequest[Answer]):
    """Register the queues of one topic without a whole broker registration."""

    topic: str
    body: TopicRouteData


@request(224, to=NAMESERVER, needs=(every_topic(LIST),), java_name="get_topics_by_cluster")
class GetTopicsOfCluster(Request[TopicListAnswer]):
    """List the topics that the brokers of one cluster have registered."""

    cluster: str


@request(304, to=NAMESERVER, needs=(every_topic(LIST),), java_name="get_system_topic_list_from_ns")
class GetSystemTopicsFromNameServer(Request[TopicListAnswer]):
    """List the topics that exist by themselves: one for each cluster and each broker."""


@request(311, to=NAMESERVER, needs=(every_topic(LIST),), java_name="get_unit_topic_list")
class GetUnitTopics(Request[TopicListAnswer]):
    """List the topics that belong to a deployment unit."""


@request(312, to=NAMESERVER, needs=(every_topic(LIST),), java_name="get_has_unit_sub_topic_list")
class GetUnitSubscribedTopics(Request[TopicListAnswer]):
    """List the topics that a unit subscribes to."""


@request(313, to=NAMESERVER, needs=(every_topic(LIST),), java_name="get_has_unit_sub_ununit_topic_list")
class GetUnitSubscribedSharedTopics(Request[TopicListAnswer]):
    """List the topics that a unit subscribes to although they belong to no unit."""
