"""Which faults a round has, and when: the same seed and the same cluster give the same plan. Pure."""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from tests.campaign.network import CLIENTS

MASTER = "master"
"""Whoever is the master when the fault begins, in a cluster where that changes."""
LEADER = "leader"
"""Whichever controller leads when the fault begins, if there are several."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """The parties of a cluster, by name."""

    brokers: tuple[str, ...]
    name_servers: tuple[str, ...]
    controllers: tuple[str, ...] = ()
    etcds: tuple[str, ...] = ()
    small_disks: bool = False
    """Whether disks can be filled."""
    own_disks: bool = True
    """Whether every broker has the campaign's own files, which can lose power."""

    def a_broker(self, chance: random.Random) -> str:
        return MASTER if self.controllers and chance.random() < 0.6 else chance.choice(self.brokers)


_SEEDED = frozenset({"flip_on_the_way", "lose_power", "flip_at_rest"})


class Planned(NamedTuple):
    """A fault at `at_s` of a round that lasts `for_s`; `amount` is seconds, or a seed of chance."""

    at_s: float
    for_s: float
    kind: str
    targets: tuple[str, ...]
    amount: float = 0.0

    def __str__(self) -> str:
        amount = f" by {self.amount:g} s" if self.amount and self.kind not in _SEEDED else ""
        lasting = f" for {self.for_s:.1f} s" if self.for_s else ""
        return f"{self.kind.replace('_', ' ')} {' to '.join(self.targets)}{amount}{lasting}"


_Maker = Callable[[Shape, random.Random], tuple[tuple[str, ...], float, float]]
"""Targets, duration, amount."""


def _a_server(shape: Shape, chance: random.Random) -> str:
    """Mostly a broker."""
    leader = (LEADER, LEADER) if len(shape.controllers) > 1 else ()
    others = (*shape.name_servers, *shape.controllers, *leader, *shape.etcds)
    return shape.a_broker(chance) if chance.random() < 0.75 else chance.choice(others)


def _a_pair(shape: Shape, chance: random.Random) -> tuple[str, str]:
    """A broker and another party, or the leading controller and its etcd, in either direction."""
    if shape.etcds and chance.random() < 0.15:
        return (LEADER, shape.etcds[0]) if chance.random() < 0.5 else (shape.etcds[0], LEADER)
    broker = shape.a_broker(chance)
    others = [*shape.brokers, *shape.name_servers, *shape.controllers, CLIENTS]
    if len(shape.brokers) > 1:
        others += shape.brokers  # replication is what matters most
    other = chance.choice([each for each in others if each != broker])
    return (broker, other) if chance.random() < 0.5 else (other, broker)


def _some_seconds(chance: random.Random) -> float:
    return round(chance.choice((chance.uniform(0.2, 1.5), chance.uniform(1.5, 6.0))), 2)


def _the_master(shape: Shape) -> str:
    return MASTER if shape.controllers else shape.brokers[0]


def _a_machine(shape: Shape, chance: random.Random) -> str:
    """A broker whose machine may lose what was not synced: in a pair, nothing replaces the master."""
    return shape.a_broker(chance) if shape.controllers else shape.brokers[-1]


_KINDS: dict[str, tuple[int, _Maker]] = {
    "kill": (8, lambda shape, c: ((_a_server(shape, c),), _some_seconds(c), 0.0)),
    "hang": (4, lambda shape, c: ((_a_server(shape, c),), _some_seconds(c), 0.0)),
    "restart": (2, lambda shape, c: ((_a_server(shape, c),), 0.0, 0.0)),
    "rolling_restart": (1, lambda shape, c: (shape.brokers, 0.0, 0.0)),
    "partition": (4, lambda shape, c: (_a_pair(shape, c), _some_seconds(c), 0.0)),
    "one_way_cut": (3, lambda shape, c: (_a_pair(shape, c), _some_seconds(c), 0.0)),
    "reset": (2, lambda shape, c: (_a_pair(shape, c), 0.0, 0.0)),
    "slow_link": (2, lambda shape, c: (_a_pair(shape, c), _some_seconds(c), c.choice((0.02, 0.1, 0.5)))),
    "slow_disk": (2, lambda shape, c: ((shape.a_broker(c),), _some_seconds(c), c.choice((0.05, 0.5)))),
    "full_disk": (2, lambda shape, c: ((shape.a_broker(c),), _some_seconds(c), 0.0)),
    "clock_jump": (
        2,
        lambda shape, c: ((_a_server(shape, c),), _some_seconds(c), c.choice((-3600, -60, -1, 60, 3600))),
    ),
    "hold_stream": (4, lambda shape, c: ((_the_master(shape),), _some_seconds(c), 0.0)),
    "kill_behind_held_stream": (4, lambda shape, c: ((_the_master(shape),), _some_seconds(c), 0.0)),
    "flip_on_the_way": (2, lambda shape, c: ((_the_master(shape),), 0.0, c.randrange(1 << 20))),
    "lose_power": (4, lambda shape, c: ((_a_machine(shape, c),), _some_seconds(c), c.randrange(1 << 20))),
    "flip_at_rest": (2, lambda shape, c: ((shape.a_broker(c),), _some_seconds(c), c.randrange(1 << 20))),
    "fail_sync": (2, lambda shape, c: ((_a_machine(shape, c),), _some_seconds(c), 0.0)),
    "remove_tables": (1, lambda shape, c: ((shape.a_broker(c),), _some_seconds(c), 0.0)),
}

KINDS_OF_FAULTS = tuple(_KINDS)
ALONE = frozenset({"lose_power", "flip_at_rest", "fail_sync", "remove_tables"})
"""These take data from one broker. The others must be whole, or no mode promises anything."""


def kinds_for(shape: Shape) -> list[str]:
    impossible = {
        "full_disk": not shape.small_disks,
        "hold_stream": len(shape.brokers) == 1,
        "kill_behind_held_stream": len(shape.brokers) == 1,
        "flip_on_the_way": len(shape.brokers) == 1,
        "lose_power": not shape.own_disks,
        "fail_sync": not shape.own_disks,
        "flip_at_rest": not (shape.controllers and shape.own_disks),
        "remove_tables": not (shape.controllers and shape.own_disks),
    }
    return [kind for kind in _KINDS if not impossible.get(kind)]


def plan(seed: int, shape: Shape, seconds: float, kinds: Sequence[str] = ()) -> list[Planned]:
    """Faults from second 1 on; one begins when the last has ended and some calm has passed, and sometimes
    two come together. `kinds` limits the choice."""
    chance = random.Random(f"{seed} {shape}")
    allowed = [kind for kind in kinds_for(shape) if not kinds or kind in kinds]
    weights = [_KINDS[kind][0] for kind in allowed]
    planned: list[Planned] = []
    at_s = 1.0
    while at_s < seconds:
        taken: set[str] = set()
        ended_s = at_s
        for _ in range(2 if chance.random() < 0.2 else 1):
            (kind,) = chance.choices(allowed, weights)
            if taken and not ALONE.isdisjoint((kind, planned[-1].kind)):
                continue
            targets, for_s, amount = _KINDS[kind][1](shape, chance)
            if taken.isdisjoint(targets):
                taken.update(targets)
                planned.append(Planned(round(at_s, 2), for_s, kind, targets, amount))
                ended_s = max(ended_s, at_s + for_s)
        at_s = ended_s + chance.uniform(0.5, 4.0)
    return planned
