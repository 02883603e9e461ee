"""Connected clients: their heartbeats, their unregistration, and questions about them."""

from pyromq.protocol.bodies.clients import ConsumerConnection, ProducerConnection, ProducerTableInfo
from pyromq.protocol.bodies.groups import GetConsumerListByGroupResponseBody
from pyromq.protocol.bodies.heartbeat import CheckClientRequestBody, HeartbeatData
from pyromq.protocol.catalogue import BROKER, Answer, BodyAnswer, Request, RoutedRequest, request, wire
from pyromq.protocol.needs import GET, SUB, cluster, group, topic


class SendHeartbeatAnswer(Answer):
    supports_heartbeat_v2: bool | None = wire(name="IS_SUPPORT_HEART_BEAT_V2", default=None)
    is_subscription_changed: bool | None = wire(name="IS_SUB_CHANGE", default=None)
    conflict: str | None = wire(name="subscriptionConflict", default=None)


@request(
    34,
    to=BROKER,
    needs=(
        group(SUB, at="body.consumer_data_set.group_name"),
        topic(SUB, at="body.consumer_data_set.subscription_data_set.topic"),
    ),
    java_name="heart_beat",
)
class SendHeartbeat(RoutedRequest[SendHeartbeatAnswer]):
    """Report that a client is alive, with its producer groups and its subscriptions."""

    body: HeartbeatData


@request(35, to=BROKER, needs=(group(SUB, may_be_missing=True),))
class UnregisterClient(RoutedRequest[Answer]):
    """Unregister a client from a producer or consumer group."""

    client_id: str = wire(name="clientID")
    producer_group: str | None = None
    consumer_group: str | None = None


@request(46, to=BROKER, needs=(group(SUB, at="body.group"), topic(SUB, at="body.subscription_data.topic")))
class CheckClientConfig(Request[Answer]):
    """Check whether the broker can apply the filter of a consumer."""

    body: CheckClientRequestBody


@request(38, to=BROKER, needs=(group(SUB, GET),), java_name="get_consumer_list_by_group")
class GetConsumerIds(RoutedRequest[BodyAnswer[GetConsumerListByGroupResponseBody]]):
    """List the members of a consumer group, which then divide the queues among themselves."""

    consumer_group: str


@request(203, to=BROKER, needs=(group(GET),), java_name="get_consumer_connection_list")
class GetConsumerConnections(RoutedRequest[BodyAnswer[ConsumerConnection]]):
    """List the members of a consumer group and their subscriptions."""

    consumer_group: str


@request(204, to=BROKER, needs=(cluster(GET),), java_name="get_producer_connection_list")
class GetProducerConnections(RoutedRequest[BodyAnswer[ProducerConnection]]):
    """List the members of a producer group."""

    producer_group: str


@request(328, to=BROKER, needs=(cluster(GET),), java_name="get_all_producer_info")
class GetAllProducers(Request[BodyAnswer[ProducerTableInfo]]):
    """List the producers of all groups."""
