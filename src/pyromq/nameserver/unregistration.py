"""Removes brokers from the tables: they unregistered, lost their connection or expired."""

from collections.abc import Hashable, Iterable
from typing import NamedTuple

from pyromq.errors import Refused
from pyromq.nameserver.changes import Changes, min_broker_id_notice
from pyromq.nameserver.queue_layouts import QueueShape
from pyromq.nameserver.registration import is_foreign
from pyromq.nameserver.tables import BrokerKey, LiveBroker, NameServerTables
from pyromq.protocol.codes import ResponseCode


class Unregistration(NamedTuple):
    cluster: str
    address: str
    name: str
    id: int | None = None

    @property
    def key(self) -> BrokerKey:
        return BrokerKey(self.cluster, self.address)


def unregistrations_of(tables: NameServerTables, lost: LiveBroker) -> list[Unregistration]:
    """The unregistrations that a lost broker would have sent."""
    leaving_brokers: list[Unregistration] = []
    for name in lost.names:
        group = tables.groups.get(name)
        addresses = group.addresses.items() if group is not None else ()
        id_ = next((id_ for id_, address in addresses if address == lost.key.address), None)
        leaving_brokers.append(Unregistration(lost.key.cluster, lost.key.address, name, id_))
    return leaving_brokers


def check_unregistration(
    tables: NameServerTables, broker: Unregistration, connection: Hashable, origin: str | None
) -> None:
    """A live broker can be unregistered from its own connection or host only."""
    if not tables.rules.guard_live_brokers:
        return
    concerned = tables.alive_at(broker.name, broker.address)
    here = tables.live.get(broker.key)
    for live in [*concerned, here] if here is not None else concerned:
        if is_foreign(live, connection, origin):
            raise Refused(
                ResponseCode.NO_PERMISSION,
                f"broker {broker.name} at {broker.address} is alive, registered from {live.origin}: "
                f"it cannot be unregistered from {origin}",
            )


def unregister(tables: NameServerTables, leaving_brokers: Iterable[Unregistration]) -> Changes:
    changes = Changes()
    removed: dict[str, None] = {}
    reduced: dict[str, None] = {}
    offline: dict[str, str] = {}

    for broker in leaving_brokers:
        name = broker.name
        # 1. The process is no longer alive and has no filter servers.
        if tables.release(broker.key, name):
            tables.set_filter_servers(broker.key, [], changes)
        group = tables.groups.get(name)
        if group is None:
            continue
        # 2. Its address is removed from the group, whatever its id is.
        was_smallest = bool(group.addresses) and broker.id == group.min_id
        leaving = [id_ for id_, address in group.addresses.items() if address == broker.address]
        for id_ in leaving:
            tables.take_address(group, id_)
        # 3. A group without addresses is removed, also from its clusters.
        if not group.addresses:
            del tables.groups[name]
            _remove_from_clusters(tables, name)
            removed[name] = None
            continue
        reduced[name] = None
        if was_smallest:
            offline[name] = broker.address
        if leaving:
            tables.group_changed(name, changes)

    # 4. Topics lose their queues on removed groups.
    for name in removed:
        changes.add(*tables.queues.remove_broker(name))

    # 5. A group becomes read-only when a replica acts as its master.
    for name in reduced:
        group = tables.groups.get(name)
        if group is not None and group.acting_master and group.min_id > 0:
            changes.add(*tables.queues.reshape(name, QueueShape.without_write))

    # 6. The remaining brokers are notified of a new smallest id.
    for name, address in offline.items():
        group = tables.groups.get(name)
        if tables.rules.notify_min_broker_id and group is not None and group.acting_master:
            changes.notices.append(min_broker_id_notice(group.addresses, offline_address=address))
    return changes


def _remove_from_clusters(tables: NameServerTables, name: str) -> None:
    # java: 5.x removes the name from the cluster of the request only. A broker that had moved to another
    # cluster stays behind in the old one, as a name without addresses that makes its own tools fail.
    for cluster, names in list(tables.clusters.items()):
        names.pop(name, None)
        if not names:
            del tables.clusters[cluster]
