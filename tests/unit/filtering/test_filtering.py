"""Tag and SQL92 filters, rule by rule."""

import pytest

from pyromq.errors import BadExpression
from pyromq.filtering.sql_parser import compile_sql
from pyromq.filtering.tags import parse_tags


@pytest.mark.parametrize("expression", [None, "", "*"])
def test_no_tag_expression_wants_everything(expression: str | None) -> None:
    tags = parse_tags(expression)
    assert tags.wants_all
    assert not tags.codes
    assert tags.matches_tag(None)


def test_tags_are_trimmed_and_empty_parts_dropped() -> None:
    tags = parse_tags(" TagA ||  || TagB||")
    assert tags.tags == {"TagA", "TagB"}
    assert tags.codes == {2598919, 2598920}


def test_tags_whose_hashes_collide_are_told_apart_by_their_text() -> None:
    tags = parse_tags("Aa")
    assert tags.codes == parse_tags("BB").codes
    assert not tags.matches_tag("BB")


MESSAGE = {"a": "10", "b": "abc", "c": "2.5", "t": "TRUE", "big": "3000000000", "q": "it's", "zero": "0"}


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("a = 10", True),
        ("a = 11", False),
        ("a <> 11", True),
        ("A = 10", False),
        ("a > 5 AND a < 20", True),
        ("a > 5 and not (a = 10)", False),
        ("a >= 10 OR b = 'nothing'", True),
        ("a <= 9", False),
        ("a > -5", True),
        ("+a = 10", True),
        ("a BETWEEN 10 AND 10", True),
        ("a NOT BETWEEN 10 AND 20", False),
        ("a NOT BETWEEN 11 AND 20", True),
        ("missing BETWEEN 1 AND 2", False),
        ("b IN ('abc', 'def')", True),
        ("b NOT IN ('abc')", False),
        ("missing NOT IN ('abc')", False),
        ("q = 'it''s'", True),
        ("missing IS NULL", True),
        ("a IS NOT NULL", True),
        ("a IS NULL", False),
        ("NULL IS NULL", True),
        ("t = TRUE", True),
        ("b = TRUE", False),
        ("b = FALSE", True),
        ("TRUE = t", False),
        ("TRUE", True),
        ("NOT FALSE", True),
        ("c > 2.4", True),
        ("c = 2.5", True),
        ("c > a", False),
        ("a > c", True),
        ("b > a", False),
        ("b <> 'xyz'", True),
        ("missing <> 'x'", False),
        ("'x' <> missing", True),
        ("missing = other", True),
        ("missing > 3", False),
        ("NOT (missing > 3)", False),
        ("b CONTAINS 'bc'", True),
        ("b NOT CONTAINS 'x'", True),
        ("missing NOT CONTAINS 'x'", False),
        ("b NOT CONTAINS ''", False),
        ("b STARTSWITH 'ab'", True),
        ("b NOT STARTSWITH 'ab'", False),
        ("b ENDSWITH 'bc'", True),
        ("b NOT ENDSWITH 'x'", True),
        ("a CONTAINS '1'", True),
        ("b", False),
        ("NOT b", True),
        ("missing", False),
        ("NOT missing", False),
        ("-b IS NULL", True),
        ("big > 5", False),
        ("big > 2999999999", True),
        ("big = 3000000000L", True),
        ("c = 2", False),
        ("b = 5", False),
        ("b = 5 OR a = 10", False),
        ("a = 10 OR b = 5", True),
        ("a = 9 AND b = 5", False),
        ("missing = 1 OR a = 10", True),
        ("missing = 1 AND a = 10", False),
        ("NOT a = 1", False),
        ("a = 10 trailing words are not read", True),
        ("a = 10 -- a comment\n AND b = 'abc'", True),
        ("a /* any\n * thing */ = 10", True),
        ("a NOT b", False),
        ("zero = 0", True),
        ("a = 1E1", True),
        ("a = .1E2", True),
        ("a = 10.", True),
        ("1 = 1", True),
        ("a = 10 = TRUE", True),
    ],
)
def test_sql_expression_gives(expression: str, expected: bool) -> None:
    assert compile_sql(expression).matches(MESSAGE) is expected


@pytest.mark.parametrize(
    "expression",
    [
        "",
        "   ",
        "5",
        "'text'",
        "a =",
        "a = NULL",
        "a > 'x'",
        "a > TRUE",
        "(a = 1) > 2",
        "a BETWEEN 2 AND 1",
        "a BETWEEN NULL AND 1",
        "a BETWEEN 'a' AND 'b'",
        "5 IN ('a')",
        "a IN ()",
        "a IN (1)",
        "a IN ('a'",
        "a IS 5",
        "a = 0.0",
        "a = 1E999",
        "a = 99999999999999999999",
        "TRUE = 5",
        "(a = 1",
        "a = 1 ;",
        "a = 'open",
        "a # 1",
        "NOT 5",
        "a CONTAINS b",
        "5 AND a = 1",
    ],
)
def test_sql_expression_is_refused(expression: str) -> None:
    with pytest.raises(BadExpression):
        compile_sql(expression)


@pytest.mark.parametrize(
    "expression",
    [
        "(" * 5000 + "a = 1" + ")" * 5000,
        "NOT " * 5000 + "a",
        "a" + " = a" * 5000,
        "-" * 5000 + "a > 1",
        "a" * 70_000,
    ],
    ids=["parentheses", "nots", "equalities", "minuses", "length"],
)
def test_a_bomb_of_nesting_or_length_is_refused(expression: str) -> None:
    with pytest.raises(BadExpression):
        compile_sql(expression)


def test_a_long_chain_of_conditions_is_not_nesting() -> None:
    chain = compile_sql(" AND ".join(["a = 10"] * 1000))
    assert chain.matches(MESSAGE)
    assert not chain.matches({"a": "11"})


def test_properties_with_absurd_numbers_do_not_match_and_cost_nothing() -> None:
    assert not compile_sql("a > 5").matches({"a": "9" * 1_000_000})
    assert not compile_sql("a > 5").matches({"a": "1_0"})
    assert not compile_sql("a > 5").matches({"a": " 10"})
    assert compile_sql("a > 5.5").matches({"a": " 10d "})
    assert compile_sql("a > 5.5").matches({"a": "NaN"})


def test_the_expressions_compiled_last_are_remembered() -> None:
    long = " OR ".join(["a = 1"] * 1000)
    assert compile_sql(long) is compile_sql(long)
    first = compile_sql("a = 0")
    for number in range(1, 20):
        compile_sql(f"a IN ('{'x' * 4096}', '{number}')")
    assert compile_sql("a = 0") is not first
