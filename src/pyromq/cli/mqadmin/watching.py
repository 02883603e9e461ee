"""Repeats a report: in place on a terminal, one block or line after the other in a pipe."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING, Annotated

import click

from pyromq.cli.mqadmin.options import SECONDS, option
from pyromq.cli.mqadmin.output import Output, plain_lines, renderable
from pyromq.cli.mqadmin.report import Report, ReportLines
from pyromq.cli.mqadmin.times import to_seconds
from pyromq.clock import Clock, SystemClock
from pyromq.errors import PyroError

if TYPE_CHECKING:
    from rich.live import Live

_BARS = "▁▂▃▄▅▆▇█"


Every = Annotated[
    float | None,
    option("--watch", "Repeat after this many seconds, and show rates.", SECONDS, metavar="SECONDS"),
]
Rounds = Annotated[
    int | None,
    option("--rounds", "Stop after N rounds; without it, Ctrl-C stops.", click.IntRange(min=1), metavar="N"),
]


async def watch(
    out: Output,
    look: Callable[[], Awaitable[Report]],
    every_s: float | None,
    rounds: int | None = None,
    *,
    clock: Clock | None = None,
    pause: Callable[[float], Awaitable[object]] = asyncio.sleep,
) -> None:
    """Show the report of `look` once, or every `every_s` seconds; later failures are retried."""
    report = await look()
    if every_s is None:
        out.show(report)
        return
    told_by: Clock = clock if clock is not None else SystemClock()
    with _live(out) as live:
        done = 0
        while True:
            done += 1
            _show(out, live, report, told_by.now_ms(), every_s)
            if rounds is not None and done >= rounds:
                return
            await pause(every_s)
            try:
                report = await look()
            except PyroError as problem:
                report = Report.of(
                    ReportLines([f"failed, trying again: {problem}"], {"problem": str(problem)})
                )


def _live(out: Output) -> "Live | nullcontext[None]":
    if not out.is_terminal or out.as_json:
        return nullcontext()
    from rich.live import Live

    from pyromq.cli.tables import console

    return Live(console=console(), auto_refresh=False, vertical_overflow="crop")


def _show(out: Output, live: "Live | None", report: Report, now_ms: int, every_s: float) -> None:
    heading = f"{to_seconds(now_ms)}, every {every_s:g} s"
    if out.as_json:
        out.json_line({"time": now_ms, **report.data()})
    elif live is not None:
        whole = Report([ReportLines([f"{heading}, Ctrl-C stops"]), *report.parts])
        live.update(renderable(whole, live.console.width), refresh=True)
    else:
        for line in plain_lines(Report([ReportLines([heading]), *report.parts])):
            click.echo(line)
        click.echo("")


def sparkline(values: Sequence[float]) -> str:
    """Small bars, scaled to the highest value."""
    top = max(values, default=0.0)
    if top <= 0:
        return _BARS[0] * len(values)
    return "".join(_BARS[round(max(value, 0.0) / top * (len(_BARS) - 1))] for value in values)


def rate_text(rate: float | None) -> str:
    """A rate; a dash after only one reading."""
    return "-" if rate is None else f"{rate:.1f}"
