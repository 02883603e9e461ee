"""Rounds, each with its own seed, until the time is over: the driver of all that fuzzes, attacks or kills.

All that is chance in a round follows from its seed; the next round has the next one. A round that has begun
is finished. A failure ends the run, and the last line says how to repeat its round.
"""

import argparse
import secrets
import sys
import time
from collections.abc import Callable

ANY_SEED = 1_000_000_000

Round = Callable[[int], int]
"""Takes the seed; 0 if all was well. What it raises because something was wrong is a failure, too."""

_FAILURES = (AssertionError, EOFError, OSError, RuntimeError)


def say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def options(name: str, description: str | None, minutes: float) -> argparse.ArgumentParser:
    """The options of every run: how long, and the first seed."""
    parser = argparse.ArgumentParser(prog=name, description=description)
    parser.add_argument("--minutes", type=float, default=minutes)
    parser.add_argument("--seed", type=int, default=None)
    return parser


class Rounds:
    """`repeat` names the command that repeats the round of a seed."""

    def __init__(self, name: str, chosen: argparse.Namespace, repeat: Callable[[int], str]) -> None:
        self._name = name
        self._minutes: float = chosen.minutes
        self._repeat = repeat
        self.first_seed = self.seed = secrets.randbelow(ANY_SEED) if chosen.seed is None else chosen.seed
        self.ended = 0
        """How the last round ended."""
        self._took_s = 0.0

    def run(
        self,
        one_round: Round,
        is_enough: Callable[[], bool] = lambda: False,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        """Until the time is over, or it `is_enough`, or a round fails."""
        began_s = now_s()
        while True:
            say(f"{self._name}: this round can be repeated with {self._repeat(self.seed)}")
            try:
                self.ended = one_round(self.seed)
            except _FAILURES as problem:
                say(f"{self._name}: FAILED: {problem!r}")
                self.ended = 1
            self._took_s = now_s() - began_s
            if self.ended or self._took_s >= 60 * self._minutes or is_enough():
                return
            self.seed += 1

    def __str__(self) -> str:
        count = self.seed - self.first_seed + 1
        return f"{count} rounds in {self._took_s / 60:.1f} minutes, seeds {self.first_seed} to {self.seed}"

    def report(self, found: str) -> int:
        """Say what was `found`, and how to repeat a failure; the exit status."""
        say(f"{self._name}: {self}: {found}")
        if self.ended:
            say(f"{self._name}: FAILED. To see it again:\n{self._repeat(self.seed)}")
        return self.ended
