"""Fixed seeds, and every plan that once showed a defect: none may violate an invariant.

`make simulate` looks for new ones. A plan in `found/` is named after its defect.
"""

from pathlib import Path

import pytest
from tests.simulation.plans import Plan, draw_plan
from tests.simulation.runs import run_forked

SOUND = ("kill", "partition", "pause", "slow", "controller", "restart")
"""The kinds of faults that every seed survives today."""
SEEDS = (1, 2, 3, 5, 6, 10, 13, 15, 17, 18, 20, 21, 22, 23, 25, 26, 28, 33, 36, 42)
FOUND = sorted((Path(__file__).parent / "found").glob("*.json"))


@pytest.mark.parametrize("seed", SEEDS)
def test_a_seed_breaks_no_promise(seed: int) -> None:
    plan = draw_plan(seed, only=SOUND)
    assert run_forked(plan).violations == [], f"make simulate SEED={seed} ONLY={','.join(SOUND)}"


@pytest.mark.parametrize("path", FOUND, ids=lambda path: path.stem)
def test_a_plan_that_found_a_defect_does_not_find_it_again(path: Path) -> None:
    assert run_forked(Plan.from_json(path.read_bytes())).violations == []
