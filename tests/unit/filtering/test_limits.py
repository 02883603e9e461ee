"""How large a filter may be, and that the quick ways through one say the same as the long one."""

from operator import eq, ge, gt, le, lt

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.chance import examples

from pyromq.errors import BadExpression
from pyromq.filtering import sql_eval
from pyromq.filtering.sql_parser import MAX_EXPRESSION_CHARS, MAX_WORK, compile_sql
from pyromq.filtering.tags import MAX_TAG_EXPRESSION_CHARS, MAX_TAGS, parse_tags


def _comparisons(count: int) -> str:
    return " OR ".join(["a = 1"] * count)


def test_a_filter_has_a_thousand_comparisons_and_not_more() -> None:
    assert compile_sql(_comparisons(MAX_WORK // 2)).work == MAX_WORK
    with pytest.raises(BadExpression, match="too large: it may have 2048 operands"):
        compile_sql(_comparisons(MAX_WORK // 2 + 1))


def test_a_search_in_a_text_counts_more_than_a_comparison() -> None:
    contains = " OR ".join(["a CONTAINS 'x'"] * 200)
    with pytest.raises(BadExpression, match="each CONTAINS, STARTSWITH and ENDSWITH counts 16 times"):
        compile_sql(contains)


def test_a_search_in_a_text_of_the_body_counts_most() -> None:
    assert compile_sql("body.a CONTAINS 'x'").work == 65
    with pytest.raises(BadExpression, match="On a field of the body CONTAINS and the like count 64 times"):
        compile_sql(" OR ".join(["body.a CONTAINS 'x'"] * 32))


def test_a_long_list_counts_once() -> None:
    listed = ",".join(f"'id{number}'" for number in range(3000))
    filter_ = compile_sql(f"a IN ({listed})")
    assert filter_.work == 1
    assert filter_.matches({"a": "id2999"})


def test_a_long_expression_is_refused_with_its_length() -> None:
    with pytest.raises(BadExpression, match="32769 characters: expected at most 32768"):
        compile_sql("a" * (MAX_EXPRESSION_CHARS + 1))


def test_the_error_for_a_long_expression_is_short() -> None:
    with pytest.raises(BadExpression) as refusal:
        compile_sql("a = 'x' AND !" + " " * 30_000)
    assert "unexpected '!'" in str(refusal.value)
    assert len(str(refusal.value)) < 300


def test_many_or_long_tags_are_refused() -> None:
    assert len(parse_tags("||".join(f"t{number}" for number in range(MAX_TAGS))).tags) == MAX_TAGS
    with pytest.raises(BadExpression, match="2049 tags: expected at most 2048"):
        parse_tags("||".join(f"t{number}" for number in range(MAX_TAGS + 1)))
    with pytest.raises(BadExpression, match="65537 characters"):
        parse_tags("t" * (MAX_TAG_EXPRESSION_CHARS + 1))


@pytest.mark.parametrize("text", ["1" * 32_000 + "x", "1." + "1" * 32_000 + "e", "." * 32_000, "1e" * 16_000])
def test_a_property_that_is_almost_a_number_is_found_out_in_one_pass(text: str) -> None:
    assert not compile_sql("a > b").matches({"a": text, "b": "1"})
    assert sql_eval._DOUBLE.fullmatch(text) is None


_TEXTS = st.one_of(
    st.integers(-(2**64), 2**64).map(str),
    st.floats().map(repr),
    st.sampled_from(["", " 7", "7d", "1e3", "NaN", "-Infinity", "+5", "٣", "007", "9" * 9, "9" * 10, "x"]),
    st.text(max_size=6),
)
_LITERALS = st.one_of(
    st.integers(0, 2**31 - 1),
    st.integers(2**31, 2**63 - 1).map(sql_eval.Long),
    st.floats(min_value=1e-300, max_value=1e300),
    st.text(max_size=6),
)
_FLIPPED: dict[sql_eval.Operator, sql_eval.Operator] = {gt: lt, ge: le, lt: gt, le: ge}


@settings(max_examples=examples(400))
@given(_TEXTS, _LITERALS, st.sampled_from([eq, gt, ge, lt, le]))
def test_a_property_beside_a_literal_is_compared_as_the_other_way_round(
    text: str, literal: sql_eval.Value, operator: sql_eval.Operator
) -> None:
    if operator is not eq and isinstance(literal, str):
        return
    property_, constant = sql_eval.property_("a"), sql_eval.constant(literal)
    if operator is eq:
        quick, general = sql_eval.equal(property_, constant), sql_eval.equal(constant, property_)
    else:
        quick = sql_eval.ordered(operator, property_, constant)
        general = sql_eval.ordered(_FLIPPED[operator], constant, property_)
    assert _value(quick, {"a": text}) == _value(general, {"a": text})
    assert quick.evaluate({}) is None


def _value(node: sql_eval.Node, properties: dict[str, str]) -> object:
    try:
        return node.evaluate(properties)
    except sql_eval.Unmatched:
        return "unmatched"
