"""A route table under test: brokers with short names, and a picture of everything the table knows."""

from collections.abc import Hashable, Iterable, Mapping
from typing import Any

from pyromq.nameserver.changes import Changes
from pyromq.nameserver.queue_layouts import QueueShape
from pyromq.nameserver.registration import Announcement, Inventory, Registered
from pyromq.nameserver.route_table import Expired, RouteTable
from pyromq.nameserver.tables import RouteRules
from pyromq.nameserver.unregistration import Unregistration
from pyromq.protocol import json_body
from pyromq.protocol.body import DataVersion
from pyromq.protocol.requests.routes import TopicRouteData
from pyromq.protocol.requests.topics import TopicQueueMappingInfo

READ_WRITE = QueueShape(8, 8, 6, 0)
READ_ONLY = QueueShape(8, 8, 4, 0)

Shapes = Mapping[str, QueueShape]


def shapes_of(topics: str | Iterable[str] | Shapes) -> Shapes:
    """Topics with their queues; `"t u"` means both with eight readable and writable queues."""
    if isinstance(topics, Mapping):
        return topics
    return dict.fromkeys(topics.split() if isinstance(topics, str) else topics, READ_WRITE)


def address_of(name: str, id_: int) -> str:
    return f"{name}{id_}:10911"


class World:
    """Cluster `c` unless said otherwise; broker `a` with id 1 listens at `a1:10911`."""

    def __init__(self, **rules: Any) -> None:
        self.table = RouteTable(RouteRules(**rules))
        self.now_ms = 0.0
        self.changed: set[str] = set()
        self.notices: list[Any] = []

    def _note(self, changes: Changes) -> Changes:
        self.changed = changes.all_topics()
        self.notices = list(changes.notices)
        return changes

    def register(
        self,
        name: str = "a",
        id_: int = 0,
        topics: str | Iterable[str] | Shapes = "t u",
        *,
        version: int = 1,
        state_version: int = 0,
        address: str | None = None,
        cluster: str = "c",
        ha_address: str | None = None,
        zone: str | None = None,
        timeout_ms: int | None = None,
        acting_master: bool | None = None,
        filter_servers: list[str] | None = None,
        mappings: Mapping[str, TopicQueueMappingInfo] | None = None,
        connection: Hashable = None,
        origin: str | None = None,
        digest: Hashable = None,
    ) -> Registered:
        address = address or address_of(name, id_)
        who = Announcement(
            cluster,
            address,
            name,
            id_,
            ha_address or f"ha-{address}",
            zone,
            timeout_ms,
            acting_master,
        )
        inventory = Inventory(
            DataVersion(counter=version, state_version=state_version, timestamp=7),
            shapes_of(topics),
            mappings or {},
            filter_servers,
        )
        registered = self.table.register(
            who,
            lambda: inventory,
            digest=digest,
            connection=connection,
            origin=origin,
            now_ms=self.now_ms,
        )
        self._note(registered.changes)
        return registered

    def unregister(
        self,
        name: str = "a",
        id_: int = 0,
        *,
        address: str | None = None,
        cluster: str = "c",
        connection: Hashable = None,
        origin: str | None = None,
    ) -> Changes:
        broker = Unregistration(cluster, address or address_of(name, id_), name, id_)
        return self._note(self.table.unregister(broker, connection=connection, origin=origin))

    def lose(self, connection: Hashable) -> Changes:
        return self._note(self.table.connection_lost(connection))

    def wait(self, milliseconds: float) -> Expired:
        self.now_ms += milliseconds
        expired = self.table.expire(self.now_ms)
        self._note(expired.changes)
        return expired

    def heartbeat(self, name: str = "a", id_: int = 0, *, cluster: str = "c") -> bool:
        return self.table.heartbeat(cluster, address_of(name, id_), self.now_ms)

    def delete(self, topic: str, cluster: str | None = None) -> None:
        self._note(self.table.delete_topic(topic, cluster))

    def wipe(self, name: str) -> int:
        count, changes = self.table.wipe_write_permission(name)
        self._note(changes)
        return count

    def allow(self, name: str) -> int:
        count, changes = self.table.add_write_permission(name)
        self._note(changes)
        return count

    def route(self, topic: str, **form: Any) -> TopicRouteData | None:
        body = self.table.answers.find(topic, **{"strict": False, **form})
        return None if body is None else json_body.decode(body, TopicRouteData)

    def queues(self, topic: str) -> dict[str, QueueShape]:
        route = self.route(topic)
        if route is None:
            return {}
        return {
            each.broker_name: QueueShape(
                each.read_queue_nums, each.write_queue_nums, each.perm, each.topic_sys_flag
            )
            for each in route.queue_datas
        }

    def addresses(self, topic: str, **form: Any) -> dict[str, dict[int, str]]:
        route = self.route(topic, **form)
        return {} if route is None else {each.broker_name: each.broker_addrs for each in route.broker_datas}

    def picture(self) -> dict[str, Any]:
        """Everything observable, in small values."""
        info = self.table.cluster_info()
        groups = info.broker_addr_table.items()
        topics = sorted(self.table.all_topics().topic_list)
        return {
            "clusters": {cluster: sorted(names) for cluster, names in info.cluster_addr_table.items()},
            "brokers": {name: data.broker_addrs for name, data in groups},
            "acting": {name for name, data in groups if data.enable_acting_master},
            "zones": {
                name: data.zone_name for name, data in info.broker_addr_table.items() if data.zone_name
            },
            "live": self.table.sizes().live_brokers,
            "topics": {
                topic: " ".join(f"{name}:{shape.perm}" for name, shape in sorted(self.queues(topic).items()))
                for topic in topics
            },
            "filters": {
                address: servers for topic in topics for address, servers in self._filters(topic).items()
            },
            "changed": " ".join(sorted(self.changed)),
            "notices": [
                (notice.recipients, notice.min_broker_id, notice.offline_address) for notice in self.notices
            ],
        }

    def _filters(self, topic: str) -> dict[str, list[str]]:
        route = self.route(topic)
        return {} if route is None else route.filter_server_table
