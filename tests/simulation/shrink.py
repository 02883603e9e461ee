"""From a plan that fails to a small one that fails alike: leave out, shorten, and keep what still fails.

Every source of chance has its own numbers, so a plan without one of its faults is otherwise the same run for
as long as possible. `fails` runs a plan; it is asked at most `budget` times.
"""

from collections.abc import Callable, Iterator
from typing import Any

from msgspec.structs import replace
from tests.simulation.plans import Fault, Plan

_SHORTEST_S = 0.1


def shrink(plan: Plan, fails: Callable[[Plan], bool], budget: int = 60) -> Plan:
    """The smallest plan found."""
    tried = {plan.to_json()}
    progress = True
    while progress:
        progress = False
        for smaller in _smaller(plan):
            if smaller.to_json() in tried:
                continue
            if len(tried) > budget:
                return plan
            tried.add(smaller.to_json())
            if fails(smaller):
                plan, progress = smaller, True
                break
    return plan


def _smaller(plan: Plan) -> Iterator[Plan]:
    """What to try next, the largest steps first."""
    faults, loads = plan.faults, plan.loads
    if len(faults) > 1:
        yield replace(plan, faults=())
        for number in reversed(range(len(faults))):
            yield replace(plan, faults=faults[:number] + faults[number + 1 :])
    if len(loads) > 1:
        for number in reversed(range(len(loads))):
            yield replace(plan, loads=loads[:number] + loads[number + 1 :])
    for simpler in (
        replace(plan, restarts_at_end=False),
        replace(plan, controllers="journal"),
        replace(plan, broker_settings={}),
        replace(plan, store_settings={}),
    ):
        if simpler != plan:
            yield simpler
    for number, fault in enumerate(faults):
        for shorter in _shorter(fault):
            yield replace(plan, faults=(*faults[:number], shorter, *faults[number + 1 :]))
    for number, load in enumerate(loads):
        if load.pause_s < 1:
            slower = replace(load, pause_s=round(load.pause_s * 2, 3))
            yield replace(plan, loads=(*loads[:number], slower, *loads[number + 1 :]))
    if plan.calm_s > 1:
        yield replace(plan, calm_s=round(plan.calm_s / 2, 3))


def _shorter(fault: Fault) -> Iterator[Fault]:
    for name in ("for_s", "after_s"):
        seconds = getattr(fault, name)
        if seconds > _SHORTEST_S:
            halved: dict[str, Any] = {name: round(seconds / 2, 3)}
            yield replace(fault, **halved)
