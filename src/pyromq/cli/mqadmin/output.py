"""Prints reports: tables on a terminal, aligned text in a pipe, JSON on request."""

import sys
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import click

from pyromq.cli.mqadmin.report import Report, Table

if TYPE_CHECKING:
    from rich.text import Text

_GAP = "  "


class Output:
    def __init__(self, *, as_json: bool, is_terminal: bool | None = None) -> None:
        self.as_json = as_json
        self.is_terminal = sys.stdout.isatty() if is_terminal is None else is_terminal

    def show(self, report: Report) -> None:
        if self.as_json:
            click.echo(_json(report.data(), indent=2))
        elif self.is_terminal:
            self._show_on_terminal(report)
        else:
            for line in plain_lines(report):
                click.echo(line)

    def record(self, data: Any, text: str) -> None:
        """Print one of many results as it arrives: a line of JSON, or of text."""
        click.echo(_json(data) if self.as_json else printable(text))

    def remark(self, text: str) -> None:
        """Print a remark that is not part of the result; nothing with --json."""
        if not self.as_json:
            click.echo(printable(text))

    def json_line(self, data: Any) -> None:
        click.echo(_json(data))

    def _show_on_terminal(self, report: Report) -> None:
        from pyromq.cli.tables import console

        screen = console()
        screen.print(renderable(report, screen.width))


def _json(data: Any, indent: int = 0) -> str:
    import msgspec

    encoded = msgspec.json.encode(data)
    return (msgspec.json.format(encoded, indent=indent) if indent else encoded).decode()


def printable(text: str) -> str:
    """The text with control characters escaped: it may come from the network."""
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else ascii(each)[1:-1] for each in text)


def plain_lines(report: Report) -> Iterable[str]:
    """A report as aligned plain text."""
    for line, _ in _lines(report):
        yield line


def renderable(report: Report, width: int) -> "Text":
    """A report for a terminal of some width: nothing is cut, and no value is broken over two lines."""
    from rich.cells import cell_len
    from rich.text import Text

    shown = Text(overflow="fold")
    for line, is_title in _lines(report, width, cell_len):
        shown.append(f"{line}\n", style="bold" if is_title else None)
    shown.rstrip()
    return shown


def _lines(
    report: Report, width: int | None = None, length: Callable[[str], int] = len
) -> Iterable[tuple[str, bool]]:
    """The lines of a report, and whether each is a title."""
    is_first = True
    for part in report.parts:
        if not is_first:
            yield "", False
        is_first = False
        if isinstance(part, Table):
            if part.title is not None:
                yield part.title, True
            yield from _aligned(part, width, length)
        else:
            for line in part.lines():
                yield printable(line), False


def _aligned(table: Table, width: int | None, length: Callable[[str], int]) -> Iterable[tuple[str, bool]]:
    """A row that is wider than the terminal continues on the next lines, and so do the titles."""
    titles = [column.title for column in table.columns]
    rows = [titles, *([printable(text) for text in row] for row in table.texts())]
    widths = [max(map(length, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = [
            " " * (widest - length(text)) + text if column.is_number else text + " " * (widest - length(text))
            for text, widest, column in zip(row, widths, table.columns, strict=True)
        ]
        for share in _shares(widths, width):
            indent = _GAP if share.start else ""
            yield (indent + _GAP.join(cells[share.start : share.stop])).rstrip(), row is titles


def _shares(widths: Sequence[int], width: int | None) -> list[range]:
    """The columns that fit on one line together."""
    found: list[range] = []
    start = used = 0
    for index, each in enumerate(widths):
        if width is not None and index > start and used + each > width:
            found.append(range(start, index))
            start, used = index, len(_GAP)
        used += each + len(_GAP)
    return [*found, range(start, len(widths))]
