"""The model of a group, explored: all states within a budget of faults."""

import logging
from collections.abc import Iterable

from tests.model.explorer import Explored, explore
from tests.model.promises import Promises
from tests.model.steps import Steps
from tests.model.world import IDS, Budget, key

MIN_IN_SYNC = 2


def explore_group(
    budget: Budget, in_sync: int = 3, max_states: int = 1_000_000, learners: int = 0
) -> Explored:
    """`in_sync` brokers are in sync at the start; the last ones may be learners."""
    steps = Steps(MIN_IN_SYNC)
    promises = Promises(steps)

    before = logging.root.manager.disable
    logging.disable()
    try:
        start = steps.start(frozenset(IDS[:in_sync]), budget, frozenset(IDS[len(IDS) - learners :]))
        return explore([start], steps, promises, promises.check_step, key, max_states)
    finally:
        logging.disable(before)


def follow(story: Iterable[str], budget: Budget, in_sync: int = 3, learners: int = 0) -> None:
    """Take the steps of a trace as far as they are possible. Raises Violation."""
    steps = Steps(MIN_IN_SYNC)
    promises = Promises(steps)
    states = [steps.start(frozenset(IDS[:in_sync]), budget, frozenset(IDS[len(IDS) - learners :]))]
    for label in story:
        taken = [(state, step.state) for state in states for step in steps(state) if step.label == label]
        for before, after in taken:
            promises(after)
            promises.check_step(before, after)
        states = [after for _, after in taken]
