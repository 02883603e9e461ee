"""Filters that name fields of bodies, compared with a naive reader of the whole body."""

import contextlib
import json
from dataclasses import dataclass
from operator import ge, gt, le, lt
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.support.chance import examples

from pyromq.errors import BadExpression
from pyromq.filtering.json_body import MessageWithBody
from pyromq.filtering.sql_parser import compile_sql

NAMES = ("a", "b", "list", "odd name", "it's", "$x", "")
TEXTS = ("eu", "us", "", "2026-01-02", "true", "7", "ä", "it's")

scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 3),
    st.integers(-(2**64), 2**64),
    st.floats(allow_nan=False, allow_infinity=False),
    st.sampled_from([0.5, -1.0, 2.0]),
    st.sampled_from(TEXTS),
)
bodies = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(NAMES), inner, max_size=4),
    max_leaves=12,
)

Truth = bool | None


@dataclass(frozen=True)
class Field:
    path: tuple[str | int, ...]

    def __str__(self) -> str:
        text = "body"
        for step in self.path:
            if isinstance(step, int):
                text += f"[{step}]"
            elif step.replace("$", "a").isidentifier():
                text += f".{step}"
            else:
                text += "['" + step.replace("'", "''") + "']"
        return text

    def of(self, body: Any) -> Any:
        for step in self.path:
            try:
                if isinstance(body, str):
                    return None
                body = body[step]
            except (LookupError, TypeError):
                return None
        return body


fields = st.builds(
    Field, st.lists(st.sampled_from(NAMES) | st.integers(0, 2), min_size=1, max_size=3).map(tuple)
)
literals = st.sampled_from(TEXTS) | st.integers(0, 2**40) | st.sampled_from([0.5, 2.0, 1e3])


def _written(literal: str | float) -> str:
    return "'" + literal.replace("'", "''") + "'" if isinstance(literal, str) else str(literal)


def _kind(value: Any) -> str:
    if isinstance(value, bool):
        return "boolean"
    return {str: "text", int: "number", float: "number"}.get(type(value), "other")


def _compare(operator: str, one: Any, other: Any) -> Truth:
    if one is None or other is None or _kind(one) != _kind(other) or _kind(one) == "other":
        return None
    if operator in ("=", "<>"):
        return bool(one == other) == (operator == "=")
    if _kind(one) == "boolean":
        return None
    return bool({"<": lt, "<=": le, ">": gt, ">=": ge}[operator](one, other))


def _and(one: Truth, other: Truth) -> Truth:
    if one is False or other is False:
        return False
    return None if one is None or other is None else True


def _not(one: Truth) -> Truth:
    return None if one is None else not one


Condition = tuple[str, Any]
"""The text, and a function of the decoded body."""

operators = st.sampled_from(["=", "<>", "<", "<=", ">", ">="])
comparisons = st.builds(
    lambda f, o, v: (f"{f} {o} {_written(v)}", lambda body: _compare(o, f.of(body), v)),
    fields,
    operators,
    literals,
)
mirrored = st.builds(
    lambda f, o, v: (f"{_written(v)} {o} {f}", lambda body: _compare(o, v, f.of(body))),
    fields,
    operators,
    literals,
)
between_fields = st.builds(
    lambda f, o, g: (f"{f} {o} {g}", lambda body: _compare(o, f.of(body), g.of(body))),
    fields,
    operators,
    fields,
)
nulls = st.builds(
    lambda f, no: (f"{f} IS {'NOT ' if no else ''}NULL", lambda body: (f.of(body) is None) != no),
    fields,
    st.booleans(),
)
lone = st.builds(
    lambda f: (f"NOT {f}", lambda body: _not(f.of(body) if isinstance(f.of(body), bool) else None)), fields
)


def _in(field: Field, values: list[Any], no: bool) -> Condition:
    def of(body: Any) -> Truth:
        found: Truth = False
        for value in values:
            found = _not(_and(_not(found), _not(_compare("=", field.of(body), value))))
        return _not(found) if no else found

    return f"{field} {'NOT ' if no else ''}IN ({', '.join(map(_written, values))})", of


lists = st.builds(_in, fields, st.lists(literals, min_size=1, max_size=3), st.booleans())


def _both(one: Condition, other: Condition, word: str) -> Condition:
    def of(body: Any) -> Truth:
        if word == "AND":
            return _and(one[1](body), other[1](body))
        return _not(_and(_not(one[1](body)), _not(other[1](body))))

    return f"({one[0]}) {word} ({other[0]})", of


conditions = st.recursive(
    comparisons | mirrored | between_fields | nulls | lone | lists,
    lambda inner: (
        st.builds(_both, inner, inner, st.sampled_from(["AND", "OR"]))
        | st.builds(lambda one: (f"NOT ({one[0]})", lambda body: _not(one[1](body))), inner)
    ),
    max_leaves=6,
)


@settings(max_examples=examples(1500))
@given(conditions, bodies, st.booleans())
def test_a_filter_says_what_a_reader_of_the_whole_body_says(
    condition: Condition, body: Any, spaced: bool
) -> None:
    text, expected = condition
    encoded = json.dumps(body, ensure_ascii=spaced, indent=2 if spaced else None).encode()
    assert compile_sql(text).matches(MessageWithBody({}, lambda: encoded)) is (expected(body) is True)


@settings(max_examples=examples(500))
@given(st.binary(max_size=40) | bodies.map(lambda body: json.dumps(body).encode()[:-1]), conditions)
@example(b"[" * 100_000, ("body[0][0][0] IS NOT NULL", None))
@example(b'{"a":' * 50_000, ("body.a.a > 1", None))
@example(b'{"a":"\\ud800"}', ("body.a = 'x'", None))
@example(b'{"a":"\xff"}', ("body.a = 'x'", None))
@example(b'{"a":' + b"9" * 10_000 + b"}", ("body.a > 1", None))
@example(b'{"a":1e999}', ("body.a > 1.5", None))
@example(b" " * 100, ("body.a > 1", None))
def test_no_body_makes_a_filter_fail(body: bytes, condition: Condition) -> None:
    assert compile_sql(condition[0]).matches(MessageWithBody({}, lambda: body)) in (True, False)


@settings(max_examples=examples(300))
@given(st.text("body.a[0]'$ =<>1x()-", max_size=30))
def test_any_text_compiles_or_is_refused_in_words(text: str) -> None:
    with contextlib.suppress(BadExpression):
        compile_sql(text).matches(MessageWithBody({}, lambda: b"{}"))
