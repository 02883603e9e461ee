"""The meaning of each part of an SQL92 filter expression, as functions of a message's properties.

Properties are text; a literal on the other side decides what the text is read as. There are three truths:
true, false and NULL. A text that cannot be read as what it must be is an error: the message does not match.
Fields of bodies have their own kinds: with one of them, a comparison of different kinds is NULL.
"""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from operator import eq, ge, gt, le, lt

from pyromq.errors import BadExpression
from pyromq.filtering.json_body import MessageWithBody, Path, Structure

_MAX_DIGITS = 19


class Long(int):
    """An integer literal that needs 64 bits: what it is compared with is read as 64 bits wide, too."""


Value = str | bool | int | float | Structure | None
Properties = Mapping[str, str]
Evaluate = Callable[[Properties], Value]


class Unmatched(Exception):
    """Evaluation met something it cannot compare."""


@dataclass(slots=True)
class Node:
    """A compiled part: what it gives for a message, and what was known of it when it was compiled."""

    evaluate: Evaluate
    depth: int = 1
    is_boolean: bool = False
    is_constant: bool = False
    constant: Value = None
    property_name: str | None = None
    is_typed: bool = False
    """Whether it is a field of the body, whose values have the kinds of JSON."""


def constant(value: Value) -> Node:
    is_truth = value is None or isinstance(value, bool)
    return Node(lambda _: value, is_boolean=is_truth, is_constant=True, constant=value)


def integer(text: str) -> Node:
    digits = text.rstrip("lL")
    # The length is checked first: Python refuses to read numbers of thousands of digits.
    if len(digits) > _MAX_DIGITS or (number := int(digits)) > 2**63 - 1:
        raise BadExpression(f"{text[:_MAX_DIGITS]} does not fit 64 bits")
    return constant(number if number < 2**31 else Long(number))


def floating(text: str) -> Node:
    number = float(text)
    if number == 0 or math.isinf(number):
        # java: a literal of zero counts as smaller than the smallest double
        raise BadExpression(f"{text} is out of the range of a double")
    return constant(number)


def property_(name: str) -> Node:
    return Node(lambda properties: properties.get(name), property_name=name)


def body_field(path: Path) -> Node:
    return Node(
        lambda message: message.body.field(path) if isinstance(message, MessageWithBody) else None,
        is_typed=True,
    )


def as_truth(node: Node) -> Node:
    """A lone property may be a condition: NULL if it is missing, else false, whatever its value. A lone field
    of the body is what it says, and NULL if it is not a boolean."""
    if node.is_boolean:
        return node
    if node.is_typed:
        return _truth(lambda message: _boolean_or_null(node.evaluate(message)), node)
    if node.property_name is None:
        raise BadExpression("a number or a string is not a condition")
    name = node.property_name
    return _truth(lambda properties: False if name in properties else None, node)


def negated(node: Node) -> Node:
    def evaluate(properties: Properties) -> Value:
        value = node.evaluate(properties)
        if isinstance(value, bool) or not isinstance(value, int | float):
            return None
        return type(value)(-value)

    return Node(evaluate, depth=node.depth + 1, is_typed=node.is_typed)


def _boolean_or_null(value: Value) -> Value:
    return value if isinstance(value, bool) else None


def not_(node: Node) -> Node:
    def evaluate(properties: Properties) -> Value:
        value = node.evaluate(properties)
        return None if value is None else not value

    return _truth(evaluate, node)


def every(nodes: Sequence[Node]) -> Node:
    """AND, left to right: the first false one decides."""

    def evaluate(properties: Properties) -> Value:
        result: Value = True
        for node in nodes:
            value = node.evaluate(properties)
            if value is None:
                result = None
            elif not value:
                return False
        return result

    return _truth(evaluate, *nodes)


def some(nodes: Sequence[Node]) -> Node:
    """OR, left to right: the first true one decides."""

    def evaluate(properties: Properties) -> Value:
        result: Value = False
        for node in nodes:
            value = node.evaluate(properties)
            if value is None:
                result = None
            elif value:
                return True
        return result

    return _truth(evaluate, *nodes)


def equal(left: Node, right: Node) -> Node:
    for side in (left, right):
        if side.is_constant and side.constant is None:
            raise BadExpression("NULL cannot be compared; use IS NULL")
    if left.is_constant and right.is_constant and left.is_boolean and not right.is_boolean:
        raise BadExpression("a boolean cannot be compared with a number or a string")
    if left.is_typed or right.is_typed:
        return _typed(eq, left, right)
    if (quick := _property_with_literal(eq, left, right)) is not None:
        return _truth(quick, left, right)

    def evaluate(properties: Properties) -> Value:
        one, other = left.evaluate(properties), right.evaluate(properties)
        if one is None:
            return True if other is None else None
        if other is None:
            return False
        if type(one) is type(other) and one == other:
            return True
        return _compare(eq, one, other)

    return _truth(evaluate, left, right)


def is_null(node: Node) -> Node:
    return _truth(lambda properties: node.evaluate(properties) is None, node)


def is_not_null(node: Node) -> Node:
    return _truth(lambda properties: node.evaluate(properties) is not None, node)


Operator = Callable[[float, float], bool]


def ordered(operator: Operator, left: Node, right: Node) -> Node:
    is_typed = left.is_typed or right.is_typed
    for side in (left, right):
        is_number = isinstance(side.constant, int | float) and not isinstance(side.constant, bool)
        is_text = is_typed and isinstance(side.constant, str)
        if side.is_boolean or (side.is_constant and not is_number and not is_text):
            raise BadExpression(
                "only numbers, properties and fields of bodies can be compared with <, <=, > and >=,"
                " and strings with fields of bodies"
            )
    if is_typed:
        return _typed(operator, left, right)
    if (quick := _property_with_literal(operator, left, right)) is not None:
        return _truth(quick, left, right)

    def evaluate(properties: Properties) -> Value:
        one, other = left.evaluate(properties), right.evaluate(properties)
        if one is None or other is None:
            return None
        if isinstance(one, str) and isinstance(other, str):
            return _compare(operator, _double(one), _double(other))
        return _compare(operator, one, other)

    return _truth(evaluate, left, right)


def _property_with_literal(operator: Operator, left: Node, right: Node) -> Evaluate | None:
    """A property on the left and a literal on the right, as in nearly every filter: the short way to what
    `_compare` says of them, because it is gone once for each term and message."""
    name, literal = left.property_name, right.constant
    if name is None or not right.is_constant or literal is None or isinstance(literal, bool | Structure):
        return None
    if isinstance(literal, str):

        def with_text(properties: Properties) -> Value:
            text = properties.get(name)
            return None if text is None else text == literal

        return with_text if operator is eq else None
    if isinstance(literal, int):
        bits = 63 if isinstance(literal, Long) else 31

        def with_integer(properties: Properties) -> Value:
            text = properties.get(name)
            return None if text is None else operator(_integer(text, bits), literal)

        return with_integer

    def with_double(properties: Properties) -> Value:
        text = properties.get(name)
        return None if text is None else operator(_order_of_doubles(_double(text), literal), 0)

    return with_double


def between(value: Node, low: Node, high: Node) -> Node:
    if low.is_constant and high.is_constant:
        if low.constant is None or high.constant is None:
            raise BadExpression("the bounds of BETWEEN cannot be NULL")
        try:
            is_empty = _compare(lt, high.constant, low.constant)
        except Unmatched:
            is_empty = True
        if is_empty:
            raise BadExpression("the lower bound of BETWEEN is above the upper one")
    return every((ordered(ge, value, low), ordered(le, value, high)))


def not_between(value: Node, low: Node, high: Node) -> Node:
    return some((ordered(lt, value, low), ordered(gt, value, high)))


def in_(node: Node, listed: Sequence[str | int | float], *, wanted: bool) -> Node:
    choices = frozenset(listed)
    if node.is_typed:
        kinds = frozenset(map(kind_of, choices))

        def evaluate_typed(message: Properties) -> Value:
            value = node.evaluate(message)
            if isinstance(value, str | int | float) and not isinstance(value, bool):
                if value in choices:
                    return wanted
                if kinds == {kind_of(value)}:
                    return not wanted
            return None

        return _truth(evaluate_typed, node)
    if node.property_name is None or not all(isinstance(each, str) for each in listed):
        raise BadExpression(
            "IN needs a property on its left and strings in its list, or a field of the body on its left"
        )

    def evaluate(properties: Properties) -> Value:
        value = node.evaluate(properties)
        return None if value is None else (value in choices) is wanted

    return _truth(evaluate, node)


def text_test(node: Node, test: Callable[[str, str], bool], text: str, *, wanted: bool) -> Node:
    """CONTAINS and the like: false, even with NOT, for values that are not text and for an empty search."""

    def evaluate(properties: Properties) -> Value:
        value = node.evaluate(properties)
        return bool(text) and isinstance(value, str) and test(value, text) is wanted

    return _truth(evaluate, node)


def _truth(evaluate: Evaluate, *parts: Node) -> Node:
    return Node(evaluate, depth=1 + max(part.depth for part in parts), is_boolean=True)


def _typed(operator: Operator, left: Node, right: Node) -> Node:
    """A comparison with a field of the body: NULL if a side is NULL or the kinds differ. A property has no
    kind: its text is read as the kind of the field."""

    def evaluate(message: Properties) -> Value:
        one, other = left.evaluate(message), right.evaluate(message)
        if left.property_name is not None:
            one = _as_kind_of(other, one)
        if right.property_name is not None:
            other = _as_kind_of(one, other)
        return compare_kinds(operator, one, other)

    return _truth(evaluate, left, right)


def compare_kinds(operator: Operator, one: Value, other: Value) -> bool | None:
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other if isinstance(one, bool) and isinstance(other, bool) and operator is eq else None
    if isinstance(one, str) and isinstance(other, str):
        return operator((one > other) - (one < other), 0)
    if isinstance(one, int | float) and isinstance(other, int | float):
        return operator(one, other)  # exact, also between a large integer and a double
    return None


def kind_of(value: Value) -> type:
    """Integers and doubles are one kind: numbers."""
    return float if type(value) in (int, Long) else type(value)


def _as_kind_of(pattern: Value, value: Value) -> Value:
    """The text of a property as what the field of the body is; NULL if it cannot be read so."""
    if not isinstance(value, str) or isinstance(pattern, str):
        return value
    if isinstance(pattern, bool):
        return {"true": True, "false": False}.get(value.lower())
    try:
        return _integer(value, 63) if _INTEGER.fullmatch(value) else _double(value)
    except Unmatched:
        return None


def _compare(operator: Operator, left: Value, right: Value) -> bool:
    """Compare two values that are not NULL, reading a text as the kind of the other side."""
    if isinstance(left, Structure) or isinstance(right, Structure):
        raise Unmatched
    if isinstance(left, bool):
        if isinstance(right, str):
            raise Unmatched  # java: a truth on the left cannot be compared with a text
        return operator(left, right) if isinstance(right, bool) else operator(-1, 0)
    if isinstance(right, bool):
        return operator(_truth_of(left), right) if isinstance(left, str) else operator(-1, 0)
    if isinstance(left, str):
        if isinstance(right, str):
            return operator((left > right) - (left < right), 0)
        left = _read_as(left, right)
    elif isinstance(right, str):
        right = _read_as(right, left)
    if isinstance(left, float) or isinstance(right, float):
        return operator(_order_of_doubles(float(left or 0), float(right or 0)), 0)
    return operator(left or 0, right or 0)


def _truth_of(text: str) -> bool:
    return text.lower() == "true"


def _read_as(text: str, pattern: Value) -> float:
    if isinstance(pattern, float):
        return _double(text)
    return _integer(text, 63 if isinstance(pattern, Long) else 31)


_INTEGER = re.compile(r"[+-]?\d++")
# Possessive throughout: one pass decides whether a text is a number, however long it is.
_DOUBLE = re.compile(
    r"[+-]?+(?:NaN|Infinity|(?:[0-9]++(?:\.[0-9]*+)?+|\.[0-9]++)(?:[eE][+-]?+[0-9]++)?+[dDfF]?+)"
)
_MAX_NUMBER_CHARS = 1024


def _integer(text: str, bits: int) -> int:
    if len(text) < 10 and text.isdecimal():
        return int(text)
    # The length is checked first: reading a number of a million digits would take too long.
    if len(text) > 64 or not _INTEGER.fullmatch(text):
        raise Unmatched
    number = int(text)
    if not -(2**bits) <= number < 2**bits:
        raise Unmatched
    return number


def _double(text: str) -> float:
    if len(text) > _MAX_NUMBER_CHARS:
        raise Unmatched
    text = text.strip()
    if not _DOUBLE.fullmatch(text):
        raise Unmatched
    return float(text.rstrip("dDfF") if text[-1] in "dDfF" else text)


def _order_of_doubles(left: float, right: float) -> int:
    """-1, 0 or 1 as Java orders doubles: NaN is the largest and equals itself, -0.0 is below 0.0."""
    if left < right:
        return -1
    if left > right:
        return 1
    left_key = (math.isnan(left), math.copysign(1, left))
    right_key = (math.isnan(right), math.copysign(1, right))
    if math.isnan(left) and math.isnan(right):
        return 0
    return (left_key > right_key) - (left_key < right_key)
