"""Questions to the name server about topics and clusters.

Every topic list is answered alike; only the question differs.
"""

from pyromq.protocol.bodies.brokers import ClusterInfo
from pyromq.protocol.bodies.figures import RouteDigests
from pyromq.protocol.bodies.routes import TopicRouteData
from pyromq.protocol.bodies.topics import TopicList
from pyromq.protocol.catalogue import NAMESERVER, Answer, BodyAnswer, Request, TopicRequest, request, wire
from pyromq.protocol.needs import GET, LIST, PUB, SUB, UPDATE, cluster, every_topic, topic


class TopicListAnswer(Answer):
    body: TopicList


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
