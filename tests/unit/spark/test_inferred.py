"""Schemas that a sample of JSON documents has: every document fits, and Spark understands the text."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyromq.spark.ddl import parse_type
from pyromq.spark.from_json.inferred import inferred_fields

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=10,
)


def inferred(*documents: Any) -> str | None:
    return inferred_fields(json.dumps(each).encode() for each in documents)


@pytest.mark.parametrize(
    ("documents", "fields"),
    [
        (
            [{"id": 1, "ok": True, "name": "x", "price": 1.5}],
            "`id` bigint, `name` string, `ok` boolean, `price` double",
        ),
        ([{"a": 1}, {"a": None}, {"b": "x"}], "`a` bigint, `b` string"),
        ([{"a": 1}, {"a": 2.5}], "`a` double"),
        ([{"a": 1}, {"a": 2**70}], "`a` decimal(38,0)"),
        ([{"a": 2**70}, {"a": 1.5}], "`a` double"),
        ([{"a": 10**40}], "`a` string"),
        ([{"a": 1}, {"a": "x"}], "`a` string"),
        ([{"a": 1}, {"a": [1]}], "`a` string"),
        ([{"a": [1, None, 2.5]}, {"a": []}], "`a` array<double>"),
        ([{"a": [{"b": 1}, {"c": "x"}]}], "`a` array<struct<`b`:bigint,`c`:string>>"),
        ([{"a": {"b": 1}}, {"a": {"b": 1.5, "c d": None}}], "`a` struct<`b`:double,`c d`:string>"),
        ([{"a": {}}, {"b": []}, {"c": None}], "`a` string, `b` array<string>, `c` string"),
        ([{"a`b": 1, "": 2}], "`a``b` bigint"),
        ([{}, 1, "x", None, [1]], None),
        ([], None),
    ],
)
def test_documents_have_a_common_type(documents: list[Any], fields: str | None) -> None:
    assert inferred(*documents) == fields


def test_what_is_no_document_says_nothing() -> None:
    assert inferred_fields([b"", b"\xff", b"{", b'{"a": 1}', b"[" * 100_000]) == "`a` bigint"


@given(st.lists(st.dictionaries(st.text(), values, max_size=3), max_size=4))
def test_spark_understands_whatever_is_found(documents: list[dict[str, Any]]) -> None:
    fields = inferred(*documents)
    if fields is not None:
        names = {name for document in documents for name in document if name}
        assert set(parse_type(f"struct<{fields}>").names) == names  # type: ignore[attr-defined]


@given(
    st.lists(st.dictionaries(st.text(min_size=1), values, max_size=3), min_size=1, max_size=4), st.randoms()
)
def test_the_order_of_documents_does_not_matter(documents: list[dict[str, Any]], chance: Any) -> None:
    before = inferred(*documents)
    chance.shuffle(documents)
    assert inferred(*documents) == before
