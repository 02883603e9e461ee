"""Every state of a group that a few faults can lead to keeps its promises; with a mend undone, one does not.

`make model` looks at more states.
"""

import pytest
from tests.model.group import explore_group
from tests.model.undone import UNDONE
from tests.model.world import Budget


@pytest.mark.parametrize("mend", UNDONE)
def test_without_this_mend_the_model_finds_what_it_was_made_for(mend: str) -> None:
    undone = UNDONE[mend]
    with undone.mend():
        found = explore_group(undone.budget, undone.in_sync, learners=undone.learners)
    assert undone.finds in found.violation, str(found)
    assert len(found.trace) <= 8


@pytest.mark.parametrize("mend", UNDONE)
def test_with_it_the_model_finds_nothing_in_more_states(mend: str) -> None:
    undone = UNDONE[mend]
    found = explore_group(undone.budget, undone.in_sync, max_states=2000, learners=undone.learners)
    assert not found.violation, str(found)


@pytest.mark.parametrize(
    ("budget", "in_sync"),
    [
        (Budget(sends=0, crashes=1, losses=1), 2),
        (Budget(sends=1, crashes=1, losses=1), 3),
        (Budget(sends=0, crashes=0, losses=0, stops=2), 3),
        (Budget(sends=1, crashes=0, losses=0), 1),
        (Budget(sends=1, crashes=0, losses=0), 2),
        (Budget(sends=1, crashes=0, losses=0), 3),
    ],
)
def test_within_these_bounds_there_is_no_state_that_breaks_a_promise(budget: Budget, in_sync: int) -> None:
    found = explore_group(budget, in_sync)
    assert found.is_complete, str(found)


def test_a_trace_tells_what_happened() -> None:
    undone = UNDONE["minInSyncReplicas counts those that are waited for"]
    with undone.mend():
        told = str(explore_group(undone.budget, undone.in_sync))
    assert "VIOLATED: A acknowledges a record that only {A} of {A} have" in told
    assert "B connects" in told
