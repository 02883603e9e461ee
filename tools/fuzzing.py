"""Property tests with examples that nobody has tried yet, round after round, until the time is over.

    python -m tools.fuzzing [--minutes M] [--seed N] [--examples E] [--workers W] [PYTEST ARGUMENTS]

The report of a round that fails shows the example.
"""

import os
import subprocess
import sys
from collections.abc import Sequence

from tools.rounds import Rounds, options


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


def main(arguments: Sequence[str]) -> int:
    parser = options("fuzz", __doc__, minutes=10)
    parser.add_argument("--examples", type=int, default=500)
    parser.add_argument("--workers", type=int, default=2)
    chosen, more = parser.parse_known_args(arguments)

    def one_round(seed: int) -> int:
        environment = os.environ | {"PYROMQ_FUZZ_EXAMPLES": str(chosen.examples)}
        return subprocess.run(command(seed, chosen.workers, more), env=environment, check=False).returncode

    rounds = Rounds("fuzz", chosen, lambda seed: how_to_repeat(seed, chosen.examples, more))
    rounds.run(one_round)
    return rounds.report(
        "keep the example that is shown above as an @example of its test" if rounds.ended else "all is well"
    )


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
