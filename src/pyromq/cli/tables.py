"""Tables and words on a terminal: what comes from files or the network is shown, never obeyed."""

import sys
from datetime import UTC, datetime

from rich.console import Console
from rich.table import Table

_WIDTH_OF_A_PIPE = 200


def console() -> Console:
    """The console for answers. A pipe has no width, so that tables in it are not cut to a guess."""
    width = None if sys.stdout.isatty() else _WIDTH_OF_A_PIPE
    return Console(markup=False, highlight=False, width=width)


def table(title: str, *columns: str) -> Table:
    return Table(*columns, title=title, title_justify="left")


def printable(text: str) -> str:
    """The text with control characters, colours of others among them, made visible."""
    return "".join(each if each.isprintable() else ascii(each)[1:-1] for each in text)


def moment(timestamp_ms: int) -> str:
    """A timestamp in UTC; nothing for none, the number itself if it lies outside of all calendars."""
    if timestamp_ms <= 0:
        return ""
    try:
        return datetime.fromtimestamp(timestamp_ms / 1000, UTC).isoformat(sep=" ", timespec="milliseconds")
    except (OverflowError, ValueError, OSError):
        return str(timestamp_ms)
