"""How brokers leave: they say goodbye, their connection ends, or they fall silent."""

from collections.abc import Hashable, Iterable
from typing import NamedTuple

from pyromq.errors import Refused
from pyromq.nameserver.changes import Changes, min_broker_id_notice
from pyromq.nameserver.queue_layouts import QueueShape
from pyromq.nameserver.registration import is_foreign
from pyromq.nameserver.tables import BrokerKey, LiveBroker, Tables
from pyromq.protocol.codes import ResponseCode


class Farewell(NamedTuple):
    cluster: str
    address: str
    name: str
    id: int | None = None

    @property
    def key(self) -> BrokerKey:
        return BrokerKey(self.cluster, self.address)


def farewells_of(tables: Tables, lost: LiveBroker) -> list[Farewell]:
    """What a broker that can no longer speak would have said."""
    farewells: list[Farewell] = []
    for name in lost.names:
        group = tables.groups.get(name)
        addresses = group.addresses.items() if group is not None else ()
        id_ = next((id_ for id_, address in addresses if address == lost.key.address), None)
        farewells.append(Farewell(lost.key.cluster, lost.key.address, name, id_))
    return farewells


def check_farewell(tables: Tables, farewell: Farewell, connection: Hashable, origin: str | None) -> None:
    """Only who speaks from where a live broker speaks says goodbye for it."""
    if not tables.rules.guard_live_brokers:
        return
    concerned = tables.alive_at(farewell.name, farewell.address)
    here = tables.live.get(farewell.key)
    for live in [*concerned, here] if here is not None else concerned:
        if is_foreign(live, connection, origin):
            raise Refused(
                ResponseCode.NO_PERMISSION,
                f"broker {farewell.name} at {farewell.address} is alive, registered from {live.origin}: "
                f"nobody else can unregister it from {origin}",
            )


def unregister(tables: Tables, farewells: Iterable[Farewell]) -> Changes:
    changes = Changes()
    removed: dict[str, None] = {}
    reduced: dict[str, None] = {}
    offline: dict[str, str] = {}

    for farewell in farewells:
        name = farewell.name
        # 1. The process is not alive and filters nothing.
        if tables.release(farewell.key, name):
            tables.set_filter_servers(farewell.key, [], changes)
        group = tables.groups.get(name)
        if group is None:
            continue
        # 2. Its address leaves the group, under whatever id.
        was_smallest = bool(group.addresses) and farewell.id == group.min_id
        leaving = [id_ for id_, address in group.addresses.items() if address == farewell.address]
        for id_ in leaving:
            tables.take_address(group, id_)
        # 3. Without any address left the name is gone, from its cluster too.
        if not group.addresses:
            del tables.groups[name]
            _remove_from_clusters(tables, name)
            removed[name] = None
            continue
        reduced[name] = None
        if was_smallest:
            offline[name] = farewell.address
        if leaving:
            tables.note_look(name, changes)

    # 4. Topics lose the queues of names that are gone.
    for name in removed:
        changes.add(*tables.queues.remove_broker(name))

    # 5. Nobody may write to a group whose replicas stand in for a missing master.
    for name in reduced:
        group = tables.groups.get(name)
        if group is not None and group.acting_master and group.min_id > 0:
            changes.add(*tables.queues.reshape(name, QueueShape.without_write))

    # 6. Those who stay hear of a new smallest id.
    for name, address in offline.items():
        group = tables.groups.get(name)
        if tables.rules.notify_min_broker_id and group is not None and group.acting_master:
            changes.notices.append(min_broker_id_notice(group.addresses, offline_address=address))
    return changes


def _remove_from_clusters(tables: Tables, name: str) -> None:
    # java: 5.x removes the name from the cluster of the farewell only. A broker that had moved to another
    # cluster stays behind in the old one, as a name without addresses that makes its own tools fail.
    for cluster, names in list(tables.clusters.items()):
        names.pop(name, None)
        if not names:
            del tables.clusters[cluster]
