"""Where reports go: tables for a terminal, aligned text for a pipe, JSON for whoever asks for it."""

import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import click

from pyromq.cli.mqadmin.report import Report, Table

if TYPE_CHECKING:
    from rich.console import JustifyMethod, RenderableType

_GAP = "  "


class Output:
    def __init__(self, *, as_json: bool, is_terminal: bool | None = None) -> None:
        self.as_json = as_json
        self.is_terminal = sys.stdout.isatty() if is_terminal is None else is_terminal

    def show(self, report: Report) -> None:
        """Tell a report and be done with it."""
        if self.as_json:
            click.echo(_json(report.data(), indent=2))
        elif self.is_terminal:
            self._show_on_terminal(report)
        else:
            for line in plain_lines(report):
                click.echo(line)

    def record(self, data: Any, text: str) -> None:
        """Tell one of many things as it comes: a line of JSON, or of text."""
        click.echo(_json(data) if self.as_json else printable(text))

    def remark(self, text: str) -> None:
        """Tell people something that is no part of the answer."""
        if not self.as_json:
            click.echo(printable(text))

    def json_line(self, data: Any) -> None:
        click.echo(_json(data))

    def _show_on_terminal(self, report: Report) -> None:
        from pyromq.cli.tables import console

        console().print(renderable(report))


def _json(data: Any, indent: int = 0) -> str:
    import msgspec

    encoded = msgspec.json.encode(data)
    return (msgspec.json.format(encoded, indent=indent) if indent else encoded).decode()


def printable(text: str) -> str:
    """The text with control characters made visible: what comes from the network is shown, never obeyed."""
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else ascii(each)[1:-1] for each in text)


def plain_lines(report: Report) -> Iterable[str]:
    """A report as text that is aligned and otherwise plain."""
    is_first = True
    for part in report.parts:
        if not is_first:
            yield ""
        is_first = False
        if isinstance(part, Table):
            if part.title is not None:
                yield part.title
            yield from _aligned(part)
        else:
            yield from map(printable, part.lines())


def _aligned(table: Table) -> Iterable[str]:
    titles = [column.title for column in table.columns]
    rows = [titles, *([printable(text) for text in row] for row in table.texts())]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = [
            text.rjust(width) if column.is_number else text.ljust(width)
            for text, width, column in zip(row, widths, table.columns, strict=True)
        ]
        yield _GAP.join(cells).rstrip()


def renderable(report: Report) -> "RenderableType":
    """A report as rich draws it."""
    from rich import box
    from rich.console import Group
    from rich.table import Table as RichTable
    from rich.text import Text

    shown: list[RenderableType] = []
    for part in report.parts:
        if isinstance(part, Table):
            drawn = RichTable(
                box=box.SIMPLE_HEAD, title=part.title, title_justify="left", pad_edge=False, show_edge=False
            )
            for column in part.columns:
                # What does not fit is folded, never cut: names and addresses are there to be copied.
                justify: JustifyMethod = "right" if column.is_number else "left"
                drawn.add_column(column.title, justify=justify, overflow="fold")
            for row in part.texts():
                drawn.add_row(*(Text(printable(text)) for text in row))
            shown.append(drawn)
        else:
            shown.append(Text("\n".join(map(printable, part.lines()))))
    return Group(*shown)
