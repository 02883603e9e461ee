"""The model of a broker group, with more faults than `make test` has time for.

    python -m tests.model [--sends N] [--crashes N] [--losses N] [--stops N] ... [--in-sync N] [--states N]

Without options it goes through a list of budgets. Exit status 1 says that a promise is broken.
"""

import argparse
import sys
from collections.abc import Sequence
from typing import Final

from tests.model.group import explore_group
from tests.model.world import Budget

BUDGETS: Final = (
    Budget(sends=1, crashes=1, losses=1),
    Budget(sends=1, crashes=1, losses=1, silences=1),
    Budget(sends=1, crashes=1, losses=0, blips=1, silences=1),
    Budget(sends=1, crashes=0, losses=0, blips=1, silences=1, outages=1),
    Budget(sends=1, crashes=1, losses=1, mistakes=1),
    Budget(sends=0, crashes=0, losses=0, stops=3),
    Budget(sends=1, crashes=0, losses=0, stops=2),
    Budget(sends=2, crashes=2, losses=1),
)


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="model", description=__doc__)
    for name in Budget._fields:
        parser.add_argument(f"--{name}", type=int, default=None)
    parser.add_argument("--in-sync", type=int, default=None, help="how many are at the start; all numbers")
    parser.add_argument("--states", type=int, default=100_000, help="the most for one start and one budget")
    chosen = parser.parse_args(arguments)
    given = {each: getattr(chosen, each) for each in Budget._fields if getattr(chosen, each) is not None}
    budgets = (Budget(**dict.fromkeys(Budget._fields, 0) | given),) if given else BUDGETS
    is_broken = False
    for budget in budgets:
        for in_sync in (3, 2, 1) if chosen.in_sync is None else (chosen.in_sync,):
            found = explore_group(budget, in_sync, chosen.states)
            faults = " ".join(f"{name}={count}" for name, count in budget._asdict().items() if count)
            sys.stdout.write(f"{in_sync} in sync, {faults or 'no faults'}: {found}\n")
            sys.stdout.flush()
            is_broken |= bool(found.violation)
    return int(is_broken)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
