"""Plans that lose their master again and again: fail-overs in bulk.

A plan of `draw_plan` has a few faults of many kinds. One of these has dozens, each of which takes the master
away. They are short, because time that passes without a fault costs as much as a fail-over.
"""

from random import Random
from typing import Any, Literal

from tests.simulation.plans import Fault, FaultKind, Load, LoadKind, Plan, with_store_faults

_KINDS: dict[FaultKind, int] = {
    "reset": 60,
    "kill": 20,
    "power": 10,
    "partition": 4,
    "pause": 3,
    "stall": 2,
    "controller": 1,
}
"""With their weights: if no connection breaks, it takes a lease until the master is replaced. A broker that
is killed has to start again, which costs as much as another fail-over."""
_LOADS: tuple[LoadKind, ...] = (
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
)
_EXTRA: tuple[tuple[LoadKind, float], ...] = (
    ("leaving", 0.05),
    ("dropped", 0.05),
    ("sourced", 0.05),
    ("queried", 0.05),
    ("light", 0.05),
    ("purged", 0.05),
    ("tiered", 0.05),
    ("compacted", 0.05),
)
"""They come with chances of their own, on top of others: so the rest of a seed stays as it was."""
_LOSSES = (80, 160)
_SHORT_S = (0.05, 0.6)
_RESET_S = (0.05, 0.3)
_LEASE_S = 1.2
_UNHEARD_S = (_LEASE_S + 0.2, 2 * _LEASE_S)
_SHORT_LEASE: dict[str, Any] = {
    "controller_timeout_ms": int(_LEASE_S * 1000),
    "heartbeat_interval_ms": int(_LEASE_S * 1000 / 3),
}


def draw_losses(seed: int) -> Plan:
    """Three brokers with a controller, one or two loads, and many faults of the master in a row."""
    chance = Random(f"{seed}/losses")
    flush: Literal["ASYNC_FLUSH", "SYNC_FLUSH"] = chance.choice(("ASYNC_FLUSH", "SYNC_FLUSH"))
    loads = chance.sample(_LOADS, chance.choice((1, 1, 1, 2)))
    extra = [kind for kind, ratio in _EXTRA if Random(f"{seed}/losses {kind}").random() < ratio]
    drawn = (
        *(Load(kind, chance.choice((0.2, 0.4))) for kind in loads),
        *(Load(kind, 0.3) for kind in extra),
    )
    faults = tuple(_draw_loss(chance) for _ in range(chance.randint(*_LOSSES)))
    return Plan(
        seed=seed,
        flush=flush,
        loads=drawn,
        faults=with_store_faults(seed, faults) if "tiered" in extra else faults,
        calm_s=1.0,
        restarts_at_end=chance.random() < 0.1,
        broker_settings=_SHORT_LEASE,
    )


def _draw_loss(chance: Random) -> Fault:
    kind = chance.choices(list(_KINDS), list(_KINDS.values()))[0]
    detail, strength, for_s = "", 1.0, chance.uniform(*_SHORT_S)
    if kind == "power":
        # Back within its lease, it may stay master.
        is_unheard, detail = chance.random() < 0.8, chance.choice(("", "inside"))
        for_s = chance.uniform(*_UNHEARD_S) if is_unheard else for_s
    elif kind == "reset":
        detail, for_s = chance.choice(("controller", "controller", "all")), chance.uniform(*_RESET_S)
    elif kind == "partition":
        detail, for_s = f"all {chance.choice(('both', 'both', 'in', 'out'))}", chance.uniform(*_UNHEARD_S)
    elif kind == "pause":
        for_s = chance.uniform(*_UNHEARD_S)
    elif kind == "stall":
        detail, strength, for_s = chance.choice(("ha", "any")), 1.0, chance.uniform(0.1, 2.5 * _LEASE_S)
    elif kind == "controller":
        detail = chance.choice(("kill", "power"))
    after_s = chance.choice((0.0, chance.uniform(0.0, 0.5)))
    return Fault(kind, round(after_s, 3), round(for_s, 3), "master", detail, strength)
