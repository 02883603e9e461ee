"""Tells clients where the queues of a topic are: at this front, under the address they reached it by."""

from collections.abc import Iterator
from ipaddress import ip_address
from typing import Any

from pyromq.cluster.routes import Route
from pyromq.protocol.body import MessageQueue
from pyromq.protocol.lite import lite_group
from pyromq.protocol.names import MASTER_ID
from pyromq.protocol.requests.routes import GetRoute
from pyromq.proxy.checks import check_group, check_topic
from pyromq.proxy.clients import client_id_of
from pyromq.proxy.cluster import ProxyCluster
from pyromq.proxy.codes import OK, Code, Rejected
from pyromq.proxy.grpc.call import Call
from pyromq.proxy.messages import enum_values, message
from pyromq.proxy.settings import ProxySettings
from pyromq.proxy.topics import DELAY, FIFO, MIXED, NORMAL, TRANSACTION, ProxyTopics

_QueryRouteResponse = message("QueryRouteResponse")
_QueryAssignmentResponse = message("QueryAssignmentResponse")
_Endpoints = message("Endpoints")
_TYPES = enum_values("MessageType")
_PERMISSIONS = enum_values("Permission")
_SCHEMES = enum_values("AddressScheme")

_ANY_QUEUE = -1


class Routing:
    def __init__(
        self, cluster: ProxyCluster, topics: ProxyTopics, settings: ProxySettings, port: int
    ) -> None:
        self._cluster = cluster
        self._topics = topics
        self._settings = settings
        self._port = port

    async def query_route(self, request: Any, call: Call) -> Any:
        client_id_of(call)
        topic = check_topic(request.topic.name)
        self._cluster.admit(GetRoute(topic=topic), call)
        route = await self._cluster.route(topic)
        accepted = _accepted(await self._topics.type_of(topic))
        endpoints = self._endpoints(request.endpoints, call)
        answer = _QueryRouteResponse(status=OK)
        for queue, permission in _permissions(route):
            for broker_id in sorted(route.brokers.get(route.broker_of(queue), {MASTER_ID: ""})):
                shown = answer.message_queues.add(id=queue.queue_id, permission=_PERMISSIONS[permission])
                shown.topic.CopyFrom(request.topic)
                shown.broker.name, shown.broker.id = route.broker_of(queue), broker_id
                shown.broker.endpoints.CopyFrom(endpoints)
                shown.accept_message_types.extend(accepted)
        return answer

    async def query_assignment(self, request: Any, call: Call) -> Any:
        """Every member of a group gets all brokers: what one pops, the others do not get."""
        client_id_of(call)
        topic, group = check_topic(request.topic.name), check_group(request.group.name)
        self._cluster.admit(GetRoute(topic=topic), call)
        route = await self._cluster.route(topic)
        config = await self._topics.group(group)
        is_fifo = config.consume_message_orderly and lite_group(config.attributes) is None
        endpoints = self._endpoints(request.endpoints, call)
        answer = _QueryAssignmentResponse(status=OK)
        accepted = _accepted(await self._topics.type_of(topic))
        seen: set[tuple[str, int]] = set()
        for queue in route.subscribe_queues:
            place = (route.broker_of(queue), queue.queue_id if is_fifo else _ANY_QUEUE)
            if place in seen or place[0] not in route.brokers:
                continue
            seen.add(place)
            shown = answer.assignments.add().message_queue
            shown.topic.CopyFrom(request.topic)
            shown.id, shown.permission = place[1], _PERMISSIONS["READ_WRITE"]
            shown.broker.name, shown.broker.id = place[0], MASTER_ID
            shown.broker.endpoints.CopyFrom(endpoints)
            shown.accept_message_types.extend(accepted)
        if not answer.assignments:
            raise Rejected(Code.FORBIDDEN, f"no queue of the topic {topic} can be read")
        return answer

    def _endpoints(self, asked: Any, call: Call) -> Any:
        """Where the client finds this front: under the names it asked for, on the front's port."""
        endpoints = _Endpoints()
        if asked.addresses:
            endpoints.CopyFrom(asked)
        else:
            host, port = call.local_address
            endpoints.addresses.add(host=host, port=port)
        if not self._settings.uses_port_of_request:
            for address in endpoints.addresses:
                address.port = self._port
        endpoints.scheme = _SCHEMES[_scheme(endpoints.addresses[0].host)]
        return endpoints


def _scheme(host: str) -> str:
    try:
        return "IPv4" if ip_address(host.strip("[]")).version == 4 else "IPv6"
    except ValueError:
        return "DOMAIN_NAME"


def _permissions(route: Route) -> Iterator[tuple[MessageQueue, str]]:
    writable, readable = set(route.publish_queues), set(route.subscribe_queues)
    for queue in dict.fromkeys((*route.publish_queues, *route.subscribe_queues)):
        yield (
            queue,
            "READ_WRITE"
            if queue in writable and queue in readable
            else ("WRITE" if queue in writable else "READ"),
        )


def _accepted(topic_type: str) -> list[int]:
    if topic_type == MIXED:
        return [_TYPES[each] for each in (NORMAL, FIFO, DELAY, TRANSACTION)]
    return [_TYPES.get(topic_type, _TYPES["MESSAGE_TYPE_UNSPECIFIED"])]
