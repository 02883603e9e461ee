"""A progress bar on stderr; nothing where stderr is not a terminal."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn


@contextmanager
def progress_bar(what: str, total: int, is_hidden: bool = False) -> Iterator[Callable[[int], None]]:
    """Yields a function; call it with the amount done since the last call."""
    if is_hidden or not sys.stderr.isatty():
        yield lambda _: None
        return
    columns = TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn()
    # Output to stdout goes straight there, not through the bar's console.
    with Progress(*columns, console=Console(stderr=True), redirect_stdout=False) as progress:
        task = progress.add_task(what, total=total)
        yield lambda amount: progress.advance(task, amount)
