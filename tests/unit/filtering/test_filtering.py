"""Tag and SQL92 filters, rule by rule."""

import pytest

from pyromq.errors import BadExpression
from pyromq.filtering.json_body import MessageWithBody
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


BODY = (
    b'{"amount": 150, "big": 5000000000, "paid": true, "note": null, "day": "2026-01-02", "id": 7,'
    b' "customer": {"region": "eu", "first name": "Ann"}, "items": [{"sku": "a"}, {"sku": "b"}]}'
)


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("body.amount > 100 AND body.customer.region = 'eu'", True),
        ("body.amount BETWEEN 100 AND 200", True),
        ("body.big > 4999999999", True),
        ("body.amount IN (1, 150)", True),
        ("body.amount NOT IN (1, 150.0)", False),
        ("body.customer['first name'] STARTSWITH 'A'", True),
        ("body.items[1].sku = 'b'", True),
        ("body.items[2].sku IS NULL", True),
        ("body.day >= '2026-01-01'", True),
        ("body.paid", True),
        ("NOT body.amount", False),
        ("body.note IS NULL AND body.customer IS NOT NULL", True),
        # Another kind than expected is unknown, whether or not the comparison is negated.
        ("body.amount = '150'", False),
        ("body.amount <> '150'", False),
        ("body.customer = 'eu'", False),
        ("body.nothing <> 'eu'", False),
        ("body.nothing > 1 OR body.paid", True),
        # The text of a property is read as the kind of the field.
        ("body.id = number AND number = body.id", True),
        ("body.id = word", False),
        ("body.paid = truth", True),
        ("body.customer.region = region", True),
        # `body` alone is a property, as ever.
        ("body = 'property'", True),
    ],
)
def test_a_filter_reads_fields_of_the_body(expression: str, expected: bool) -> None:
    properties = {"number": "7", "word": "seven", "truth": "TRUE", "region": "eu", "body": "property"}
    assert compile_sql(expression).matches(MessageWithBody(properties, lambda: BODY)) is expected


def test_a_body_is_read_only_if_the_properties_do_not_decide() -> None:
    def unwanted() -> bytes:
        raise AssertionError("the body was read")

    filter_ = compile_sql("region = 'eu' AND body.amount > 100")
    assert filter_.reads_body
    assert not filter_.matches(MessageWithBody({"region": "us"}, unwanted))


@pytest.mark.parametrize("body", [b"", b"hello", b"[1, 2]", b'{"amount": 150', b'{"amount": 150} x', b"\xff"])
def test_a_body_without_the_field_matches_nothing(body: bytes) -> None:
    for expression in ("body.amount > 100", "NOT (body.amount > 100)", "body.amount <> 3"):
        assert not compile_sql(expression).matches(MessageWithBody({}, lambda: body))
    assert compile_sql("body.amount IS NULL").matches(MessageWithBody({}, lambda: body))


@pytest.mark.parametrize(
    ("expression", "reason"),
    [
        ("body.0.x = 5", r"written body.name, body\['any name'\] or body.list\[0\]"),
        ("body.first-name = 5", "'-' follows the complete expression"),
        ("body.a = 5 xx", "'xx' follows the complete expression"),
        ("body.a < TRUE", "strings with fields of bodies"),
        ("body.a = NULL", "use IS NULL"),
        ("body.a.b.c.d.e.f.g.h.i = 1", "goes 9 levels into the body: expected at most 8"),
        ("body.a[1000000] = 1", "expected at most 999999"),
        ("a IN (1, 2)", "strings in its list, or a field of the body on its left"),
    ],
)
def test_a_field_written_wrongly_is_refused(expression: str, reason: str) -> None:
    with pytest.raises(BadExpression, match=reason):
        compile_sql(expression)
