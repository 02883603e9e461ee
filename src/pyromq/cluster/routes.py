"""What a name server's answer about a topic means: which queues there are, and where.

Everything here is a value or a function of one.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from pyromq.protocol.bodies.queues import MessageQueue
from pyromq.protocol.bodies.routes import BrokerData, TopicRouteData
from pyromq.protocol.bodies.static_topics import TopicQueueMappingInfo
from pyromq.protocol.names import MASTER_ID, READ, WRITE

_LOGICAL_BROKER_PREFIX = "__syslo__"
_NOWHERE = "__syslo__none__"


@dataclass(frozen=True, slots=True)
class Route:
    """Where one topic is."""

    topic: str
    publish_queues: tuple[MessageQueue, ...] = ()
    subscribe_queues: tuple[MessageQueue, ...] = ()
    brokers: Mapping[str, Mapping[int, str]] = field(default_factory=dict)
    """Broker name → broker id → address; id 0 is the master."""
    is_ordered: bool = False
    """Whether its queues stay the same whatever brokers come and go."""
    hosts: Mapping[MessageQueue, str] = field(default_factory=dict)
    """Of a static topic: the broker that has a queue at the moment."""

    def broker_of(self, queue: MessageQueue) -> str:
        return self.hosts.get(queue, queue.broker_name) if self.hosts else queue.broker_name

    def __repr__(self) -> str:
        brokers = ",".join(sorted(self.brokers))
        return (
            f"<Route {self.topic} publish_queues={len(self.publish_queues)} "
            f"subscribe_queues={len(self.subscribe_queues)} brokers={brokers}>"
        )


def build_route(topic: str, data: TopicRouteData) -> Route:
    """What a name server's answer means for producers and consumers."""
    brokers = {broker.broker_name: dict(broker.broker_addrs) for broker in data.broker_datas}
    mappings = data.topic_queue_mapping_by_broker
    if data.order_topic_conf:
        return Route(
            topic,
            tuple(_ordered_queues(topic, data.order_topic_conf)),
            tuple(readable_queues(topic, data)),
            brokers,
            is_ordered=True,
        )
    if mappings:
        hosts = _hosts_of_static_queues(topic, mappings.values())
        queues = tuple(sorted(hosts, key=lambda queue: queue.queue_id))
        return Route(topic, queues, queues, brokers, hosts=hosts)
    return Route(topic, tuple(writable_queues(topic, data)), tuple(readable_queues(topic, data)), brokers)


def borrow_route(topic: str, template: Route, max_queues: int) -> Route:
    """The route of a topic that its first message will create, after the one it is created from."""
    readable = set(template.subscribe_queues)
    queues = tuple(
        MessageQueue(topic, queue.broker_name, queue.queue_id)
        for queue in template.publish_queues
        if queue.queue_id < max_queues and queue in readable
    )
    return Route(topic, queues, queues, template.brokers)


def readable_queues(topic: str, data: TopicRouteData) -> Iterable[MessageQueue]:
    """The queues that brokers have themselves, whatever a static topic makes of them."""
    return (
        MessageQueue(topic, each.broker_name, queue_id)
        for each in data.queue_datas
        if each.perm & READ
        for queue_id in range(each.read_queue_nums)
    )


def writable_queues(topic: str, data: TopicRouteData) -> Iterable[MessageQueue]:
    """The same of those that can be written to, sorted by broker; only masters take messages."""
    has_master = {broker.broker_name: MASTER_ID in broker.broker_addrs for broker in data.broker_datas}
    return (
        MessageQueue(topic, each.broker_name, queue_id)
        for each in sorted(data.queue_datas, key=lambda each: each.broker_name)
        if each.perm & WRITE and has_master.get(each.broker_name)
        for queue_id in range(each.write_queue_nums)
    )


def first_address(data: BrokerData) -> str | None:
    """The master's address or, if there is none now, that of the replica with the lowest id."""
    return data.broker_addrs[min(data.broker_addrs)] if data.broker_addrs else None


def route_addresses(route: TopicRouteData) -> dict[str, str]:
    """One address for each broker of a route, by the broker's name."""
    found = {data.broker_name: first_address(data) for data in route.broker_datas}
    return {name: address for name, address in sorted(found.items()) if address is not None}


def _ordered_queues(topic: str, configuration: str) -> Iterable[MessageQueue]:
    """`broker-a:4;broker-b:4`: these queues, whoever is alive."""
    for part in configuration.split(";"):
        broker_name, _, count = part.partition(":")
        if count.isascii() and count.isdigit():
            yield from (MessageQueue(topic, broker_name, queue_id) for queue_id in range(int(count)))


def _hosts_of_static_queues(topic: str, mappings: Iterable[TopicQueueMappingInfo]) -> dict[MessageQueue, str]:
    hosts: dict[MessageQueue, str] = {}
    totals: dict[str, int] = {}
    # Where two brokers claim a queue, the later claim holds.
    for info in sorted(mappings, key=lambda info: info.epoch, reverse=True):
        totals[info.scope] = max(totals.get(info.scope, 0), info.total_queues)
        for queue_id in info.curr_id_map:
            queue = MessageQueue(topic, _LOGICAL_BROKER_PREFIX + info.scope, queue_id)
            hosts.setdefault(queue, info.bname or _NOWHERE)
    for scope, total in totals.items():
        for queue_id in range(total):
            hosts.setdefault(MessageQueue(topic, _LOGICAL_BROKER_PREFIX + scope, queue_id), _NOWHERE)
    return hosts
