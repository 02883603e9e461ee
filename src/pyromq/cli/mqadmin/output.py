"""Where reports go: tables for a terminal, aligned text for a pipe, JSON for whoever asks for it."""

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

        screen = console()
        screen.print(renderable(report, screen.width))


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
    for line, _ in _lines(report):
        yield line


def renderable(report: Report, width: int) -> "Text":
    """A report for a terminal of some width: nothing is cut, and what is copied is in one piece."""
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
    """A row that is wider than the terminal goes on in further lines, under titles that do the same."""
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
    """Which columns stand beside each other."""
    found: list[range] = []
    start = used = 0
    for index, each in enumerate(widths):
        if width is not None and index > start and used + each > width:
            found.append(range(start, index))
            start, used = index, len(_GAP)
        used += each + len(_GAP)
    return [*found, range(start, len(widths))]
