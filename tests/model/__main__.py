"""The model of a broker group, whole: with more faults than `make test` has time for.

    python -m tests.model [--sends N] [--crashes N] [--losses N] [--stops N] ... [--in-sync N] [--learners N]

Without options it goes through a list of bounds, each to its end. Exit status 1: a promise is broken.
"""

import argparse
import sys
import time
from collections.abc import Sequence
from typing import Final, NamedTuple

from tests.model.group import explore_group
from tests.model.world import Budget


class Bounds(NamedTuple):
    budget: Budget
    in_sync: int = 3
    learners: int = 0

    def __str__(self) -> str:
        faults = " ".join(f"{name}={count}" for name, count in self.budget._asdict().items() if count)
        learners = f", {self.learners} learner" if self.learners else ""
        return f"{self.in_sync} in sync{learners}, {faults or 'no faults'}"


_NOTHING: Final = Budget(sends=0, crashes=0, losses=0)

BOUNDS: Final = (
    Bounds(_NOTHING._replace(crashes=1, silences=1)),
    Bounds(_NOTHING._replace(sends=1, silences=1)),
    Bounds(_NOTHING._replace(sends=1, crashes=1, losses=1)),
    Bounds(_NOTHING._replace(sends=1, crashes=1, losses=1), in_sync=2),
    Bounds(_NOTHING._replace(crashes=2, losses=1)),
    Bounds(_NOTHING._replace(stops=2)),
    Bounds(_NOTHING._replace(sends=1, crashes=1, losses=1), in_sync=2, learners=1),
    Bounds(_NOTHING._replace(stops=1, oblivions=1), in_sync=2, learners=1),
    Bounds(_NOTHING._replace(sends=1, oblivions=1), in_sync=2),
    Bounds(_NOTHING._replace(crashes=1, losses=1, pauses=1, takeovers=1)),
    Bounds(_NOTHING._replace(crashes=1, losses=1, pauses=1, takeovers=1), in_sync=2),
)


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="model", description=__doc__)
    for name in Budget._fields:
        parser.add_argument(f"--{name}", type=int, default=None)
    parser.add_argument("--in-sync", type=int, default=3, help="how many are at the start")
    parser.add_argument("--learners", type=int, default=0)
    parser.add_argument("--states", type=int, default=1_000_000, help="the most for one of the bounds")
    chosen = parser.parse_args(arguments)
    given = {each: getattr(chosen, each) for each in Budget._fields if getattr(chosen, each) is not None}
    bounds: tuple[Bounds, ...] = BOUNDS
    if given:
        bounds = (Bounds(_NOTHING._replace(**given), chosen.in_sync, chosen.learners),)
    is_broken = False
    states = 0
    for each in bounds:
        found = explore_group(each.budget, each.in_sync, chosen.states, each.learners)
        sys.stdout.write(f"{each}: {found}\n")
        sys.stdout.flush()
        is_broken |= bool(found.violation)
        states += found.states
    sys.stdout.write(f"{states:,} states, {time.process_time():.0f} CPU s\n")
    return int(is_broken)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
