"""The interop tests in several processes side by side: most of their time is waiting for timers of the peers.

    python -m tools.interop_runs [PYTEST ARGUMENTS]

Tests that share servers stay together. Each process has a group of its own, so that whatever it started ends
with it: at its end, at a signal, and when the time for everything is over.

Peers have timers of their own, and machines have bad moments: a few tests that failed are tried once more,
alone, when everything else is done, and so is a share whose servers did not start; a line of its own says so.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import IO, Final

TESTS: Final = "tests/interop"
PYTEST: Final = (sys.executable, "-m", "pytest", "-m", "interop", "--color=no")
NOTHING_COLLECTED: Final = 5
_SOME_FAILED: Final = 1
_RELEASE: Final = re.compile(r"(\d+\.\d+\.\d+)(?:-(JSON|ROCKETMQ))?")
# What shares take, in seconds, roughly: the longest start first, so that no worker is idle at the end.
_LENGTHS_S: Final = {
    "test_official_clients_interop": 330,
    "test_timers_interop": 235,
    "test_store_interop 5.3.3": 220,
    "test_spark_interop 5.3.3": 200,
    "test_store_interop 4.9.8": 150,
    "test_spark_interop 4.9.8": 120,
    "test_mixed_cluster_interop 5.3.3": 110,
    "test_mixed_cluster_interop 4.9.8": 110,
    "test_controller_interop": 80,
    "test_replication_interop 5.5.0": 80,
    "test_client_consumer_interop 5.3.3": 80,
    "test_client_consumer_interop 4.9.8": 80,
    "test_broker_interop 5.3.3 JSON": 75,
    "test_broker_interop 5.3.3 ROCKETMQ": 75,
    "test_broker_interop 4.9.8 JSON": 75,
    "test_broker_interop 4.9.8 ROCKETMQ": 75,
    "test_acting_master_interop": 75,
    "test_migration_interop": 70,
    "test_nameserver_interop 5.3.3": 70,
    "test_replication_interop 5.3.3": 65,
    "test_replication_interop 4.9.8": 60,
    "test_pop_store_interop 5.3.3": 60,
    "test_pop_store_interop 5.5.0": 60,
    "test_mqadmin_interop 5.3.3 JSON": 60,
    "test_controlled_brokers_interop 5.3.3": 60,
    "test_controlled_brokers_interop 5.5.0": 60,
    "test_later_interop 5.5.0": 45,
    "test_nameserver_interop 4.9.8": 40,
    "test_store_interop 5.5.0": 40,
    "test_proxy_at_apache_interop": 35,
    "test_apache_proxy_interop": 30,
    "test_acting_master_interop 5.3.3": 30,
    "test_acting_master_interop 5.5.0": 30,
    "test_later_interop 5.3.3": 25,
    "test_pop_interop 5.3.3": 25,
    "test_pop_interop 5.5.0": 25,
}
_SHORT_S: Final = 60
"""Shorter ones are joined up to this length."""
_MAX_FAILURES: Final = 5
_PAUSE: Final = threading.Event()
_COUNT: Final = re.compile(r"(\d+) (passed|failed|skipped|errors?)\b")


@dataclass(frozen=True)
class Share:
    """Tests that run one after the other in one process."""

    name: str
    tests: tuple[str, ...]
    length_s: float = 0.0
    """How long it takes, roughly."""

    def __add__(self, other: Share) -> Share:
        name, tests = f"{self.name} + {other.name}", self.tests + other.tests
        return Share(name, tests, self.length_s + other.length_s)


@dataclass
class Run:
    """A share under way."""

    share: Share
    process: subprocess.Popen[bytes]
    output: IO[bytes]
    started_s: float
    cpu_s: float = 0.0
    """What it and everything it started and waited for have computed, when it is over."""

    def is_over(self) -> bool:
        pid, status, used = os.wait4(self.process.pid, os.WNOHANG)
        if pid:
            self.process.returncode = os.waitstatus_to_exitcode(status)
            self.cpu_s = used.ru_utime + used.ru_stime
        return bool(pid)

    def text(self) -> str:
        self.output.seek(0)
        return self.output.read().decode(errors="replace")

    def end(self) -> None:
        """Whatever it started and left behind ends as well."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self.output.close()


def collect(arguments: Sequence[str]) -> list[str]:
    """The ids of all tests that the arguments stand for."""
    done = subprocess.run(
        [*PYTEST, "--collect-only", "-q", "-p", "no:cacheprovider", *arguments],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode not in (0, NOTHING_COLLECTED):
        raise SystemExit(done.stdout + done.stderr)
    return [line for line in done.stdout.splitlines() if "::" in line]


def shares_of(tests: Sequence[str]) -> list[Share]:
    """One for each file, release and header form, the short ones joined; those that take longest first."""
    together: dict[str, list[str]] = {}
    client_of: dict[str, str] = {}
    for test in tests:
        file, _, name = test.partition("::")
        release = _RELEASE.search(name)
        words = [word for word in (release.groups() if release else ()) if word]
        share = " ".join([Path(file).stem, *words])
        together.setdefault(share, []).append(test)
        client_of[share] = " ".join(word for word in words if word != "JSON")
    found = [
        Share(name, tuple(tests), _LENGTHS_S.get(name, min(_SHORT_S, 5 + len(tests))))
        for name, tests in together.items()
    ]
    found = _joined(sorted(found, key=lambda share: share.length_s, reverse=True), client_of)
    return sorted(found, key=lambda share: share.length_s, reverse=True)


def _joined(shares: Sequence[Share], client_of: Mapping[str, str]) -> list[Share]:
    """Short ones in one process, if they use the same client of Apache's: it starts only once."""
    found: list[Share] = []
    open_ones: dict[str, Share] = {}
    for share in shares:
        if share.length_s >= _SHORT_S:
            found.append(share)
            continue
        client = client_of[share.name]
        begun = open_ones.pop(client, None)
        if begun is not None and begun.length_s + share.length_s > _SHORT_S:
            found.append(begun)
            begun = None
        open_ones[client] = share if begun is None else begun + share
    return [*found, *open_ones.values()]


def start(share: Share, scratch: Path) -> Run:
    listing = scratch / (share.name.replace(" ", "-") + ".txt")
    listing.write_text("\n".join(share.tests) + "\n")
    output = listing.with_suffix(".log").open("w+b")
    process = subprocess.Popen(
        [
            *PYTEST,
            "-p",
            "no:cacheprovider",
            "--durations=5",
            "--tb=short",
            f"--maxfail={_MAX_FAILURES}",
            f"@{listing}",
        ],
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    return Run(share, process, output, time.monotonic())


def run_all(
    shares: Sequence[Share], at_once: int, minutes: float, now_s: Callable[[], float] = time.monotonic
) -> bool:
    """Run every share; whether there were any and all was well."""
    deadline_s = now_s() + 60 * minutes
    waiting = list(shares)
    running: list[Run] = []
    counts: Counter[str] = Counter()
    again: list[Share] = []
    is_well, is_second_attempt = bool(shares), False
    with tempfile.TemporaryDirectory(prefix="pyromq-interop-") as scratch:
        try:
            while waiting or running:
                while waiting and len(running) < at_once:
                    running.append(start(waiting.pop(0), Path(scratch)))
                done = _wait_for_one(running, lambda: now_s() >= deadline_s)
                if done is None:
                    is_well = False
                    _tell_unfinished(running, waiting, minutes)
                    break
                running.remove(done)
                failed = failures(done)
                if failed and not is_second_attempt:
                    again.append(Share(f"{done.share.name}, again", failed))
                else:
                    is_well &= done.process.returncode == 0
                counts += _told(done)
                done.end()
                if again and not waiting and not running:
                    waiting, again, at_once, is_second_attempt = again, [], 1, True
        finally:
            for run in running:
                run.end()
    _say(", ".join(f"{count} {what}" for what, count in counts.items()) or "no tests")
    return is_well


def failures(run: Run) -> tuple[str, ...]:
    """What is worth a second attempt: the tests that failed, if they were few and everything else ran to its
    end; all tests, if what they share could not be set up, or had something to say in the end.
    """
    if run.process.returncode != _SOME_FAILED:
        return ()
    told = [f"{line} " for line in run.text().splitlines() if line.startswith(("FAILED ", "ERROR "))]

    def those(verdict: str) -> tuple[str, ...]:
        tests = run.share.tests
        return tuple(test for test in tests if any(line.startswith(f"{verdict} {test} ") for line in told))

    if those("ERROR"):
        return run.share.tests
    failed = those("FAILED")
    return failed if len(failed) < _MAX_FAILURES else ()


def _wait_for_one(running: Sequence[Run], is_over: Callable[[], bool]) -> Run | None:
    """The first that ends; None when the time is over."""
    while not is_over():
        for run in running:
            if run.is_over():
                return run
        _PAUSE.wait(0.2)
    return None


def _told(run: Run) -> Counter[str]:
    """Print how it went: one line, or all of its output if it did not go well."""
    text = run.text()
    last = text.strip().rpartition("\n")[2].strip("= ")
    if run.process.returncode != 0:
        _say(text)
    verdict = "ok    " if run.process.returncode == 0 else "FAILED"
    took_s = time.monotonic() - run.started_s
    _say(f"{verdict} {run.share.name}: {last} (with start-up {took_s:.0f} s, {run.cpu_s:.0f} s of CPU)")
    return Counter({what.rstrip("s") if what.startswith("error") else what: int(count)
                    for count, what in _COUNT.findall(last)})  # fmt: skip


def _tell_unfinished(running: Sequence[Run], waiting: Sequence[Share], minutes: float) -> None:
    for run in running:
        _say(run.text())
        _say(f"FAILED {run.share.name}: not done when {minutes:g} minutes were over")
    for share in waiting:
        _say(f"FAILED {share.name}: {minutes:g} minutes were over before it could start")


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def _leave(received: int, _: FrameType | None) -> None:
    raise SystemExit(128 + received)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--at-once", type=int, default=5 * (os.cpu_count() or 1) // 2, help="processes")
    parser.add_argument("--minutes", type=float, default=90.0, help="time for everything")
    options, arguments = parser.parse_known_args()
    for ending in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(ending, _leave)
    began_s = time.monotonic()
    is_well = run_all(shares_of(collect(arguments or [TESTS])), options.at_once, options.minutes)
    _say(f"interop: {'all is well' if is_well else 'FAILED'} after {time.monotonic() - began_s:.0f} s")
    sys.exit(not is_well)


if __name__ == "__main__":
    main()
