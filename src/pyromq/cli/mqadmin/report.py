"""The result of a command, from which the table, the plain text and the JSON are made."""

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any, TypeAlias

Write: TypeAlias = Callable[[Any], str]


def plainly(value: Any) -> str:
    """Empty for None, true or false as in Java, JSON for lists and objects."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    return json.dumps(value) if isinstance(value, dict | list) else str(value)


@dataclass(frozen=True, slots=True)
class Column:
    """A column: its title, its key in JSON, and the format of its values.

    `of` finds the value in an item of `Table.of`: the name of an attribute, or a function.
    """

    title: str
    key: str
    write: Write = plainly
    is_number: bool = False
    of: str | Callable[[Any], Any] = ""

    def value(self, item: Any) -> Any:
        return attrgetter(self.of)(item) if isinstance(self.of, str) else self.of(item)


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of values, not of texts; `key` names the list in JSON."""

    key: str
    columns: Sequence[Column]
    rows: Sequence[Sequence[Any]]
    title: str | None = None

    @classmethod
    def of(
        cls, key: str, items: Iterable[Any], columns: Sequence[Column], title: str | None = None
    ) -> "Table":
        """A row per item."""
        return cls(key, columns, [[column.value(item) for column in columns] for item in items], title)

    def texts(self) -> list[list[str]]:
        return [
            [column.write(value) for column, value in zip(self.columns, row, strict=True)]
            for row in self.rows
        ]

    def data(self) -> dict[str, Any]:
        keys = [column.key for column in self.columns]
        return {self.key: [dict(zip(keys, row, strict=True)) for row in self.rows]}


@dataclass(frozen=True, slots=True)
class Fact:
    """One value, with a label for the text and a key for the JSON."""

    label: str
    key: str
    value: Any
    write: Write = plainly


@dataclass(frozen=True, slots=True)
class Facts:
    """Values, one per line; `form` joins a label and a text to a line."""

    facts: Sequence[Fact]
    form: str = "{0}: {1}"
    key: str | None = None
    title: str | None = None

    @classmethod
    def of(
        cls, table: dict[str, str], form: str, key: str | None = None, title: str | None = None
    ) -> "Facts":
        return cls([Fact(name, name, table[name]) for name in sorted(table)], form, key, title)

    def lines(self) -> Iterable[str]:
        if self.title is not None:
            yield self.title
        for fact in self.facts:
            yield self.form.format(fact.label, fact.write(fact.value))

    def data(self) -> dict[str, Any]:
        values = {fact.key: fact.value for fact in self.facts}
        return values if self.key is None else {self.key: values}


@dataclass(frozen=True, slots=True)
class ReportLines:
    """Sentences; `facts` are the same for JSON."""

    texts: Sequence[str]
    facts: dict[str, Any] = field(default_factory=dict)

    def lines(self) -> Iterable[str]:
        return self.texts

    def data(self) -> dict[str, Any]:
        return self.facts


Part: TypeAlias = Table | Facts | ReportLines


@dataclass(frozen=True, slots=True)
class Report:
    """The whole result of a command. `whole`, if given, is its JSON instead of that of the parts."""

    parts: Sequence[Part]
    whole: Any = None

    @classmethod
    def of(cls, *parts: Part, whole: Any = None) -> "Report":
        return cls(parts, whole)

    def data(self) -> Any:
        if self.whole is not None:
            return self.whole
        merged: dict[str, Any] = {}
        for part in self.parts:
            for key, value in part.data().items():
                if isinstance(value, dict) and isinstance(merged.get(key), dict):
                    merged[key] |= value
                else:
                    merged[key] = value
        return merged


def done(text: str, **facts: Any) -> Report:
    """A report of one sentence about an action that succeeded."""
    return Report.of(ReportLines([text], facts))
