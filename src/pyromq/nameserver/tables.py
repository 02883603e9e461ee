"""The state of a name server; other files change it.

Registrations rebuild it after a restart; nothing is written to disk.
"""

from collections.abc import Hashable
from dataclasses import dataclass
from typing import NamedTuple

from pyromq.nameserver.changes import Changes
from pyromq.nameserver.expiry import Deadlines
from pyromq.nameserver.queue_layouts import QueueLayouts
from pyromq.protocol.body import DataVersion
from pyromq.protocol.names import MASTER_ID
from pyromq.protocol.requests.topics import TopicQueueMappingInfo


class BrokerKey(NamedTuple):
    """One broker process."""

    cluster: str
    address: str


class BrokerGroup:
    """A broker name: a master and its replicas."""

    __slots__ = ("acting_master", "addresses", "cluster", "encoded", "name", "zone")

    def __init__(self, cluster: str, name: str) -> None:
        self.cluster = cluster
        self.name = name
        self.addresses: dict[int, str] = {}
        self.zone: str | None = None
        self.acting_master = False
        self.encoded: dict[object, bytes] = {}
        """Its JSON for routes; cleared whenever one of the fields above changes."""

    def __repr__(self) -> str:
        return f"<BrokerGroup {self.name} of {self.cluster} {self.addresses}>"

    @property
    def min_id(self) -> int:
        return min(self.addresses)

    @property
    def has_master(self) -> bool:
        return MASTER_ID in self.addresses

    def route_fields(self) -> tuple[object, ...]:
        """All fields that appear in a route."""
        return dict(self.addresses), self.zone, self.acting_master


class LiveBroker:
    """A broker process that has registered and has not expired."""

    __slots__ = (
        "connection",
        "data_version",
        "ha_address",
        "key",
        "names",
        "origin",
        "receipt",
        "timeout_ms",
    )

    def __init__(self, key: BrokerKey) -> None:
        self.key = key
        self.names: dict[str, None] = {}
        """The names it registered under: one, unless it was renamed without unregistering."""
        self.timeout_ms = 0
        self.data_version = DataVersion()
        self.connection: Hashable = None
        self.origin: str | None = None
        """The host that it registered from."""
        self.ha_address = ""
        self.receipt: object = None
        """Identifies the last registration, to recognise its repetition."""

    def __repr__(self) -> str:
        return f"<LiveBroker {'/'.join(self.names)} {self.key.address} timeout={self.timeout_ms}ms>"


@dataclass(frozen=True, slots=True)
class RouteRules:
    """The settings that apply to the tables."""

    delete_absent_topics: bool = False
    notify_min_broker_id: bool = False
    broker_expiry_ms: int = 120_000
    guard_live_brokers: bool = False
    """A live broker cannot be replaced or unregistered from another host."""


class TopicMappings:
    """Where the logical queues of one static topic are, by broker name."""

    __slots__ = ("by_broker", "encoded")

    def __init__(self) -> None:
        self.by_broker: dict[str, TopicQueueMappingInfo] = {}
        self.encoded: dict[bool, bytes] = {}


class NameServerTables:
    def __init__(self, rules: RouteRules) -> None:
        self.rules = rules
        self.queues = QueueLayouts()
        self.groups: dict[str, BrokerGroup] = {}
        self.clusters: dict[str, dict[str, None]] = {}
        self.live: dict[BrokerKey, LiveBroker] = {}
        self.filter_servers: dict[BrokerKey, list[str]] = {}
        self._groups_at: dict[str, dict[str, None]] = {}
        """Address → names of the groups that have it; `give_address` and `take_address` update it."""
        self.mappings: dict[str, TopicMappings] = {}
        """java: stays when brokers leave"""
        self.by_connection: dict[Hashable, dict[BrokerKey, None]] = {}
        self.deadlines: Deadlines[BrokerKey] = Deadlines()

    def __repr__(self) -> str:
        return f"<NameServerTables topics={len(self.queues)} groups={len(self.groups)} live={len(self.live)}>"

    def group_changed(self, name: str, changes: Changes) -> None:
        """A field of a broker group changed that appears in routes."""
        group = self.groups.get(name)
        if group is not None:
            group.encoded.clear()
        changes.add(*self.queues.forget_answers_of(name))

    def give_address(self, group: BrokerGroup, id_: int, address: str) -> None:
        if group.addresses.get(id_) == address:
            return
        self.take_address(group, id_)
        group.addresses[id_] = address
        self._groups_at.setdefault(address, {})[group.name] = None

    def take_address(self, group: BrokerGroup, id_: int) -> None:
        address = group.addresses.pop(id_, None)
        if address is None or address in group.addresses.values():
            return
        names = self._groups_at[address]
        del names[group.name]
        if not names:
            del self._groups_at[address]

    def set_filter_servers(self, key: BrokerKey, servers: list[str], changes: Changes) -> None:
        """A route contains the filter servers of every address of its groups, if the cluster is the same.

        So this changes the routes of all groups with that address, whatever the broker's own names are.
        """
        before = self.filter_servers.pop(key, [])
        if servers:
            self.filter_servers[key] = servers
        if servers != before:
            for name in self._groups_at.get(key.address, ()):
                if self.groups[name].cluster == key.cluster:
                    self.group_changed(name, changes)

    def alive_at(self, name: str, address: str) -> list[LiveBroker]:
        """The live brokers with this name and address; several if they registered in several clusters."""
        found = (
            self.live.get(BrokerKey(cluster, address))
            for cluster, names in self.clusters.items()
            if name in names
        )
        return [live for live in found if live is not None and name in live.names]

    def bind(self, live: LiveBroker, connection: Hashable, origin: str | None) -> None:
        """The broker uses this connection now; when it is lost, the broker is removed."""
        live.origin = origin
        if live.connection is not connection:
            self._unbind(live)
            live.connection = connection
        if connection is not None:
            self.by_connection.setdefault(connection, {})[live.key] = None

    def release(self, key: BrokerKey, name: str) -> bool:
        """Take a name from a broker; returns whether it has no name left and is no longer alive.

        java: removes the live broker even under a name that it never had, or while it has another one; it
        then stays in routes for ever, because its timeout is no longer checked
        """
        live = self.live.get(key)
        if live is None:
            return True
        live.names.pop(name, None)
        if live.names:
            return False
        del self.live[key]
        self._unbind(live)
        self.deadlines.forget(key)
        return True

    def keep_alive(self, live: LiveBroker, now_ms: float) -> None:
        self.deadlines.set(live.key, now_ms + live.timeout_ms)

    def _unbind(self, live: LiveBroker) -> None:
        keys = self.by_connection.get(live.connection)
        if keys is not None:
            keys.pop(live.key, None)
            if not keys:
                del self.by_connection[live.connection]
