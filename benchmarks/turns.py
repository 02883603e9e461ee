"""Servers that take turns: all are up, one runs, the others are stopped (SIGSTOP) and cost nothing.

Every server is measured in every round, so each figure of ours can be divided by Apache's of the same round:
a ratio is the median of these. With few rounds its spread is the lowest and the highest; with hundreds of
short ones it is the interval in which the median lies with 95 %.
"""

from __future__ import annotations

import contextlib
import math
import os
import signal
import statistics
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar


@dataclass(frozen=True)
class Running:
    """A server that is stopped unless it is its turn."""

    name: str
    port: int
    pid: int

    def rss_mb(self) -> float:
        status = Path(f"/proc/{self.pid}/status").read_text()
        return int(status.split("VmRSS:")[1].split()[0]) / 1024

    def file_pages_mb(self) -> float:
        """Pages of mapped files in memory: the kernel's cache, which it takes back when others need it."""
        status = Path(f"/proc/{self.pid}/status").read_text()
        return int(status.split("RssFile:")[1].split()[0]) / 1024

    def cpu_s(self) -> float:
        # The clock of a process's CPU time, as clock_getcpuclockid(3) makes it.
        return time.clock_gettime(~self.pid << 3 | 2)

    def pin(self, cpu: int) -> None:
        """Let all its threads run on this processor only: one may be slower than the other, for minutes."""
        for task in Path(f"/proc/{self.pid}/task").iterdir():
            with contextlib.suppress(ProcessLookupError):  # it has just ended
                os.sched_setaffinity(int(task.name), {cpu})

    @contextlib.contextmanager
    def turn(self) -> Iterator[None]:
        os.kill(self.pid, signal.SIGCONT)
        try:
            yield
        finally:
            os.kill(self.pid, signal.SIGSTOP)


T = TypeVar("T")


def hold(server: Running, stack: contextlib.ExitStack) -> None:
    """Stop a server until its turn; it goes on before it is ended, as whoever is stopped hears nothing."""
    stack.callback(os.kill, server.pid, signal.SIGCONT)
    os.kill(server.pid, signal.SIGSTOP)


def orders(ones: Sequence[T], rounds: int) -> Iterator[list[T]]:
    """Who comes after whom in each round; who begins changes."""
    for number in range(rounds):
        first = number % len(ones)
        yield [*ones[first:], *ones[:first]]


def ratios(ours: Sequence[float], theirs: Sequence[float]) -> list[float]:
    """Ours ÷ theirs, round by round; what is measured as a difference may come out as nothing, or less."""
    return [mine / its for mine, its in zip(ours, theirs, strict=False) if its > 0 and mine >= 0]


def short(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def spread(found: Sequence[float]) -> str:
    """The median, and the lowest and highest if there are several."""
    if not found:
        return "–"
    middle = f"**{statistics.median(found):.2f}**"
    return middle if len(found) == 1 else f"{middle} ({min(found):.2f}–{max(found):.2f})"


def interval(found: Sequence[float]) -> tuple[float, float]:
    """Where the median lies with 95 %, by the ranks of the values: it holds for every distribution."""
    ordered, middle, reach = sorted(found), len(found) / 2, 0.98 * math.sqrt(len(found))
    low, high = math.floor(middle - reach) - 1, math.ceil(middle + reach)
    return ordered[max(0, low)], ordered[min(len(ordered) - 1, high)]


def narrow(found: Sequence[float]) -> str:
    """The median and its interval."""
    low, high = interval(found)
    return f"**{statistics.median(found):.3f}** ({low:.3f}–{high:.3f})"


def compared(ours: Sequence[float], theirs: Sequence[float]) -> list[str]:
    """Three cells of a table: our median, theirs, and the ratio."""
    medians = [short(statistics.median(values)) if values else "–" for values in (ours, theirs)]
    return [*medians, spread(ratios(ours, theirs))]
