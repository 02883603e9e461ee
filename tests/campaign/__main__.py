"""`make chaos`: break whole clusters, round after round, and check what they promised.

    python -m tests.campaign [--minutes M] [--seed N] [--cluster single,pair] [--faults kill,hang] …

A round has its own cluster and its own faults, which follow from its seed; the next round has the next seed
and the next kind of cluster. A violation ends the campaign, and the last line says how to repeat its round.
The directory gets `report.txt`, `rounds.jsonl`, `availability.png`, and the logs of a round that failed, or
had a long fail-over.

With `--failovers` the master of a group is killed again and again, so many times in all, as soon as every
broker is in sync; with `--faults hang` or `restart` it hangs or
is restarted instead.
`--totals` only adds up the rounds that the directory has, of all campaigns so far.
"""

import asyncio
import json
import shutil
import signal
import sys
from collections.abc import Coroutine, Sequence
from pathlib import Path
from typing import Any

from tests.campaign.clusters import COMMON_KINDS, KINDS
from tests.campaign.failovers import KINDS_OF_FAILOVERS
from tests.campaign.plans import KINDS_OF_FAULTS
from tests.campaign.report import as_row, plot, round_text, summary
from tests.campaign.rounds import Round, run_failovers, run_round
from tests.support.loop import FASTEST_LOOP
from tools.rounds import Rounds, options, say

_FAIL_OVERS_A_ROUND = 40


def main(arguments: Sequence[str]) -> int:
    parser = options("chaos", __doc__, minutes=10)
    parser.add_argument(
        "--cluster", default="", help=f"some of {','.join(KINDS)}; {','.join(COMMON_KINDS)} without it"
    )
    parser.add_argument("--seconds", type=float, default=45, help="how long a round breaks things")
    parser.add_argument("--faults", default="", help=f"some of {','.join(KINDS_OF_FAULTS)}; all without it")
    parser.add_argument("--failovers", type=int, default=0, help="kill the master of a group so many times")
    parser.add_argument("--totals", action="store_true", help="add up what earlier campaigns found")
    parser.add_argument("--out", type=Path, default=Path("build/chaos"))
    chosen = parser.parse_args(arguments)
    if chosen.totals:
        rows = [json.loads(line) for line in (chosen.out / "rounds.jsonl").read_text().splitlines()]
        say(summary(rows))
        return 0
    if sys.platform != "linux":
        parser.error("the campaign needs Linux: it finds out which process a connection belongs to")
    default = ["group"] if chosen.failovers else COMMON_KINDS
    kinds = chosen.cluster.split(",") if chosen.cluster else default
    if unknown := set(kinds) - set(KINDS):
        parser.error(f"no such cluster: {', '.join(unknown)}; there are {', '.join(KINDS)}")
    faults = tuple(filter(None, chosen.faults.split(",")))
    if unknown := set(faults) - set(KINDS_OF_FAULTS):
        parser.error(f"no such fault: {', '.join(unknown)}; there are {', '.join(KINDS_OF_FAULTS)}")
    if chosen.failovers and set(faults) - set(KINDS_OF_FAILOVERS):
        parser.error(f"only {' and '.join(KINDS_OF_FAILOVERS)} make a fail-over")
    chosen.out.mkdir(parents=True, exist_ok=True)
    done: list[Round] = []
    (new_loop,) = FASTEST_LOOP.values()

    def repeat(seed: int) -> str:
        limits = f" FAULTS={chosen.faults}" if faults else ""
        work = f"FAILOVERS={_FAIL_OVERS_A_ROUND}" if chosen.failovers else f"SECONDS={chosen.seconds:g}"
        return f"make chaos SEED={seed} MINUTES=0 {work} CLUSTER={_kind_of(seed, kinds)}{limits}"

    def fail_overs_left() -> int:
        return int(chosen.failovers) - sum(len(each.history.faults) for each in done)

    def running(seed: int, kind: str, directory: Path) -> Coroutine[Any, Any, Round]:
        if chosen.failovers:
            times = min(fail_overs_left(), _FAIL_OVERS_A_ROUND)
            return run_failovers(seed, kind, directory, times, faults)
        return run_round(seed, kind, directory, seconds=chosen.seconds, faults=faults)

    def one_round(seed: int) -> int:
        kind = _kind_of(seed, kinds)
        say(f"chaos: {kind}, {KINDS[kind].what}")
        directory = chosen.out.absolute() / f"round-{seed}"
        shutil.rmtree(directory, ignore_errors=True)
        try:
            with asyncio.Runner(loop_factory=new_loop) as runner:
                result = runner.run(running(seed, kind, directory))
        except (AssertionError, RuntimeError, TimeoutError):
            say(f"  the logs are in {directory}")
            raise
        done.append(result)
        say(round_text(result))
        with (chosen.out / "rounds.jsonl").open("a") as lines:
            lines.write(json.dumps(as_row(result)) + "\n")
        if result.is_clean and not (chosen.failovers and result.verdict.gaps):
            shutil.rmtree(directory, ignore_errors=True)
        return not result.is_clean

    # Also in the background of a shell: whoever ends the campaign wants its disks back.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    rounds = Rounds("chaos", chosen, repeat)
    rounds.run(one_round, is_enough=lambda: bool(chosen.failovers) and fail_overs_left() <= 0)
    text = summary([as_row(each) for each in done])
    (chosen.out / "report.txt").write_text(f"{rounds}\n{text}\n")
    say(text)
    if done:
        plot(done, chosen.out / "availability.png")
    return rounds.report(f"details in {chosen.out}")


def _kind_of(seed: int, kinds: Sequence[str]) -> str:
    return kinds[seed % len(kinds)]


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
