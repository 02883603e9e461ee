"""Any text as a row: what was read before a mistake, and what `from_json` makes of the rest."""

from collections.abc import Callable
from typing import Any

import pyarrow as pa

from pyromq.spark.from_json.scalars import scalar_fit, text_of, written
from pyromq.spark.from_json.times import Zone
from pyromq.spark.from_json.tokens import (
    ARRAY,
    ARRAY_END,
    NAME,
    NUMBER,
    OBJECT,
    OBJECT_END,
    TEXT,
    WORD,
    JsonTokens,
    Mistake,
)
from pyromq.spark.from_json.unfit import Partly, Unfit

Read = Callable[[JsonTokens], Any]
"""Reads the value of the current token."""

Row = dict[str, Any]


def exact_reader(type_: pa.StructType, zone: Zone) -> Callable[[str], Row | None]:
    """Reads one document; None for a blank one. `Partly` if not all of it fits, `Unfit` if nothing does."""
    fields = {field.name: _reader(field.type, zone) for field in type_}

    def read(text: str) -> Row | None:
        tokens = JsonTokens(text)
        if tokens.next() is None:
            return None
        if tokens.kind != OBJECT:
            raise Unfit("the document is not an object")
        return _object(tokens, fields)

    return read


def _reader(type_: pa.DataType, zone: Zone) -> Read:
    read = _plain_reader(type_, zone)

    def value(tokens: JsonTokens) -> Any:
        while tokens.kind == NAME:
            tokens.next()
        if tokens.kind is None or (tokens.kind == WORD and tokens.value is None):
            return None
        return read(tokens)

    return value


def _plain_reader(type_: pa.DataType, zone: Zone) -> Read:
    types = pa.types
    if types.is_struct(type_):
        fields = {field.name: _reader(field.type, zone) for field in type_}
        return lambda tokens: _object(_at(tokens, OBJECT), fields)
    if types.is_list(type_):
        item = _reader(type_.value_type, zone)
        return lambda tokens: _array(_at(tokens, ARRAY), item)
    if types.is_map(type_):
        content = _reader(type_.item_type, zone)
        return lambda tokens: _map(_at(tokens, OBJECT), content)
    if types.is_string(type_):
        return _text
    if types.is_binary(type_):
        return lambda tokens: _at(tokens, TEXT).binary()
    fit = scalar_fit(type_, zone)

    def scalar(tokens: JsonTokens) -> Any:
        if tokens.kind == TEXT:
            return fit(tokens.text())
        if tokens.kind in (NUMBER, WORD):
            return fit(tokens.value)
        raise Unfit(f"{tokens.kind} is not a value")

    return scalar


def _at(tokens: JsonTokens, kind: str) -> JsonTokens:
    if tokens.kind != kind:
        if tokens.kind == TEXT:
            tokens.text()
        raise Unfit(f"not {kind}")
    return tokens


def _object(tokens: JsonTokens, fields: dict[str, Read]) -> Row:
    row: Row = {}
    problem: Unfit | None = None
    while tokens.next() not in (OBJECT_END, None):
        read = fields.get(tokens.name or "") if tokens.name is not None else None
        if read is None:
            tokens.skip_children()
            continue
        # Of several values for one field the last one that fits stays.
        name = str(tokens.name)
        try:
            row[name] = read(tokens)
        except Partly as unfit:
            problem = problem or unfit
            row[name] = unfit.value
        except Unfit as unfit:
            problem = problem or unfit
            tokens.skip_children()
    if problem is not None:
        raise Partly(row, str(problem))
    return row


def _array(tokens: JsonTokens, item: Read) -> list[Any]:
    items: list[Any] = []
    problem: Unfit | None = None
    while tokens.next() not in (ARRAY_END, None):
        try:
            items.append(item(tokens))
        except Partly as unfit:
            problem = problem or unfit
            items.append(unfit.value)
    if problem is not None:
        raise Partly(items, str(problem))
    return items


def _map(tokens: JsonTokens, content: Read) -> list[tuple[str, Any]]:
    pairs: list[tuple[str, Any]] = []
    partly: Unfit | None = None
    problem: Unfit | None = None
    while tokens.next() not in (OBJECT_END, None):
        name = text_of(tokens.name or "")
        try:
            pairs.append((name, content(tokens)))
        except Partly as unfit:
            partly = partly or unfit
            pairs.append((name, unfit.value))
        except Unfit as unfit:
            problem = problem or unfit
            tokens.skip_children()
    if problem is not None:
        raise Unfit(str(problem))
    if partly is not None:
        raise Partly(pairs, str(partly))
    return pairs


def _text(tokens: JsonTokens) -> str:
    if tokens.kind == TEXT:
        return text_of(tokens.text())
    return _copied(tokens)


def _copied(tokens: JsonTokens) -> str:
    """A value that is not text, written again."""
    if tokens.kind == OBJECT:
        entries: list[str] = []
        while tokens.next() != OBJECT_END:
            if tokens.kind != NAME:
                raise Mistake("an object ends too early")
            name = written(tokens.name)
            tokens.next()
            entries.append(f"{name}:{_copied(tokens)}")
        return "{" + ",".join(entries) + "}"
    if tokens.kind == ARRAY:
        items: list[str] = []
        while tokens.next() != ARRAY_END:
            items.append(_copied(tokens))
        return "[" + ",".join(items) + "]"
    if tokens.kind == TEXT:
        return written(tokens.text())
    if tokens.kind in (NUMBER, WORD):
        return written(tokens.value)
    raise Mistake(f"{tokens.kind} is not a value")
