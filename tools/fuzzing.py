"""Property tests with examples that nobody has tried yet, round after round, until the time is over.

    python -m tools.fuzzing [--minutes M] [--seed N] [--examples E] [--workers W] [PYTEST ARGUMENTS]

All that is chance in a round follows from its seed; the next round has the next one. A round that has begun
is finished. A failure ends the run: the report shows the example, the last line says how to repeat the round.
"""

import argparse
import os
import secrets
import subprocess
import sys
import time
from collections.abc import Callable, Sequence

ANY_SEED = 1_000_000_000

Round = Callable[[int], int]
"""Takes the seed, returns how pytest ended."""


def command(seed: int, workers: int, more: Sequence[str]) -> list[str]:
    return [
        *(sys.executable, "-m", "pytest", "-m", "hypothesis and not interop", "-p", "no:cacheprovider"),
        *(
            "--hypothesis-profile=fuzz",
            f"--hypothesis-seed={seed}",
            "-n",
            str(workers),
            "--dist",
            "loadfile",
            *more,
        ),
    ]


def how_to_repeat(seed: int, examples: int, more: Sequence[str]) -> str:
    tests = f" TESTS='{' '.join(more)}'" if more else ""
    return f"make fuzz SEED={seed} EXAMPLES={examples} MINUTES=0{tests}"


def explore(
    first_seed: int,
    minutes: float,
    one_round: Round,
    now_s: Callable[[], float] = time.monotonic,
    is_enough: Callable[[], bool] = lambda: False,
) -> tuple[int, int]:
    """Run rounds until the time is over or it `is_enough`; how the last one ended, and its seed."""
    deadline_s = now_s() + 60 * minutes
    seed = first_seed
    while True:
        ended = one_round(seed)
        if ended or now_s() >= deadline_s or is_enough():
            return ended, seed
        seed += 1


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="fuzzing", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--examples", type=int, default=500)
    parser.add_argument("--workers", type=int, default=2)
    chosen, more = parser.parse_known_args(arguments)

    def one_round(seed: int) -> int:
        say(f"fuzz: this round can be repeated with {how_to_repeat(seed, chosen.examples, more)}")
        environment = os.environ | {"PYROMQ_FUZZ_EXAMPLES": str(chosen.examples)}
        return subprocess.run(command(seed, chosen.workers, more), env=environment, check=False).returncode

    first_seed = secrets.randbelow(ANY_SEED) if chosen.seed is None else chosen.seed
    ended, seed = explore(first_seed, chosen.minutes, one_round)
    if ended:
        say("fuzz: FAILED. Keep the example that is shown above as an @example of its test. To see it again:")
        say(how_to_repeat(seed, chosen.examples, more))
    else:
        say(f"fuzz: all is well with the seeds {first_seed} to {seed}")
    return ended


def say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
