"""The name server's tables with all queries and changes.

Pure: no loop, no socket, no clock. Every change returns `Changes`, which the caller acts on.
"""

from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass
from hashlib import blake2b
from itertools import chain

from pyromq.nameserver import registration, unregistration
from pyromq.nameserver.changes import Changes
from pyromq.nameserver.queue_layouts import Layout, QueueShape
from pyromq.nameserver.registration import Announcement, Inventory, Registered
from pyromq.nameserver.route_answers import RouteAnswers, broker_data
from pyromq.nameserver.tables import BrokerKey, NameServerTables, RouteRules
from pyromq.nameserver.unregistration import Unregistration
from pyromq.protocol import json_body
from pyromq.protocol.body import DataVersion
from pyromq.protocol.requests.routes import ClusterInfo
from pyromq.protocol.requests.topics import TopicList

_UNIT = 1
_UNIT_SUBSCRIPTION = 2


@dataclass(frozen=True, slots=True)
class Expired:
    brokers: list[BrokerKey]
    connections: list[Hashable]
    """Their connections, to be closed."""
    changes: Changes


@dataclass(frozen=True, slots=True)
class TableSizes:
    topics: int
    layouts: int
    topic_broker_pairs: int
    broker_groups: int
    clusters: int
    live_brokers: int
    filter_servers: int
    static_topics: int


class RouteTable:
    def __init__(self, rules: RouteRules | None = None) -> None:
        self._tables = NameServerTables(rules or RouteRules())
        self.answers = RouteAnswers(self._tables)
        self.repetitions = 0
        """Registrations whose body did not need decoding."""

    def __repr__(self) -> str:
        return f"<RouteTable {self._tables!r}>"

    @property
    def rules(self) -> RouteRules:
        return self._tables.rules

    @rules.setter
    def rules(self, rules: RouteRules) -> None:
        self._tables.rules = rules

    def sizes(self) -> TableSizes:
        tables = self._tables
        return TableSizes(
            topics=len(tables.queues),
            layouts=len(tables.queues.layouts),
            topic_broker_pairs=tables.queues.pairs,
            broker_groups=len(tables.groups),
            clusters=len(tables.clusters),
            live_brokers=len(tables.live),
            filter_servers=len(tables.filter_servers),
            static_topics=len(tables.mappings),
        )

    # Brokers

    def register(
        self,
        who: Announcement,
        read_inventory: Callable[[], Inventory],
        *,
        digest: Hashable = None,
        connection: Hashable = None,
        origin: str | None = None,
        now_ms: float,
    ) -> Registered:
        """`digest` identifies the inventory before it is decoded; None is equal to no other digest."""
        repeated = self.repeat(who, digest=digest, connection=connection, origin=origin, now_ms=now_ms)
        if repeated is not None:
            return repeated
        inventory = read_inventory()
        self.check(who, inventory, connection, origin)
        return registration.register(self._tables, who, inventory, digest, connection, now_ms, origin)

    def repeat(
        self, who: Announcement, *, digest: Hashable, connection: Hashable, origin: str | None, now_ms: float
    ) -> Registered | None:
        """Handle a registration that is a repetition; None if it is not, and must be decoded."""
        if digest is None or not registration.is_repetition(self._tables, who, digest):
            return None
        if registration.conflicting_brokers(self._tables, who, connection, origin):
            return None
        self.repetitions += 1
        return registration.repeat(self._tables, who, connection, origin, now_ms)

    def register_in_parts(
        self,
        who: Announcement,
        inventory: Inventory,
        *,
        digest: Hashable,
        connection: Hashable,
        origin: str | None,
        now_ms: float,
    ) -> Iterator[Registered]:
        """Register a large inventory; each step takes some milliseconds, and the last one has the answer."""
        self.check(who, inventory, connection, origin)
        return registration.register_in_parts(
            self._tables, who, inventory, digest, connection, now_ms, origin
        )

    def check(
        self, who: Announcement, inventory: Inventory, connection: Hashable, origin: str | None
    ) -> None:
        """Raises Refused if the registration would replace a live broker of another host."""
        conflicting = registration.conflicting_brokers(self._tables, who, connection, origin)
        registration.check_conflicts(conflicting, who, inventory, origin)

    @property
    def needs_sweeping(self) -> bool:
        return self._tables.queues.needs_sweeping

    def sweep(self) -> None:
        """Remove some of the topics whose brokers have left."""
        self._tables.queues.sweep()

    def heartbeat(self, cluster: str, address: str, now_ms: float) -> bool:
        """Keep a broker alive; False if it is not registered."""
        live = self._tables.live.get(BrokerKey(cluster, address))
        if live is None:
            return False
        self._tables.keep_alive(live, now_ms)
        return True

    def data_version(self, cluster: str, address: str, now_ms: float) -> DataVersion | None:
        """The data version of a broker's last registration. java: the query keeps the broker alive"""
        live = self._tables.live.get(BrokerKey(cluster, address))
        if live is None:
            return None
        self._tables.keep_alive(live, now_ms)
        return live.data_version

    def unregister(
        self, broker: Unregistration, *, connection: Hashable = None, origin: str | None = None
    ) -> Changes:
        unregistration.check_unregistration(self._tables, broker, connection, origin)
        return unregistration.unregister(self._tables, [broker])

    def connection_of(self, key: BrokerKey) -> Hashable:
        """The one on which a broker has registered last; None if it is not alive."""
        live = self._tables.live.get(key)
        return None if live is None else live.connection

    def brokers_on(self, connection: Hashable) -> list[BrokerKey]:
        return list(self._tables.by_connection.get(connection, ()))

    def connection_lost(self, connection: Hashable) -> Changes:
        """Remove all brokers that used the connection."""
        return self._remove_brokers(self.brokers_on(connection))

    def expire(self, now_ms: float) -> Expired:
        """Remove all brokers whose timeout has passed."""
        due = self._tables.deadlines.pop_due(now_ms)
        if not due:
            return Expired([], [], Changes())
        connections = [self._tables.live[key].connection for key in due]
        return Expired(due, [each for each in connections if each is not None], self._remove_brokers(due))

    def next_expiry_check_ms(self) -> float | None:
        return self._tables.deadlines.next_check()

    def _remove_brokers(self, keys: Iterable[BrokerKey]) -> Changes:
        gone: list[Unregistration] = []
        for key in keys:
            gone += unregistration.unregistrations_of(self._tables, self._tables.live[key])
        return unregistration.unregister(self._tables, gone)

    # Topics and permissions, changed by administrators

    def register_topic(self, topic: str, shapes: Iterable[tuple[str, QueueShape]]) -> Changes:
        """Give a topic queues on brokers that exist.

        java: stops silently at the first unknown broker; what came before counts only if the topic is known
        """
        changes = Changes()
        accepted: dict[str, QueueShape] = {}
        for broker, shape in shapes:
            if broker not in self._tables.groups:
                if topic not in self._tables.queues:
                    return changes
                break
            accepted[broker] = shape
        for broker, shape in accepted.items():
            changes.add(self._tables.queues.put(broker, [(topic, shape)]))
        return changes

    def delete_topic(self, topic: str, cluster: str | None = None) -> Changes:
        """Delete a topic, without `cluster` everywhere. A broker that has it restores it by registering."""
        changes = Changes()
        if not cluster:
            changes.add(self._tables.queues.remove_topic(topic))
            return changes
        for broker in self._tables.clusters.get(cluster, ()):
            changes.add(self._tables.queues.remove(broker, [topic]))
        return changes

    def wipe_write_permission(self, broker: str) -> tuple[int, Changes]:
        return self._set_permission(broker, QueueShape.without_write)

    def add_write_permission(self, broker: str) -> tuple[int, Changes]:
        return self._set_permission(broker, QueueShape.read_and_write)

    def _set_permission(self, broker: str, change: Callable[[QueueShape], QueueShape]) -> tuple[int, Changes]:
        changes = Changes()
        changes.add(*self._tables.queues.reshape(broker, change))
        # java: counts every topic of the broker, changed or not
        return sum(len(layout.topics) for layout in self._tables.queues.of_broker(broker)), changes

    # Queries

    def cluster_info(self) -> ClusterInfo:
        return ClusterInfo(
            broker_addr_table={
                name: broker_data(group, dict(sorted(group.addresses.items())))
                for name, group in self._tables.groups.items()
            },
            cluster_addr_table={cluster: list(names) for cluster, names in self._tables.clusters.items()},
        )

    def member_addresses(self, broker: str) -> dict[int, str]:
        group = self._tables.groups.get(broker)
        return dict(sorted(group.addresses.items())) if group is not None else {}

    def all_topics(self) -> TopicList:
        return TopicList(topic_list=list(self._tables.queues.topics))

    def layouts(self) -> list[Layout]:
        """Topics that have the same queues, together."""
        return list(self._tables.queues.layouts)

    def digests(self, layout: Layout) -> dict[str, str]:
        """A hash of the route of each topic of a layout: the same on every name server that has the route."""
        groups = (self._tables.groups.get(name) for name in layout.shapes)
        parts = [
            (
                group.cluster,
                group.name,
                sorted(group.addresses.items()),
                group.zone,
                *layout.shapes[group.name],
            )
            for group in groups
            if group is not None
        ]
        digest = _digest(repr(parts).encode())
        digests = dict.fromkeys(layout.topics, digest)
        for topic in self._tables.mappings.keys() & digests.keys():
            mapping = dict(sorted(self._tables.mappings[topic].by_broker.items()))
            digests[topic] = _digest(digest.encode() + json_body.encode(mapping))
        return digests

    def topics_of_cluster(self, cluster: str) -> TopicList:
        layouts: dict[Layout, None] = {}
        for broker in self._tables.clusters.get(cluster, ()):
            layouts.update(dict.fromkeys(self._tables.queues.of_broker(broker)))
        return TopicList(topic_list=list(chain.from_iterable(layout.topics for layout in layouts)))

    def system_topics(self) -> TopicList:
        """The names of all clusters and brokers, which are system topics, and the address of any broker."""
        names: dict[str, None] = {}
        for cluster, brokers in self._tables.clusters.items():
            names[cluster] = None
            names.update(brokers)
        addresses = (
            address for group in self._tables.groups.values() for address in group.addresses.values()
        )
        return TopicList(topic_list=list(names), broker_addr=next(addresses, None))

    def unit_topics(self) -> TopicList:
        return self._topics_by_flag(lambda flag: flag & _UNIT != 0)

    def unit_subscribed_topics(self) -> TopicList:
        return self._topics_by_flag(lambda flag: flag & _UNIT_SUBSCRIPTION != 0)

    def unit_subscribed_shared_topics(self) -> TopicList:
        return self._topics_by_flag(lambda flag: flag & (_UNIT | _UNIT_SUBSCRIPTION) == _UNIT_SUBSCRIPTION)

    def _topics_by_flag(self, wanted: Callable[[int], bool]) -> TopicList:
        topics: list[str] = []
        for layout in self._tables.queues.layouts:
            if wanted(layout.first_sys_flag):
                topics += layout.topics
        return TopicList(topic_list=topics)


def _digest(data: bytes) -> str:
    return blake2b(data, digest_size=8).hexdigest()
