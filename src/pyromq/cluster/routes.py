"""Reads a name server's answer about a topic: its queues, and their brokers.

Pure: values and functions of values.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from pyromq.errors import RemoteProtocolError
from pyromq.protocol.body import MessageQueue
from pyromq.protocol.names import MASTER_ID, READ, WRITE
from pyromq.protocol.requests.routes import BrokerData, TopicRouteData
from pyromq.protocol.requests.topics import MAX_QUEUES_PER_TOPIC, TopicQueueMappingInfo
from pyromq.protocol.static_topics import NOWHERE, mock_broker

MAX_QUEUES_PER_ROUTE = 4 * MAX_QUEUES_PER_TOPIC
"""On all brokers. A queue takes a few hundred bytes, and consumers have a reader for each."""


@dataclass(frozen=True, slots=True)
class Route:
    """The queues of one topic and the addresses of their brokers."""

    topic: str
    publish_queues: tuple[MessageQueue, ...] = ()
    subscribe_queues: tuple[MessageQueue, ...] = ()
    brokers: Mapping[str, Mapping[int, str]] = field(default_factory=dict)
    """Broker name → broker id → address; id 0 is the master."""
    is_ordered: bool = False
    """Whether its queues stay the same when brokers come and go."""
    hosts: Mapping[MessageQueue, str] = field(default_factory=dict)
    """Of a static topic: the broker that holds a queue now."""
    filter_servers: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """The filter servers of a broker, by its address."""

    def broker_of(self, queue: MessageQueue) -> str:
        return self.hosts.get(queue, queue.broker_name) if self.hosts else queue.broker_name

    def __repr__(self) -> str:
        brokers = ",".join(sorted(self.brokers))
        return (
            f"<Route {self.topic} publish_queues={len(self.publish_queues)} "
            f"subscribe_queues={len(self.subscribe_queues)} brokers={brokers}>"
        )


def build_route(topic: str, data: TopicRouteData) -> Route:
    """The route in a name server's answer."""
    brokers = {broker.broker_name: dict(broker.broker_addrs) for broker in data.broker_datas}
    filters = {address: tuple(each) for address, each in data.filter_server_table.items() if each}
    mappings = data.topic_queue_mapping_by_broker
    hosts: dict[MessageQueue, str] = {}
    if data.order_topic_conf:
        publish = tuple(_ordered_queues(topic, data.order_topic_conf))
        subscribe = tuple(readable_queues(topic, data))
    elif mappings:
        hosts = _hosts_of_static_queues(topic, mappings.values())
        publish = subscribe = tuple(sorted(hosts, key=lambda queue: queue.queue_id))
    else:
        publish, subscribe = tuple(writable_queues(topic, data)), tuple(readable_queues(topic, data))
    is_ordered = bool(data.order_topic_conf)
    return Route(topic, publish, subscribe, brokers, is_ordered, hosts, filters)


def borrow_route(topic: str, template: Route, max_queues: int) -> Route:
    """The route of a topic that its first message will create from the topic of `template`."""
    readable = set(template.subscribe_queues)
    queues = tuple(
        MessageQueue(topic, queue.broker_name, queue.queue_id)
        for queue in template.publish_queues
        if queue.queue_id < max_queues and queue in readable
    )
    return Route(topic, queues, queues, template.brokers)


def readable_queues(topic: str, data: TopicRouteData) -> Iterable[MessageQueue]:
    """The readable queues on the brokers themselves, without the mapping of static topics."""
    offers = [(each.broker_name, each.read_queue_nums) for each in data.queue_datas if each.perm & READ]
    return _queues(topic, offers)


def writable_queues(topic: str, data: TopicRouteData) -> Iterable[MessageQueue]:
    """The writable queues, sorted by broker; only masters take messages."""
    has_master = {broker.broker_name: MASTER_ID in broker.broker_addrs for broker in data.broker_datas}
    offers = [
        (each.broker_name, each.write_queue_nums)
        for each in sorted(data.queue_datas, key=lambda each: each.broker_name)
        if each.perm & WRITE and has_master.get(each.broker_name)
    ]
    return _queues(topic, offers)


def _queues(topic: str, offers: list[tuple[str, int]]) -> Iterable[MessageQueue]:
    """The queues of each broker; absurd numbers are refused before any queue is made."""
    for broker_name, count in offers:
        if not 0 <= count <= MAX_QUEUES_PER_TOPIC:
            raise RemoteProtocolError(
                f"the route of topic {topic} has {count} queues on {broker_name}; "
                f"0 to {MAX_QUEUES_PER_TOPIC} are allowed"
            )
    total = sum(count for _, count in offers)
    if total > MAX_QUEUES_PER_ROUTE:
        raise RemoteProtocolError(
            f"the route of topic {topic} has {total} queues on {len(offers)} brokers; "
            f"{MAX_QUEUES_PER_ROUTE} are allowed"
        )
    return (
        MessageQueue(topic, broker_name, queue_id)
        for broker_name, count in offers
        for queue_id in range(count)
    )


def first_address(data: BrokerData) -> str | None:
    """The master's address or, without a master, that of the replica with the lowest id."""
    return data.broker_addrs[min(data.broker_addrs)] if data.broker_addrs else None


def route_addresses(route: TopicRouteData) -> dict[str, str]:
    """One address for each broker of a route, by the broker's name."""
    found = {data.broker_name: first_address(data) for data in route.broker_datas}
    return {name: address for name, address in sorted(found.items()) if address is not None}


def _ordered_queues(topic: str, configuration: str) -> Iterable[MessageQueue]:
    """`broker-a:4;broker-b:4`: these queues, whichever brokers are alive."""
    offers: list[tuple[str, int]] = []
    for part in configuration.split(";"):
        broker_name, _, count = part.partition(":")
        if count.isascii() and count.isdigit():
            # Numbers with very many digits are slow to parse.
            is_sane = len(count.lstrip("0")) < len(str(MAX_QUEUES_PER_ROUTE))
            offers.append((broker_name, int(count.lstrip("0") or 0) if is_sane else MAX_QUEUES_PER_ROUTE))
    return _queues(topic, offers)


def _hosts_of_static_queues(topic: str, mappings: Iterable[TopicQueueMappingInfo]) -> dict[MessageQueue, str]:
    hosts: dict[MessageQueue, str] = {}
    totals: dict[str, int] = {}
    # If two brokers claim a queue, the later claim counts.
    for info in sorted(mappings, key=lambda info: info.epoch, reverse=True):
        totals[info.scope] = max(totals.get(info.scope, 0), info.total_queues)
        for queue_id in filter(lambda number: number >= 0, info.curr_id_map):
            queue = MessageQueue(topic, mock_broker(info.scope), queue_id)
            hosts.setdefault(queue, info.bname or NOWHERE)
    for queue in _queues(topic, [(mock_broker(scope), total) for scope, total in totals.items()]):
        hosts.setdefault(queue, NOWHERE)
    return hosts
