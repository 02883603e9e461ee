"""`make kills`: kill brokers, replicas, controllers and clients, round after round, with other chances.

    python -m tools.campaign [--minutes M] [--seed N] [--times T] [PYTEST ARGUMENTS]

`make test` runs each of these tests once, with a few kills and always the same chances. Here a round takes
its chances from its seed, and has `--times` as many kills.
"""

import os
import random
import subprocess
import sys
from collections.abc import Sequence

from tools.rounds import Rounds, options, say

_SEED = "PYROMQ_CHAOS_SEED"
_TIMES = "PYROMQ_CHAOS_TIMES"
_TESTS = "kill"


def chance(name: object) -> random.Random:
    """The chances of one test: the same ones every time, or those of the campaign's round."""
    seed = os.environ.get(_SEED)
    return random.Random(str(name) if seed is None else f"{seed} {name}")


def rounds(count: int) -> int:
    """How often a test kills: `count` times, or as many times more as the campaign wants."""
    return count * int(os.environ.get(_TIMES, "1"))


def main(arguments: Sequence[str]) -> int:
    parser = options("kills", __doc__, minutes=10)
    parser.add_argument("--times", type=int, default=3)
    chosen, more = parser.parse_known_args(arguments)

    def one_round(seed: int) -> int:
        pytest = (sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--timeout=3600")
        ended = subprocess.run(
            [*pytest, "-k", _TESTS, *(more or ["tests/chaos"])],
            env=os.environ | {_SEED: str(seed), _TIMES: str(chosen.times)},
            stdout=subprocess.PIPE,
            text=True,
            check=False,
        )
        say(ended.stdout if ended.returncode else ended.stdout.splitlines()[-1])
        return ended.returncode

    rounds = Rounds("kills", chosen, lambda seed: f"make kills SEED={seed} TIMES={chosen.times} MINUTES=0")
    rounds.run(one_round)
    lost = "something" if rounds.ended else "nothing"
    return rounds.report(f"{lost} was lost, with {chosen.times} times the kills")


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
