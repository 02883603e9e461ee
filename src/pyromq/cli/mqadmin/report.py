"""What a command has to say, told once: from it come the table, the plain text and the JSON."""

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

Write: TypeAlias = Callable[[Any], str]


def plainly(value: Any) -> str:
    """Nothing for None; Java's words for truth; JSON for what has parts."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    return json.dumps(value) if isinstance(value, dict | list) else str(value)


@dataclass(frozen=True, slots=True)
class Column:
    """A column: what stands above it, its key in JSON, and how its values are written."""

    title: str
    key: str
    write: Write = plainly
    is_number: bool = False


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of values, not of texts; `key` is what their list is called in JSON."""

    key: str
    columns: Sequence[Column]
    rows: Sequence[Sequence[Any]]
    title: str | None = None

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
    """One value with a label for people and a key for JSON."""

    label: str
    key: str
    value: Any
    write: Write = plainly


@dataclass(frozen=True, slots=True)
class Facts:
    """Values, one on a line; `form` is how a label and a text become a line."""

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
class Lines:
    """Sentences for people; `facts` are what they say, for JSON."""

    texts: Sequence[str]
    facts: dict[str, Any] = field(default_factory=dict)

    def lines(self) -> Iterable[str]:
        return self.texts

    def data(self) -> dict[str, Any]:
        return self.facts


Part: TypeAlias = Table | Facts | Lines


@dataclass(frozen=True, slots=True)
class Report:
    """Everything a command has to say. `whole`, if given, is the JSON instead of what the parts make."""

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
    """A sentence that says what was done."""
    return Report.of(Lines([text], facts))
