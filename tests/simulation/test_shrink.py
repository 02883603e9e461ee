"""Shrinking: what is not needed for a failure goes, the rest stays."""

from tests.simulation.plans import Fault, Load, Plan
from tests.simulation.shrink import shrink

PLAN = Plan(
    seed=1,
    loads=(Load("plain", 0.05), Load("plain", 0.2)),
    faults=(
        Fault("kill", 4.0, 8.0),
        Fault("stall", 1.0, 5.0, detail="ha"),
        Fault("pause", 2.0, 3.0),
        Fault("power", 1.0, 20.0),
    ),
    restarts_at_end=True,
)


def test_only_what_is_needed_stays() -> None:
    asked = []

    def fails(plan: Plan) -> bool:
        asked.append(plan)
        kinds = [fault.kind for fault in plan.faults]
        return "stall" in kinds and "power" in kinds and plan.faults[-1].for_s > 4 and bool(plan.loads)

    found = shrink(PLAN, fails, budget=200)
    assert [fault.kind for fault in found.faults] == ["stall", "power"]
    assert 4 < found.faults[1].for_s < 8
    assert found.faults[0].for_s < 0.2
    assert len(found.loads) == 1
    assert not found.restarts_at_end
    assert fails(found)
    assert len(asked) == len({plan.to_json() for plan in asked}) + 1, "no plan is run twice"


def test_a_failure_that_needs_no_fault_loses_them_all_at_once() -> None:
    runs = 0

    def fails(_: Plan) -> bool:
        nonlocal runs
        runs += 1
        return True

    assert shrink(PLAN, fails, budget=1).faults == ()
    assert runs == 1


def test_it_ends_when_the_budget_is_used_up() -> None:
    runs = 0

    def fails(_: Plan) -> bool:
        nonlocal runs
        runs += 1
        return False

    assert shrink(PLAN, fails, budget=7) == PLAN
    assert runs == 7
