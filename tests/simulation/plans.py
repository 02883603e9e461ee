"""A plan is data: the cluster, its loads and its faults. It is drawn from a seed before anything runs.

So a run can be repeated, and a plan can be edited: without a fault, with a shorter one, with other loads.
Each seed has a few kinds of faults and a few loads, and none of the others.
"""

from random import Random
from typing import Any, Literal, get_args

import msgspec

FaultKind = Literal[
    "kill",
    "power",
    "stall",
    "partition",
    "severed",
    "pause",
    "slow",
    "eio",
    "full",
    "read-only",
    "clock",
    "client",
    "controller",
    "etcd",
    "wipe",
    "front",
    "names",
    "all power",
    "flip",
    "damage",
    "restart",
    "store",
    "reset",
]
LoadKind = Literal[
    "plain",
    "batched",
    "ordered",
    "delayed",
    "timed",
    "transactional",
    "popped",
    "replies",
    "tables",
    "streamed",
    "failing",
    "lingering",
    "received",
    "drivers",
    "locked",
    "pulled",
    "resets",
    "leaving",
    "fronted",
    "dropped",
    "sourced",
    "repeated",
    "queried",
    "light",
    "purged",
    "tiered",
    "compacted",
]

ALL_FAULTS: tuple[FaultKind, ...] = get_args(FaultKind)
ALL_LOADS: tuple[LoadKind, ...] = get_args(LoadKind)

_NEEDS_CONTROLLER = frozenset(
    {"controller", "severed", "etcd", "wipe", "power", "all power", "eio", "read-only", "reset"}
)
"""A pair without a controller keeps its roles: if its master loses the end of its log with the power or with
a sync that failed, the two logs are different ones, and an operator has to decide."""
_NEEDS_REPLICAS = frozenset({"stall", "partition", "flip", "damage"})
_ON_DEMAND = frozenset({"store", "reset"})
"""They are not among the faults of which a seed draws a few."""
_ETCD_RATIO = 0.3
_EXTRA: tuple[tuple[LoadKind, float], ...] = (
    ("fronted", 0.1),
    ("dropped", 0.1),
    ("sourced", 0.1),
    ("repeated", 0.1),
    ("queried", 0.1),
    ("light", 0.1),
    ("purged", 0.1),
    ("tiered", 0.1),
    ("compacted", 0.1),
)
"""They come with chances of their own, on top of others: so the rest of a seed stays as it was."""
_NEEDS_LOAD = frozenset({("fronted", "front"), ("tiered", "store")})
_STORE_FAULT_RATIO = 0.5
_SAMPLED = tuple(kind for kind in ALL_LOADS if kind not in dict(_EXTRA))


_READS_TIER = frozenset({"tiered", "plain", "batched", "ordered", "pulled", "streamed"})
"""These loads do without what leaves the disk. Others read the log itself, as messages that wait."""


class Fault(msgspec.Struct, frozen=True, omit_defaults=True):
    """`after_s` after the one before has begun or ended, something breaks for `for_s`."""

    kind: FaultKind
    after_s: float
    for_s: float
    target: Literal["master", "replica"] = "master"
    detail: str = ""
    """Which of the variants of the kind; see `faults.py`."""
    strength: float = 1.0
    at_once: bool = False
    """It does not wait until all brokers are in sync, and the next fault does not wait for its end: more is
    broken at the same time than a group survives. What was acknowledged stays all the same, if no disk
    forgets it; nothing else is promised meanwhile."""


class Load(msgspec.Struct, frozen=True, omit_defaults=True):
    kind: LoadKind
    pause_s: float = 0.05
    """Between two messages of one producer."""


class Plan(msgspec.Struct, frozen=True, omit_defaults=True):
    seed: int
    replicas: int = 3
    has_controller: bool = True
    controllers: Literal["journal", "etcd"] = "journal"
    """One controller with a journal, or two that share an etcd."""
    flush: Literal["ASYNC_FLUSH", "SYNC_FLUSH"] = "ASYNC_FLUSH"
    loads: tuple[Load, ...] = ()
    faults: tuple[Fault, ...] = ()
    calm_s: float = 3.0
    """The loads go on for this time after the last fault is over."""
    restarts_at_end: bool = False
    """All brokers are killed, one after the other, before the end is judged."""
    broker_settings: dict[str, Any] = {}
    controller_settings: dict[str, Any] = {}
    store_settings: dict[str, Any] = {}

    @property
    def has_tier(self) -> bool:
        return any(load.kind == "tiered" for load in self.loads)

    @property
    def removes_files(self) -> bool:
        """Whether files of the log go as soon as what they have is elsewhere."""
        kinds = {load.kind for load in self.loads}
        return kinds == {"compacted"} or (self.has_tier and kinds <= _READS_TIER)

    @property
    def acknowledges_alone(self) -> bool:
        """Whether a master waits for no other broker: then a fail-over may lose what was acknowledged."""
        return self.broker_settings.get("all_in_sync") is False

    def to_json(self) -> str:
        return msgspec.json.format(msgspec.json.encode(self), indent=1).decode()

    @classmethod
    def from_json(cls, text: str | bytes) -> "Plan":
        return msgspec.json.decode(text, type=cls)


def draw_plan(
    seed: int, only: tuple[str, ...] | None = None, only_loads: tuple[str, ...] | None = None
) -> Plan:
    """`only`, `only_loads`: the kinds of faults and loads to choose from; an empty one means none."""
    chance = Random(f"{seed}/plan")
    replicas, has_controller = chance.choices(
        ((3, True), (2, True), (1, True), (2, False)), weights=(80, 6, 7, 7)
    )[0]
    controllers = _draw_controllers(seed, only) if has_controller else "journal"
    known: list[FaultKind] = [
        kind
        for kind in ALL_FAULTS
        if (kind not in _ON_DEMAND if only is None else kind in only)
        and (has_controller or kind not in _NEEDS_CONTROLLER)
        and (replicas > 1 or kind not in _NEEDS_REPLICAS)
        and (controllers == "etcd" or kind != "etcd")
    ]
    kinds = chance.sample(known, min(len(known), chance.randint(2, 4)))
    faults = tuple(_draw_fault(chance, kinds) for _ in range(chance.randint(2, 5))) if kinds else ()
    flush: Literal["ASYNC_FLUSH", "SYNC_FLUSH"] = chance.choice(("ASYNC_FLUSH", "SYNC_FLUSH"))
    if replicas == 1 or not has_controller or any(fault.kind == "all power" for fault in faults):
        # Otherwise what was acknowledged last is lost with the power, as documented.
        flush = "SYNC_FLUSH"
    known_loads = [kind for kind in _SAMPLED if only_loads is None or kind in only_loads]
    loads = chance.sample(known_loads, min(len(known_loads), chance.randint(1, 4)))
    if loads == ["drivers"] and (only_loads is None or "plain" in only_loads):
        loads += ["plain"]  # otherwise nothing is acknowledged by brokers
    drawn = tuple(Load(kind, round(chance.choice((0.1, 0.3, 1.0)), 3)) for kind in loads)
    for kind, ratio in _EXTRA:
        is_drawn = Random(f"{seed}/{kind}").random() < ratio
        is_needed = any((kind, fault.kind) in _NEEDS_LOAD for fault in faults)
        if is_drawn or is_needed if only_loads is None else kind in only_loads:
            drawn += (Load(kind, 0.3),)
    if only is None and any(load.kind == "tiered" for load in drawn):
        faults = with_store_faults(seed, faults)
    return Plan(
        seed=seed,
        replicas=replicas,
        has_controller=has_controller,
        controllers=controllers,
        flush=flush,
        loads=drawn,
        faults=faults,
        restarts_at_end=chance.random() < 0.3,
    )


def with_store_faults(seed: int, faults: tuple[Fault, ...]) -> tuple[Fault, ...]:
    """The object store of a tier fails now and then, beside other faults."""
    chance = Random(f"{seed}/store")
    found: list[Fault] = []
    for each in faults:
        if chance.random() < _STORE_FAULT_RATIO:
            found.append(_draw_fault(chance, ["store"]))
        found.append(each)
    return tuple(found)


def _draw_controllers(seed: int, only: tuple[str, ...] | None) -> Literal["journal", "etcd"]:
    is_etcd = "etcd" in (only or ()) or Random(f"{seed}/controllers").random() < _ETCD_RATIO
    return "etcd" if is_etcd else "journal"


def _draw_fault(chance: Random, kinds: list[FaultKind]) -> Fault:
    kind = chance.choice(kinds)
    after_s = chance.choice((chance.uniform(0.0, 1.0), chance.uniform(0.5, 8.0)))
    shortest, longest = chance.choices(((0.1, 3.0), (3.0, 15.0), (45.0, 60.0)), weights=(4, 3, 1))[0]
    for_s = chance.uniform(shortest, longest)
    detail, strength = "", 1.0
    if kind == "stall":
        detail, strength = chance.choice(("ha", "any")), chance.choice((0.3, 0.6, 1.0))
        for_s = chance.uniform(0.1, 8.0)
    elif kind == "partition":
        detail = f"{chance.choice(('all', 'all', 'brokers'))} {chance.choice(('both', 'both', 'in', 'out'))}"
        for_s = min(for_s, 20.0)
    elif kind == "severed":
        detail, for_s = chance.choice(("both", "in", "out")), min(for_s, 10.0)
    elif kind == "pause":
        for_s = min(for_s, 20.0)
    elif kind == "slow":
        strength = chance.choice((10.0, 100.0, 1000.0))
    elif kind == "eio":
        detail = chance.choice(("", "once"))
    elif kind == "power":
        detail = chance.choice(("", "inside"))
    elif kind in ("full", "read-only"):
        for_s = min(for_s, 20.0)
    elif kind == "clock":
        strength = chance.choice((-1, 1)) * chance.choice((0.5, 5.0, 3600.0))
    elif kind == "client":
        detail = chance.choice(("", "", "paused", "suspended"))
        if detail and chance.random() < 0.3:
            for_s = chance.uniform(130.0, 200.0)  # until brokers take it for gone
    elif kind == "controller":
        detail = chance.choice(("kill", "power", "pause"))
    elif kind == "etcd":
        detail = chance.choice(("kill", "power", "pause", "cut both", "cut in", "cut out", "slow"))
        strength = chance.choice((0.1, 0.5, 2.0))
    elif kind == "wipe":
        detail = chance.choice(("", "restarted", "stale"))
        for_s = max(min(for_s, 30.0), 2.0)
    elif kind == "store":
        detail = chance.choice(("away", "refusing", "unanswered", "late", "slow"))
        strength, for_s = chance.choice((0.2, 0.5, 1.0)), min(for_s, 20.0)
    elif kind == "front":
        detail = chance.choice(("kill", "restart", "pause", "cut"))
    elif kind == "all power":
        detail = chance.choice(("", "one stays away"))
    elif kind == "flip":
        detail = "wire"
    elif kind == "damage":
        detail = chance.choice(("rest", "stopped"))
    elif kind == "reset":
        detail = chance.choice(("all", "controller"))
    return Fault(
        kind,
        round(after_s, 3),
        round(for_s, 3),
        chance.choice(("master", "master", "replica")),
        detail,
        strength,
    )
