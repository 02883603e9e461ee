"""The route table against a plain model of the same rules that scans everything and shares nothing.

Two tables run beside the model: one reads every registration, the other may recognise repetitions. All three
must tell the same routes at every moment, and exactly the routes that differ must be reported as changed.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from unittest.mock import patch

from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.support.chance import examples

from pyromq.nameserver import queue_layouts, registration
from pyromq.nameserver.changes import Changes
from pyromq.nameserver.queue_layouts import QueueShape
from pyromq.nameserver.registration import Announcement, Inventory
from pyromq.nameserver.route_table import RouteTable
from pyromq.nameserver.tables import RouteRules
from pyromq.nameserver.unregistration import Unregistration
from pyromq.protocol import json_body
from pyromq.protocol.body import DataVersion
from pyromq.protocol.requests.routes import BrokerData, QueueData, TopicRouteData
from pyromq.protocol.requests.topics import TopicQueueMappingInfo

Key = tuple[str, str]


@dataclass
class Group:
    cluster: str
    addresses: dict[int, str] = field(default_factory=dict)
    acting: bool = False
    zone: str | None = None


@dataclass
class Live:
    names: list[str]
    timeout_ms: int
    deadline_ms: float
    version: DataVersion
    connection: str


class Model:
    """Apache's rules, written down as naively as possible."""

    def __init__(self, rules: RouteRules) -> None:
        self.rules = rules
        self.topics: dict[str, dict[str, QueueShape]] = {}
        self.groups: dict[str, Group] = {}
        self.clusters: dict[str, set[str]] = {}
        self.live: dict[Key, Live] = {}
        self.filters: dict[Key, list[str]] = {}
        self.mappings: dict[str, dict[str, TopicQueueMappingInfo]] = {}

    def register(self, who: Announcement, inventory: Inventory, connection: str, now_ms: float) -> None:
        key = (who.cluster, who.address)
        self.clusters.setdefault(who.cluster, set()).add(who.name)
        first = who.name not in self.groups
        group = self.groups.setdefault(who.name, Group(who.cluster))
        group.acting, group.zone = who.acting_master is True, who.zone
        for id_ in list(group.addresses):
            if group.addresses[id_] == who.address and id_ != who.id:
                del group.addresses[id_]
        holder = group.addresses.get(who.id)
        if holder is not None and holder != who.address:
            other = self.live.get((who.cluster, holder))
            if other and other.version.state_version > inventory.data_version.state_version:
                self._release(key, who.name)
                return
        first = first or holder is None
        group.addresses[who.id] = who.address
        is_prime = who.acting_master is not None and who.id != 0 and who.id == min(group.addresses)
        if who.id == 0 or is_prime:
            self._register_topics(who, group, inventory, first, is_prime)
        names = self.live[key].names if key in self.live else []
        timeout = self.rules.broker_expiry_ms if who.timeout_ms is None else who.timeout_ms
        self.live[key] = Live(
            [*dict.fromkeys([*names, who.name])],
            timeout,
            now_ms + timeout,
            inventory.data_version,
            connection,
        )
        if inventory.filter_servers is not None:
            self.filters.pop(key, None)
            if inventory.filter_servers:
                self.filters[key] = inventory.filter_servers

    def _register_topics(
        self, who: Announcement, group: Group, inventory: Inventory, first: bool, is_prime: bool
    ) -> None:
        if self.rules.delete_absent_topics and not inventory.mappings:
            for topic in list(self.topics):
                if topic not in inventory.shapes:
                    self._remove_queues(topic, who.name)
        live = self.live.get((who.cluster, who.address))
        changed = live is None or live.version != inventory.data_version
        for topic, shape in inventory.shapes.items():
            if first or changed or who.name not in self.topics.get(topic, {}):
                if is_prime and group.acting:
                    shape = shape.without_write()
                self.topics.setdefault(topic, {})[who.name] = shape
        if first or changed:
            for topic, mapping in inventory.mappings.items():
                self.mappings.setdefault(topic, {})[mapping.bname or ""] = mapping

    def _remove_queues(self, topic: str, name: str) -> None:
        self.topics[topic].pop(name, None)
        if not self.topics[topic]:
            del self.topics[topic]

    def _release(self, key: Key, name: str) -> None:
        """Not as in Apache's: a process with another name is still alive."""
        if key in self.live and name in self.live[key].names:
            self.live[key].names.remove(name)
            if not self.live[key].names:
                del self.live[key]

    def unregister(self, cluster: str, address: str, name: str) -> None:
        self._unregister([(cluster, address, name)])

    def _unregister(self, leaving: list[tuple[str, str, str]]) -> None:
        removed, reduced = set(), set()
        for cluster, address, name in leaving:
            self._release((cluster, address), name)
            if (cluster, address) not in self.live:
                self.filters.pop((cluster, address), None)
            group = self.groups.get(name)
            if group is None:
                continue
            group.addresses = {id_: a for id_, a in group.addresses.items() if a != address}
            if group.addresses:
                reduced.add(name)
            else:
                del self.groups[name]
                removed.add(name)
                self.clusters = {c: names - {name} for c, names in self.clusters.items() if names != {name}}
        for name in removed:
            for topic in list(self.topics):
                self._remove_queues(topic, name)
        for name in reduced & self.groups.keys():
            group = self.groups[name]
            if group.acting and min(group.addresses) > 0:
                for queues in self.topics.values():
                    if name in queues:
                        queues[name] = queues[name].without_write()

    def lose(self, connection: str) -> None:
        self._lose([key for key, live in self.live.items() if live.connection == connection])

    def expire(self, now_ms: float) -> None:
        self._lose([key for key, live in self.live.items() if live.deadline_ms < now_ms])

    def _lose(self, keys: list[Key]) -> None:
        self._unregister([(*key, name) for key in keys for name in self.live[key].names])

    def heartbeat(self, key: Key, now_ms: float) -> None:
        if key in self.live:
            self.live[key].deadline_ms = now_ms + self.live[key].timeout_ms

    def delete(self, topic: str, cluster: str | None) -> None:
        if cluster is None:
            self.topics.pop(topic, None)
            return
        for name in self.clusters.get(cluster, ()):
            if topic in self.topics:
                self._remove_queues(topic, name)

    def set_permission(self, name: str, change: Callable[[QueueShape], QueueShape]) -> int:
        holding = [queues for queues in self.topics.values() if name in queues]
        for queues in holding:
            queues[name] = change(queues[name])
        return len(holding)

    def register_topic(self, topic: str, shapes: list[tuple[str, QueueShape]]) -> None:
        is_known = topic in self.topics
        accepted = {}
        for name, shape in shapes:
            if name not in self.groups:
                if not is_known:
                    return
                break
            accepted[name] = shape
        if accepted:
            self.topics.setdefault(topic, {}).update(accepted)

    def route(self, topic: str) -> TopicRouteData | None:
        if topic not in self.topics:
            return None
        names = sorted(self.topics[topic])
        groups = [(name, self.groups[name]) for name in names]
        return TopicRouteData(
            broker_datas=[
                BrokerData(
                    broker_name=name,
                    cluster=group.cluster,
                    broker_addrs=dict(group.addresses),
                    enable_acting_master=group.acting,
                    zone_name=group.zone,
                )
                for name, group in groups
            ],
            filter_server_table={
                address: self.filters[group.cluster, address]
                for _, group in groups
                for address in group.addresses.values()
                if (group.cluster, address) in self.filters
            },
            queue_datas=[
                QueueData(
                    broker_name=name,
                    perm=shape.perm,
                    read_queue_nums=shape.read_queues,
                    write_queue_nums=shape.write_queues,
                    topic_sys_flag=shape.sys_flag,
                )
                for name, shape in sorted(self.topics[topic].items())
            ],
            topic_queue_mapping_by_broker=dict(self.mappings[topic]) if topic in self.mappings else None,
        )

    def routes(self) -> dict[str, TopicRouteData | None]:
        return {topic: self.route(topic) for topic in self.topics}


TOPICS = ["t", "u", "v"]
NAMES = ["a", "b"]
ADDRESSES = ["x:1", "y:1", "z:1"]
CONNECTIONS = ["k", "l"]

shapes = st.sampled_from([QueueShape(4, 4, 6, 0), QueueShape(4, 4, 4, 0), QueueShape(8, 8, 6, 1)])
announcements = st.builds(
    Announcement,
    cluster=st.sampled_from(["c", "c", "c", "d"]),
    address=st.sampled_from(ADDRESSES),
    name=st.sampled_from(NAMES),
    id=st.integers(0, 2),
    ha_address=st.just("ha"),
    zone=st.sampled_from([None, None, "z"]),
    timeout_ms=st.sampled_from([None, 50]),
    acting_master=st.sampled_from([None, True, True, False]),
)
inventories = st.builds(
    Inventory,
    st.builds(DataVersion, counter=st.integers(1, 2), state_version=st.integers(0, 1)),
    st.dictionaries(st.sampled_from(TOPICS), shapes, max_size=3),
    st.sampled_from([{}, {}, {"t": TopicQueueMappingInfo(bname="a", topic="t", epoch=1)}]),
    st.sampled_from([None, [], ["f:1"]]),
)
# Few different ones, and often the same again: repetitions are what the second table is about.
registrations = st.one_of(
    st.tuples(announcements, inventories),
    st.sampled_from(
        [
            (
                Announcement("c", f"{address}:1", "a", id_, "ha", None, None, True),
                Inventory(DataVersion(counter=1), dict.fromkeys(topics, QueueShape(4, 4, 6, 0))),
            )
            for address, id_ in (("x", 0), ("y", 1))
            for topics in (["t", "u"], ["t"])
        ]
    ),
)
operations = st.one_of(
    st.tuples(st.just("register"), registrations, st.sampled_from(CONNECTIONS)),
    st.tuples(st.just("register"), registrations, st.sampled_from(CONNECTIONS)),
    st.tuples(
        st.just("unregister"),
        st.sampled_from(["c", "c", "d"]),
        st.sampled_from(ADDRESSES),
        st.sampled_from(NAMES),
    ),
    st.tuples(st.just("lose"), st.sampled_from(CONNECTIONS)),
    st.tuples(st.just("wait"), st.sampled_from([10, 30, 101])),
    st.tuples(st.just("heartbeat"), st.sampled_from(ADDRESSES)),
    st.tuples(st.just("delete"), st.sampled_from(TOPICS), st.sampled_from([None, "c", "d"])),
    st.tuples(st.just("sweep"), st.integers(0, 1), st.integers(1, 3)),
    st.tuples(st.just("wipe"), st.sampled_from(NAMES)),
    st.tuples(st.just("allow"), st.sampled_from(NAMES)),
    st.tuples(
        st.just("register topic"),
        st.sampled_from(TOPICS),
        st.lists(st.tuples(st.sampled_from(NAMES), shapes), max_size=2),
    ),
)


class Trio:
    """The model, a table that reads everything, and one that may not have to."""

    def __init__(self, rules: RouteRules) -> None:
        self.model = Model(rules)
        self.tables = [RouteTable(rules), RouteTable(rules)]
        self.now_ms = 0.0

    def do(self, name: str, *details: Any) -> None:
        before = self.model.routes()
        changes = getattr(self, name.replace(" ", "_"))(*details)
        after = self.model.routes()
        differing = {t for t in before.keys() | after.keys() if before.get(t) != after.get(t)}
        for table, change in zip(self.tables, changes, strict=True):
            reported = change.all_topics() if change is not None else set()
            assert reported == differing
            self.check(table)

    def check(self, table: RouteTable) -> None:
        model, tables = self.model, table._tables
        assert {c: set(names) for c, names in tables.clusters.items()} == model.clusters
        assert {n: g.addresses for n, g in tables.groups.items()} == {
            n: g.addresses for n, g in model.groups.items()
        }
        assert tables.live.keys() == model.live.keys()
        assert {key: live.data_version for key, live in tables.live.items()} == {
            key: live.version for key, live in model.live.items()
        }
        shown = {address for group in tables.groups.values() for address in group.addresses.values()}
        assert shown <= {key.address for key in tables.live}, "every address in a route is waited for"
        assert tables.filter_servers == model.filters
        assert set(table.all_topics().topic_list) == set(model.topics)
        assert tables.queues.pairs == sum(map(len, model.topics.values()))
        for topic in TOPICS:
            for strict in (False, True):
                body = table.answers.find(topic, strict=strict)
                told = None if body is None else json_body.decode(body, TopicRouteData)
                assert told == model.route(topic)
        layouts = {id(layout) for layout in tables.queues.layouts}
        assert {id(tables.queues.find(topic)) for topic in model.topics} == layouts
        assert {id(layout) for name in tables.groups for layout in tables.queues.of_broker(name)} == layouts

    def register(self, registration: tuple[Announcement, Inventory], connection: str) -> list[Changes]:
        who, inventory = registration
        self.model.register(who, inventory, connection, self.now_ms)
        digest = repr(inventory)
        return [
            table.register(
                who, lambda: inventory, digest=each, connection=connection, now_ms=self.now_ms
            ).changes
            for table, each in zip(self.tables, (None, digest), strict=True)
        ]

    def unregister(self, cluster: str, address: str, name: str) -> list[Changes]:
        self.model.unregister(cluster, address, name)
        return [table.unregister(Unregistration(cluster, address, name, 0)) for table in self.tables]

    def lose(self, connection: str) -> list[Changes]:
        self.model.lose(connection)
        return [table.connection_lost(connection) for table in self.tables]

    def wait(self, milliseconds: int) -> list[Changes]:
        self.now_ms += milliseconds
        self.model.expire(self.now_ms)
        return [table.expire(self.now_ms).changes for table in self.tables]

    def sweep(self, table: int, topics: int) -> list[None]:
        """One of them forgets what the other still has to forget; nobody sees a difference."""
        self.tables[table]._tables.queues.sweep(topics)
        return [None, None]

    def sweep_all(self) -> None:
        """In the end topics with equal queues are together."""
        for table in self.tables:
            queues = table._tables.queues
            while queues.needs_sweeping:
                queues.sweep(1)
            self.check(table)
            assert len({layout.key for layout in queues.layouts}) == len(queues.layouts)
            assert len(queues.of_topic) == len(queues)

    def heartbeat(self, address: str) -> list[None]:
        self.model.heartbeat(("c", address), self.now_ms)
        for table in self.tables:
            table.heartbeat("c", address, self.now_ms)
        return [None, None]

    def delete(self, topic: str, cluster: str | None) -> list[Changes]:
        self.model.delete(topic, cluster)
        return [table.delete_topic(topic, cluster) for table in self.tables]

    def wipe(self, name: str) -> list[Changes]:
        count = self.model.set_permission(name, QueueShape.without_write)
        results = [table.wipe_write_permission(name) for table in self.tables]
        assert [touched for touched, _ in results] == [count, count]
        return [changes for _, changes in results]

    def allow(self, name: str) -> list[Changes]:
        count = self.model.set_permission(name, QueueShape.read_and_write)
        results = [table.add_write_permission(name) for table in self.tables]
        assert [touched for touched, _ in results] == [count, count]
        return [changes for _, changes in results]

    def register_topic(self, topic: str, shapes: list[tuple[str, QueueShape]]) -> list[Changes]:
        self.model.register_topic(topic, shapes)
        return [table.register_topic(topic, shapes) for table in self.tables]


def _registers(
    cluster: str, address: str, name: str, *topics: str, filters: list[str] | None = None
) -> tuple[Any, ...]:
    inventory = Inventory(DataVersion(), dict.fromkeys(topics, QueueShape(4, 4, 6, 0)), {}, filters)
    return "register", (Announcement(cluster, address, name, 0), inventory), "k"


FILTER_SERVERS_OF_A_NEIGHBOUR = [
    _registers("d", "x:1", "a", filters=["f:1"]),
    _registers("d", "y:1", "b", "t"),
    _registers("c", "x:1", "b", "t"),  # b's routes show what filters at a's address now ...
    ("unregister", "d", "x:1", "a"),  # ... and no longer
]


@example(FILTER_SERVERS_OF_A_NEIGHBOUR, False)
@settings(max_examples=examples(300))
@given(st.lists(operations, max_size=40), st.booleans())
def test_table_and_model_tell_the_same_routes(steps: list[tuple[Any, ...]], delete_absent: bool) -> None:
    trio = Trio(RouteRules(delete_absent_topics=delete_absent, broker_expiry_ms=100))
    # Even a single topic is many here: it is put in place in parts, and forgotten bit by bit.
    with patch.object(registration, "PART_TOPICS", 1), patch.object(queue_layouts, "SWEPT_AT_ONCE", 0):
        for step in steps:
            trio.do(*step)
        trio.sweep_all()
