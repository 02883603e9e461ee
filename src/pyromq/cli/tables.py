"""Tables and text on a terminal; control characters from files or the network are escaped."""

import sys
from datetime import UTC, datetime

from rich.console import Console
from rich.table import Table

_WIDTH_OF_A_PIPE = 200


def console() -> Console:
    """The console for output. In a pipe the width is fixed and large, so that tables are not cut."""
    width = None if sys.stdout.isatty() else _WIDTH_OF_A_PIPE
    return Console(markup=False, highlight=False, width=width)


def table(title: str, *columns: str) -> Table:
    return Table(*columns, title=title, title_justify="left")


def printable(text: str) -> str:
    """The text with control characters, colour codes included, escaped."""
    return "".join(each if each.isprintable() else ascii(each)[1:-1] for each in text)


def moment(timestamp_ms: int) -> str:
    """A timestamp in UTC; empty for 0, the number itself if it is not a valid date."""
    if timestamp_ms <= 0:
        return ""
    try:
        return datetime.fromtimestamp(timestamp_ms / 1000, UTC).isoformat(sep=" ", timespec="milliseconds")
    except (OverflowError, ValueError, OSError):
        return str(timestamp_ms)
