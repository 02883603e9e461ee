"""`make simulate`: new seeds until the time is up, or one seed or plan again. Failures are shrunk.

A run is its plan: `SEED=7` and `PLAN=file.json` repeat one. `FAILOVERS=1000` has plans that lose their master
again and again, from `SEED` on. The order of sets of strings belongs to a run, so this program starts itself
again with a fixed one.
"""

import argparse
import math
import os
import signal
import sys
import time
from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from datetime import datetime
from multiprocessing import get_context
from pathlib import Path

from tests.simulation.losses import draw_losses
from tests.simulation.plans import Plan, draw_plan
from tests.simulation.recording import Outcome, Totals
from tests.simulation.runs import run_forked
from tests.simulation.shrink import shrink

KEPT = Path("build/simulation")
_MAX_SHRUNK = 5
"""Failures of the same invariants as an earlier one are only counted."""
_REPORT_S = 60.0


_ENDS = (signal.SIGINT, signal.SIGTERM)


def _is_ended_by_parent() -> None:
    """A process that runs plans does not hear the keys that end all of them."""
    for number in _ENDS:
        signal.signal(number, signal.SIG_IGN)


def say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def new_seed() -> int:
    """From the date: no two rounds have the same seeds."""
    return int(datetime.now().strftime("%y%m%d%H%M%S")) * 10_000


def fails_alike(plan: Plan, invariants: list[str]) -> bool:
    return bool(set(invariants) & set(run_forked(plan).broken))


def shrunk(plan: Plan, invariants: list[str]) -> Plan:
    """Of several invariants the first one counts."""
    return shrink(plan, lambda smaller: fails_alike(smaller, invariants[:1]))


def in_words(totals: Totals, failed: int) -> str:
    hours, cpu_s = totals.virtual_s / 3600, max(totals.cpu_s, 0.001)
    return (
        f"{totals.runs} runs, {failed} failed; {totals.failovers} fail-overs, {totals.acknowledged} messages"
        f" acknowledged, {hours:.2f} simulated hours in {cpu_s:.0f} CPU s"
        f" ({totals.virtual_s / cpu_s:.0f} simulated s and {totals.failovers / cpu_s:.2f} fail-overs a CPU s)"
    )


def show(outcome: Outcome) -> None:
    for event in outcome.events:
        say(f"{event.at_s:10.3f}  {event.kind:10} {event.text}")
    say(f"trace {outcome.trace:08x}")
    for violation in outcome.violations:
        say(f"VIOLATED at {violation.at_s:.3f} s: {violation.invariant}: {violation.text}")


def keep(plan: Plan, invariants: list[str]) -> Path:
    KEPT.mkdir(parents=True, exist_ok=True)
    path = KEPT / f"{invariants[0].replace(' ', '-')}-{plan.seed}.json"
    path.write_text(plan.to_json() + "\n")
    return path


def look_at_one(plan: Plan) -> int:
    outcome = run_forked(plan)
    show(outcome)
    if outcome.violations:
        small = shrunk(plan, outcome.broken)
        say(f"shrunk to {keep(small, outcome.broken)}:\n{small.to_json()}")
    say(in_words(outcome.totals, int(bool(outcome.violations))))
    return int(bool(outcome.violations))


class Search:
    """One seed after the other, several at a time; a failure is shrunk while the others go on."""

    def __init__(
        self, draw: Callable[[int], Plan], first_seed: int, minutes: float, failovers: float, jobs: int
    ) -> None:
        self._draw = draw
        self._first_seed = self._next_seed = first_seed
        self._ends_s = time.monotonic() + minutes * 60
        self._failovers = failovers
        """So many are enough."""
        self._jobs = jobs
        self._totals = Totals(runs=0)
        self._failed = 0
        self._kinds: set[tuple[str, ...]] = set()
        self._reported_s = time.monotonic()

    @property
    def _goes_on(self) -> bool:
        return time.monotonic() < self._ends_s and self._totals.failovers < self._failovers

    def run(self) -> int:
        for number in _ENDS:
            signal.signal(number, self._end)
        # Forked at once, before there is a thread here; each of them forks again for every run.
        with ProcessPoolExecutor(self._jobs, get_context("fork"), _is_ended_by_parent) as workers:
            running: dict[Future[Outcome], Plan] = {}
            shrinking: list[tuple[list[str], Future[Plan]]] = []
            while running or self._goes_on:
                while len(running) < self._jobs and self._goes_on:
                    plan = self._draw(self._next_seed)
                    self._next_seed += 1
                    running[workers.submit(run_forked, plan)] = plan
                done, _ = wait(running, return_when=FIRST_COMPLETED)
                for each in done:
                    plan, outcome = running.pop(each), each.result()
                    if self._judge(plan, outcome):
                        shrinking.append((outcome.broken, workers.submit(shrunk, plan, outcome.broken)))
                if time.monotonic() > self._reported_s + _REPORT_S:
                    self._reported_s = time.monotonic()
                    self._tell_totals()
            self._tell_totals()
            for invariants, found in shrinking:
                self._tell_shrunk(found.result(), invariants)
        return int(self._failed > 0)

    def _end(self, *_: object) -> None:
        """Tell the totals when the runs that have begun are over."""
        self._ends_s = 0.0

    def _tell_totals(self) -> None:
        seeds = f"seeds {self._first_seed} to {self._next_seed - 1}"
        say(f"{seeds}: {in_words(self._totals, self._failed)}")

    def _judge(self, plan: Plan, outcome: Outcome) -> bool:
        """Whether it is worth shrinking."""
        self._totals.add(outcome.totals)
        if not outcome.violations:
            return False
        self._failed += 1
        first = outcome.violations[0]
        say(f"seed {plan.seed}: {first.invariant}: {first.text}")
        is_new = tuple(outcome.broken) not in self._kinds and len(self._kinds) < _MAX_SHRUNK
        self._kinds.add(tuple(outcome.broken))
        return is_new

    def _tell_shrunk(self, plan: Plan, invariants: list[str]) -> None:
        path = keep(plan, invariants)
        say(f"seed {plan.seed} shrunk to {path} (keep it in tests/simulation/found):\n{plan.to_json()}")


def main() -> int:
    parser = argparse.ArgumentParser(prog="make simulate")
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--seed", type=int)
    parser.add_argument("--plan", type=Path)
    parser.add_argument("--only", help="kinds of faults, separated by commas; - means none")
    parser.add_argument("--failovers", type=int, help="lose masters until there were so many fail-overs")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    options = parser.parse_args()
    only = None if options.only is None else tuple(each for each in options.only.split(",") if each != "-")
    if options.plan is not None:
        return look_at_one(Plan.from_json(options.plan.read_bytes()))
    if options.failovers is not None:
        first_seed = new_seed() if options.seed is None else options.seed
        return Search(draw_losses, first_seed, options.minutes, options.failovers, options.jobs).run()
    if options.seed is not None:
        return look_at_one(draw_plan(options.seed, only))
    return Search(
        lambda seed: draw_plan(seed, only), new_seed(), options.minutes, math.inf, options.jobs
    ).run()


if __name__ == "__main__":
    if os.environ.get("PYTHONHASHSEED") != "0":
        os.environ["PYTHONHASHSEED"] = "0"
        os.execv(sys.executable, [sys.executable, "-m", "tests.simulation", *sys.argv[1:]])
    sys.exit(main())
