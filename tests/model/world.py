"""A state of the model: one group of three brokers, its controller, and the proposals that are on their way.

Everything in a state is a value. Ids of brokers and versions of the set are numbers that nothing else has, so
they can be replaced wherever they stand. Of times only the age counts: something was just now, or long ago.
"""

from collections.abc import Iterable
from functools import lru_cache
from itertools import permutations
from typing import Any, Final, NamedTuple

from msgspec import Struct
from msgspec.structs import astuple

from pyromq.broker.replication.in_sync_set import InSyncSet, ReplicaReport
from pyromq.controller.groups import GroupRecord
from pyromq.store.log.epochs import Epochs

IDS: Final = (101, 102, 103)
FIRST_VERSION: Final = 1_000_000
"""Of an in-sync set: such a number is a version, wherever it stands."""
NOW: Final = 0.0
LONG_S: Final = 60.0
"""A time in which everything times out that can."""
Record = tuple[int, int]
"""The epoch of the master that wrote it, and a number that no other record has."""
HOLE: Final = 1, -1
"""In the log of a learner that began in the middle."""


class Held:
    """A value of the shipped code in a state: equal and hashed as what is in it."""

    __slots__ = ("_hash", "frozen", "value")

    def __init__(self, value: Any, now: float = 0.0) -> None:
        """In every state it is the same time of day: times are moved there."""
        self.value = value
        if isinstance(value, InSyncSet):
            value._reports = {each: _moved(report, now) for each, report in value._reports.items()}
            value._began_at = _age(value._began_at, now)
            self.frozen = _frozen(tuple(vars(value).values()))
        else:
            self.frozen = _frozen(astuple(value))
        self._hash = hash(self.frozen)

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, Held) and self.frozen == other.frozen)

    def __hash__(self) -> int:
        return self._hash


def _moved(report: ReplicaReport, now: float) -> ReplicaReport:
    return report._replace(caught_up_at=_age(report.caught_up_at, now), at=_age(report.at, now))


def _age(at: float, now: float) -> float:
    return NOW if now - at < LONG_S else NOW - LONG_S


def _frozen(value: Any) -> Any:
    kind = type(value)
    if kind is int or kind is frozenset or kind is str or value is None:
        return value
    if kind is dict:
        return frozenset([(name, _frozen(each)) for name, each in value.items()])
    if isinstance(value, tuple):
        return tuple([_frozen(each) for each in value])
    if isinstance(value, Struct):
        return _frozen(astuple(value))
    return value


class Broker(NamedTuple):
    id: int
    is_up: bool = True
    is_registered: bool = True
    log: tuple[Record, ...] = ()
    epochs: Epochs = ()
    epoch: int = 0
    """Of its role; 0 before it has one."""
    master: int | None = None
    """Whom it follows; itself if it is the master, as far as it knows."""
    is_linked: bool = False
    """As replica: it has a connection to its master, and has cut off what that does not have."""
    in_sync: Held | None = None
    confirmed: int = 0
    asked: "Proposal | None" = None
    """The proposal whose answer it waits for."""
    start: int = 1
    """The name of this start of it."""
    kept_since: int | None = None
    """The name of an earlier start, since which it has lost nothing that it reported."""
    is_learner: bool = False

    @property
    def leads(self) -> bool:
        return self.in_sync is not None


class Proposal(NamedTuple):
    sender: int
    epoch: int
    version: int
    wanted: frozenset[int]

    def __str__(self) -> str:
        version = self.version - FIRST_VERSION
        return f"{names(self.wanted)} after version {version}, of {name(self.sender)} in epoch {self.epoch}"


class Budget(NamedTuple):
    """How often what may still happen."""

    sends: int = 1
    crashes: int = 1
    """Ends after which a broker cannot say whether it has lost something."""
    losses: int = 1
    """Those of them that lose what was not synced."""
    stops: int = 0
    """Ends after which a broker knows that it has lost nothing, because it has synced everything."""
    blips: int = 0
    """Connections of replicas that close for no reason."""
    silences: int = 0
    """Calls of the controller whose answer does not come, in time or at all."""
    outages: int = 0
    """Times at which no controller is there."""
    mistakes: int = 0
    """Times at which the controller takes a broker for gone that is there."""
    pauses: int = 0
    """Changes of the group that a controller has decided on, and that reach its store later."""
    takeovers: int = 0
    """Times at which another controller begins to lead meanwhile."""
    oblivions: int = 0
    """Times at which the controller's store is lost."""


class Paused(NamedTuple):
    """A controller has read the group and decided; what it writes is still on its way to the store."""

    after: Held
    proposal: Proposal | None
    """What it decided about; None for an election."""
    is_stale: bool = False
    """Whether the group has changed since it was read."""
    is_deposed: bool = False
    """Whether another controller leads since then."""


class World(NamedTuple):
    group: Held
    brokers: tuple[Broker, ...]
    alive: frozenset[int]
    """As the controller knows."""
    has_controller: bool = True
    on_the_way: frozenset[Proposal] = frozenset()
    acknowledged: frozenset[tuple[int, Record]] = frozenset()
    may_lead: frozenset[int] = frozenset()
    """Who must be able to become master: all who were in sync and know that they have lost nothing since."""
    budget: Budget = Budget()
    paused: Paused | None = None
    forgotten_set: frozenset[int] = frozenset()
    """Who was in sync when the controller's store was lost."""

    @property
    def in_sync(self) -> frozenset[int]:
        return self.known.sync_set or self.forgotten_set

    @property
    def known(self) -> GroupRecord:
        group: GroupRecord = self.group.value
        return group

    def broker(self, broker_id: int) -> Broker:
        return self.brokers[IDS.index(broker_id)]

    def with_broker(self, broker: Broker) -> "World":
        at = IDS.index(broker.id)
        return self._replace(brokers=(*self.brokers[:at], broker, *self.brokers[at + 1 :]))

    def with_group(self, group: Held) -> "World":
        if group == self.group:
            return self
        paused = None if self.paused is None else self.paused._replace(is_stale=True)
        return self._replace(group=group, paused=paused)

    def __str__(self) -> str:
        group = self.known
        logs = ", ".join(f"{name(each.id)} has {len(each.log)} records" for each in self.brokers)
        return (
            f"master {name(group.master_id)} epoch {group.master_epoch}, in sync {names(group.sync_set)}"
            f" version {group.sync_set_epoch - FIRST_VERSION}; {logs}"
        )


def name(broker_id: int | None) -> str:
    return "nobody" if broker_id is None else "ABC"[IDS.index(broker_id)]


def names(ids: Iterable[int]) -> str:
    return "{" + ",".join(map(name, sorted(ids))) + "}"


# The names of brokers do not matter

_RENAMINGS: Final = tuple(dict(zip(IDS, each, strict=True)) for each in permutations(IDS))


def key(world: World) -> int:
    """The same for states that differ only in the names of brokers, or in the time of day."""
    version = world.known.sync_set_epoch
    sets = world.alive, world.may_lead, world.forgotten_set
    here = _all_names((*sets, world.on_the_way, world.acknowledged, world.paused), version)
    group = _all_names(world.group, version)
    one, two, three = (_all_names(each, version) for each in world.brokers)
    rest = world.budget, world.has_controller
    return min(
        hash((here[each], group[each], *sorted((one[each], two[each], three[each])), rest))
        for each in range(len(_RENAMINGS))
    )


@lru_cache(maxsize=1 << 17)
def _all_names(value: Any, version: int) -> list[int]:
    """The hash of a value under every renaming; of versions only the distance to the last one counts."""
    return [hash(_renamed(value, each, version)) for each in _RENAMINGS]


def _renamed(value: Any, renaming: dict[int, int], version: int) -> Any:
    kind = type(value)
    if kind is int:
        return value - version - 1 if value >= FIRST_VERSION else renaming.get(value, value)
    if kind is frozenset:
        return frozenset([_renamed(each, renaming, version) for each in value])
    if isinstance(value, tuple):
        return tuple([_renamed(each, renaming, version) for each in value])
    if kind is Held:
        return _renamed(value.frozen, renaming, version)
    return value
