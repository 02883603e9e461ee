"""The progress of a pipeline on the terminal: live on stderr while it runs, a summary on stdout at its end.

Where stderr is not a terminal there is only the summary.
"""

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from pyromq.spark.pipelines.tallies import Show, Tally

_WIDTH_OF_A_PIPE = 160


@contextmanager
def reported(*, is_live: bool = True) -> Iterator[Show]:
    """Call the yielded function whenever tallies have changed; the end always prints a summary."""
    last: dict[str, Tally] = {}

    def remember(tallies: Mapping[str, Tally]) -> None:
        last.update(tallies)

    try:
        if not (is_live and sys.stderr.isatty()):
            yield remember
            return
        with Live(Text("Spark is at work"), console=Console(stderr=True), transient=True) as screen:

            def show(tallies: Mapping[str, Tally]) -> None:
                remember(tallies)
                screen.update(picture(tallies))

            yield show
    finally:
        for name, tally in last.items():
            _sum_up(name, tally)


def picture(tallies: Mapping[str, Tally]) -> Group:
    parts: list[Text | Table | ProgressBar] = []
    for name, tally in tallies.items():
        parts.append(Text(line(name, tally)))
        if tally.expected:
            parts.append(ProgressBar(total=tally.expected, completed=tally.rows_out, width=60))
        if tally.topics:
            parts.append(_topics(tally))
    return Group(*parts)


def line(what: str, tally: Tally) -> str:
    """The whole tally in one line."""
    rate = tally.rows_in / tally.seconds if tally.seconds else 0.0
    batches = "1 batch" if tally.batches == 1 else f"{tally.batches:,} batches"
    rows = f"{tally.rows_in:,} rows in, {tally.rows_out:,} out"
    text = f"{what}: {rows}, {batches}, {tally.seconds:.1f} s, {rate:,.0f}/s"
    if tally.rows_per_s:
        text += f" (last batch {tally.rows_per_s:,.0f}/s)"
    if tally.watermark:
        text += f", watermark {tally.watermark}"
    if tally.unreachable:
        text += f", unreachable: {', '.join(tally.unreachable)}"
    return text


def _sum_up(what: str, tally: Tally) -> None:
    console = stdout()
    if tally.topics:
        console.print(_topics(tally))
    console.print(line(what, tally), soft_wrap=True)


def stdout() -> Console:
    """The console for answers. A pipe has no width, so tables in it are not cut to a guess."""
    return Console(markup=False, highlight=False, width=None if sys.stdout.isatty() else _WIDTH_OF_A_PIPE)


def _topics(tally: Tally) -> Table:
    table = Table("topic", "rows", "lag")
    for column in table.columns[1:]:
        column.justify = "right"
    for name, topic in sorted(tally.topics.items()):
        table.add_row(name, f"{topic.rows:,}", f"{topic.lag:,}")
    return table
