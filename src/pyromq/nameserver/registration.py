"""How a registration changes the tables, as numbered steps.

Brokers repeat their whole registration every half minute. A repetition only keeps the broker alive, so it is
recognised before its body is read. Very many topics are added to the tables in parts; the registration is
complete with the last part.
"""

from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import NamedTuple, TypeVar

from pyromq.errors import Refused
from pyromq.nameserver.changes import Changes, min_broker_id_notice
from pyromq.nameserver.queue_layouts import QueueShape
from pyromq.nameserver.tables import BrokerGroup, BrokerKey, LiveBroker, NameServerTables, TopicMappings
from pyromq.protocol.body import DataVersion
from pyromq.protocol.codes import ResponseCode
from pyromq.protocol.names import MASTER_ID
from pyromq.protocol.requests.topics import TopicQueueMappingInfo

PART_TOPICS = 500
MAX_TIMEOUT_MS = 3_600_000

T = TypeVar("T")


class Announcement(NamedTuple):
    """The broker that registers."""

    cluster: str
    address: str
    name: str
    id: int
    ha_address: str = ""
    zone: str | None = None
    timeout_ms: int | None = None
    acting_master: bool | None = None
    """java: brokers that do not know acting masters leave it out, and are treated differently"""

    @property
    def key(self) -> BrokerKey:
        return BrokerKey(self.cluster, self.address)


@dataclass(frozen=True, slots=True)
class Inventory:
    """The topics and filter servers of a registering broker."""

    data_version: DataVersion
    shapes: Mapping[str, QueueShape] = field(default_factory=dict)
    mappings: Mapping[str, TopicQueueMappingInfo] = field(default_factory=dict)
    filter_servers: list[str] | None = None
    """None comes from old brokers without filter servers; it changes nothing."""


@dataclass(frozen=True, slots=True)
class Registered:
    changes: Changes
    master_address: str | None = None
    master_ha_address: str | None = None
    is_new: bool = False
    """Whether the broker was not alive before."""
    is_complete: bool = True
    """Whether this was the last part."""


def is_repetition(tables: NameServerTables, who: Announcement, digest: Hashable) -> bool:
    """Whether the last registration of this broker was the same, and registering again would change
    nothing."""
    live = tables.live.get(who.key)
    group = tables.groups.get(who.name)
    return (
        live is not None
        and group is not None
        and group.addresses.get(who.id) == who.address
        and live.receipt == _receipt(tables, group, who, digest)
    )


def repeat(
    tables: NameServerTables, who: Announcement, connection: Hashable, origin: str | None, now_ms: float
) -> Registered:
    """The steps of `register` that can matter for a repetition: 1, 2 and 9."""
    changes = Changes()
    tables.clusters.setdefault(who.cluster, {})[who.name] = None
    group, live = tables.groups[who.name], tables.live[who.key]
    before = group.route_fields()
    _describe(group, who)
    if group.route_fields() != before:
        tables.group_changed(who.name, changes)
    tables.bind(live, connection, origin)
    tables.keep_alive(live, now_ms)
    return _registered(tables, group, who, changes)


def conflicting_brokers(
    tables: NameServerTables, who: Announcement, connection: Hashable, origin: str | None
) -> list[LiveBroker]:
    """Live brokers of other hosts that would be replaced: at this address, or with this name and id."""
    if not tables.rules.guard_live_brokers:
        return []
    found = {id(live): live for live in tables.alive_at(who.name, who.address)}
    group = tables.groups.get(who.name)
    if group is not None and who.id in group.addresses:
        found |= {id(live): live for live in tables.alive_at(who.name, group.addresses[who.id])}
    here = tables.live.get(who.key)
    if here is not None:
        found[id(here)] = here
    return [live for live in found.values() if is_foreign(live, connection, origin)]


def is_foreign(live: LiveBroker, connection: Hashable, origin: str | None) -> bool:
    return live.connection is not connection and live.origin != origin


def check_conflicts(
    conflicting: Iterable[LiveBroker], who: Announcement, inventory: Inventory, origin: str | None
) -> None:
    """A broker may replace a live one only with a newer state version, which a controller gives out."""
    for other in conflicting:
        if inventory.data_version.state_version <= other.data_version.state_version:
            raise Refused(
                ResponseCode.NO_PERMISSION,
                f"broker {who.name} with id {who.id} is alive at {other.key.address}, registered from "
                f"{other.origin}: {who.address} cannot replace it from {origin} until it unregisters, loses "
                f"its connection or is silent for {other.timeout_ms} ms",
            )


def register(
    tables: NameServerTables,
    who: Announcement,
    inventory: Inventory,
    digest: Hashable,
    connection: Hashable,
    now_ms: float,
    origin: str | None = None,
) -> Registered:
    """Register in one step."""
    changes = Changes()
    registered = Registered(changes)
    for registered in register_in_parts(tables, who, inventory, digest, connection, now_ms, origin):
        changes.topics += registered.changes.topics
        changes.notices += registered.changes.notices
    return replace(registered, changes=changes)


def register_in_parts(
    tables: NameServerTables,
    who: Announcement,
    inventory: Inventory,
    digest: Hashable,
    connection: Hashable,
    now_ms: float,
    origin: str | None = None,
) -> Iterator[Registered]:
    """Yields the changes of each part. Other requests may be handled in between, and may end it early."""
    changes = Changes()

    # 1. The cluster has this broker name, and the name has an entry.
    tables.clusters.setdefault(who.cluster, {})[who.name] = None
    is_first = who.name not in tables.groups
    group = tables.groups.setdefault(who.name, BrokerGroup(who.cluster, who.name))
    before = group.route_fields()
    previous_min_id = group.min_id if group.addresses else MASTER_ID

    # 2. The last registration in the group sets its zone and acting master.
    _describe(group, who)

    # 3. An address has one id: a replica that became master gives up its old one.
    for id_ in [id_ for id_, address in group.addresses.items() if address == who.address and id_ != who.id]:
        tables.take_address(group, id_)

    # 4. The id may be in use at another address; if that broker is alive and ahead of us, it stays.
    if _is_outdated(tables, group, who, inventory):
        tables.release(who.key, who.name)
        if group.route_fields() != before:
            tables.group_changed(who.name, changes)
        yield Registered(changes)
        return

    # 5. The id is ours now. java: 5.x refuses a new id that comes with exactly one topic, 4.x does not.
    is_first |= not group.addresses.get(who.id)
    tables.give_address(group, who.id, who.address)
    if group.route_fields() != before:
        tables.group_changed(who.name, changes)

    # 6. The broker is alive while its connection is open and its deadline has not passed.
    live = tables.live.get(who.key)
    is_new = live is None
    is_new_version = live is None or live.data_version != inventory.data_version
    if live is None:
        live = tables.live[who.key] = LiveBroker(who.key)
    live.names[who.name] = None
    live.timeout_ms = _timeout_ms(tables, who)
    live.ha_address = who.ha_address
    live.receipt = None
    tables.bind(live, connection, origin)
    tables.keep_alive(live, now_ms)

    # 7. Filter servers: an empty list removes them.
    if inventory.filter_servers is not None:
        tables.set_filter_servers(who.key, inventory.filter_servers, changes)

    # 8. Topics come from the master, or from the replica that stands in for it.
    role = _role(group, who)
    if role != "replica":
        # Mappings of static topics are stored under the broker name that they contain.
        if is_first or is_new_version:
            _merge_mappings(tables, who, inventory, changes)
        present: list[str] = []
        if tables.rules.delete_absent_topics and not inventory.mappings:
            present = list(tables.queues.topics_of_broker(who.name))
        read_only: dict[QueueShape, QueueShape] | None = None
        if role == "prime replica" and group.acting_master:
            read_only = {shape: shape.without_write() for shape in set(inventory.shapes.values())}
        # java: 5.x adds a topic it does not know even if the version is unchanged, 4.x does not
        only_missing = not (is_first or is_new_version)
        token = live.receipt = object()
        steps = 0
        for part in _parts(present, PART_TOPICS):
            if steps:
                yield Registered(changes, is_complete=False)
                if not _can_continue(tables, who, live, token, role):
                    return
                changes = Changes()
            steps += 1
            absent = [topic for topic in part if topic not in inventory.shapes]
            changes.add(tables.queues.remove(who.name, absent))
        for shapes in _parts(inventory.shapes.items(), PART_TOPICS):
            if steps:
                yield Registered(changes, is_complete=False)
                if not _can_continue(tables, who, live, token, role):
                    return
                changes = Changes()
            steps += 1
            if read_only is not None:
                shapes = [(topic, read_only[shape]) for topic, shape in shapes]
            changes.add(tables.queues.put(who.name, shapes, only_missing=only_missing))

    # 9. Everything is registered: from now on the broker's data version is known.
    live.data_version = inventory.data_version
    live.receipt = _receipt(tables, group, who, digest)

    # 10. The other brokers of the group are notified of a new smallest id.
    if who.id < previous_min_id and tables.rules.notify_min_broker_id:
        changes.notices.append(min_broker_id_notice(group.addresses, ha_address=who.ha_address))
    yield _registered(tables, group, who, changes, is_new=is_new)


def _parts(items: Iterable[T], size: int) -> Iterator[list[T]]:
    remaining = iter(items)
    while part := list(islice(remaining, size)):
        yield part


def _can_continue(
    tables: NameServerTables, who: Announcement, live: LiveBroker, token: object, role: str
) -> bool:
    """Whether the broker is still registered as it was when the first part was added."""
    group = tables.groups.get(who.name)
    return (
        live.receipt is token
        and tables.live.get(who.key) is live
        and group is not None
        and group.addresses.get(who.id) == who.address
        and _role(group, who) == role
    )


def _timeout_ms(tables: NameServerTables, who: Announcement) -> int:
    """The timeout that the broker announced, limited: without a limit a dead broker might never expire."""
    if who.timeout_ms is None or who.timeout_ms <= 0:
        return tables.rules.broker_expiry_ms
    return min(who.timeout_ms, max(MAX_TIMEOUT_MS, tables.rules.broker_expiry_ms))


def _registered(
    tables: NameServerTables, group: BrokerGroup, who: Announcement, changes: Changes, *, is_new: bool = False
) -> Registered:
    """The answer gives a replica the address of its master, if the master is alive."""
    master_address = group.addresses.get(MASTER_ID)
    if who.id != MASTER_ID and master_address is not None:
        master = tables.live.get(BrokerKey(who.cluster, master_address))
        if master is not None:
            return Registered(changes, master_address, master.ha_address, is_new)
    return Registered(changes, is_new=is_new)


def _describe(group: BrokerGroup, who: Announcement) -> None:
    group.acting_master = bool(who.acting_master)
    group.zone = who.zone


def _is_outdated(
    tables: NameServerTables, group: BrokerGroup, who: Announcement, inventory: Inventory
) -> bool:
    holder = group.addresses.get(who.id)
    if holder is None or holder == who.address:
        return False
    live = tables.live.get(BrokerKey(who.cluster, holder))
    return live is not None and live.data_version.state_version > inventory.data_version.state_version


def _role(group: BrokerGroup, who: Announcement) -> str:
    if who.id == MASTER_ID:
        return "master"
    # A broker without an id yet sends -1 and cannot be an acting master.
    if who.acting_master is not None and who.id > MASTER_ID and who.id == group.min_id:
        return "prime replica"
    return "replica"


def _receipt(
    tables: NameServerTables, group: BrokerGroup, who: Announcement, digest: Hashable
) -> tuple[object, ...]:
    """If two receipts are equal, registering again would change nothing.

    The role decides whether the broker's topics count. The revision changes whenever a topic is added to the
    broker or removed from it.
    """
    return (
        who,
        digest,
        _role(group, who),
        tables.queues.revision_of_broker(who.name),
        tables.rules,
    )


def _merge_mappings(
    tables: NameServerTables, who: Announcement, inventory: Inventory, changes: Changes
) -> None:
    changed: dict[str, None] = {}
    for topic, mapping in inventory.mappings.items():
        mappings = tables.mappings.setdefault(topic, TopicMappings())
        broker = mapping.bname or who.name
        if mappings.by_broker.get(broker) != mapping:
            mappings.by_broker[broker] = mapping
            mappings.encoded.clear()
            if topic in tables.queues:
                changed[topic] = None
    changes.add(changed)
