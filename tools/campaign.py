"""`make kills`: kill brokers, replicas, controllers and clients, round after round, with other chances.

    python -m tools.campaign [--minutes M] [--seed N] [--times T] [PYTEST ARGUMENTS]

`make test` runs each of these tests once, with a few kills and always the same chances. Here a round takes
its chances from its seed, and has `--times` as many kills; the next round has the next seed. A failure ends
the campaign, and the last line says how to repeat its round.
"""

import argparse
import os
import random
import secrets
import subprocess
import sys
import time
from collections.abc import Sequence

from tools.fuzzing import ANY_SEED, explore, say

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
    parser = argparse.ArgumentParser(prog="campaign", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--times", type=int, default=3)
    chosen, more = parser.parse_known_args(arguments)
    started = time.monotonic()
    done: list[int] = []

    def repeat(seed: int) -> str:
        return f"make kills SEED={seed} TIMES={chosen.times} MINUTES=0"

    def one_round(seed: int) -> int:
        say(f"kills: this round can be repeated with {repeat(seed)}")
        pytest = (sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--timeout=3600")
        ended = subprocess.run(
            [*pytest, "-k", _TESTS, *(more or ["tests/chaos"])],
            env=os.environ | {_SEED: str(seed), _TIMES: str(chosen.times)},
            stdout=subprocess.PIPE,
            text=True,
            check=False,
        )
        say(ended.stdout if ended.returncode else ended.stdout.splitlines()[-1])
        done.append(seed)
        return ended.returncode

    first_seed = secrets.randbelow(ANY_SEED) if chosen.seed is None else chosen.seed
    ended, seed = explore(first_seed, chosen.minutes, one_round)
    minutes = (time.monotonic() - started) / 60
    say(f"kills: {len(done)} rounds in {minutes:.1f} minutes, each with {chosen.times} times the kills")
    if ended:
        say(f"kills: FAILED. To see it again:\n{repeat(seed)}")
    else:
        say(f"kills: nothing was lost with the seeds {first_seed} to {seed}")
    return ended


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
