"""Every state of a group that a few faults can lead to keeps its promises; with a mend undone, one does not.

`make model` looks at more states.
"""

import re

import pytest
from tests.model.explorer import Violation
from tests.model.group import explore_group, follow
from tests.model.undone import UNDONE
from tests.model.world import Budget


@pytest.mark.parametrize("mend", UNDONE)
def test_without_this_mend_a_story_breaks_a_promise_and_with_it_the_same_story_does_not(mend: str) -> None:
    undone = UNDONE[mend]
    with undone.mend():
        found = explore_group(undone.budget, undone.in_sync, learners=undone.learners)
        assert undone.finds in found.violation, str(found)
        assert len(found.trace) <= 9
        with pytest.raises(Violation, match=re.escape(undone.finds)):
            follow(found.trace[1:], undone.budget, undone.in_sync, undone.learners)
    follow(found.trace[1:], undone.budget, undone.in_sync, undone.learners)


@pytest.mark.parametrize(
    ("faults", "in_sync", "learners"),
    [
        ({"crashes": 1, "silences": 1}, 3, 0),
        ({"crashes": 1, "losses": 1}, 3, 0),
        ({"crashes": 1, "losses": 1}, 2, 0),
        ({"sends": 1}, 1, 0),
        ({"sends": 1, "silences": 1}, 3, 0),
        ({"sends": 1, "crashes": 1, "losses": 1}, 2, 1),
        ({"oblivions": 1}, 2, 0),
        ({"crashes": 1, "losses": 1, "pauses": 1, "takeovers": 1}, 3, 0),
    ],
    ids=str,
)
def test_within_these_bounds_there_is_no_state_that_breaks_a_promise(
    faults: dict[str, int], in_sync: int, learners: int
) -> None:
    budget = Budget(**{"sends": 0, "crashes": 0, "losses": 0} | faults)
    found = explore_group(budget, in_sync, learners=learners)
    assert found.is_complete, str(found)


def test_a_trace_tells_what_happened() -> None:
    undone = UNDONE["minInSyncReplicas counts those that are waited for"]
    with undone.mend():
        told = str(explore_group(undone.budget, undone.in_sync))
    assert "VIOLATED: A acknowledges a record that only {A} of {A} have" in told
    assert "B connects" in told
