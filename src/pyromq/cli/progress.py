"""How far something long has come: a bar on stderr, and nothing at all where stderr is no terminal."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn


@contextmanager
def progress_bar(what: str, total: int, is_hidden: bool = False) -> Iterator[Callable[[int], None]]:
    """Call what comes out of it with the amount done since the last call."""
    if is_hidden or not sys.stderr.isatty():
        yield lambda _: None
        return
    columns = TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn()
    # What is written to stdout stays there, and does not go through the bar's console.
    with Progress(*columns, console=Console(stderr=True), redirect_stdout=False) as progress:
        task = progress.add_task(what, total=total)
        yield lambda amount: progress.advance(task, amount)
