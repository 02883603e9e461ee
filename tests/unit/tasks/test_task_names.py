"""Any name of a queue is one that brokers allow, and no two become the same."""

import re
from urllib.parse import unquote

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.chance import examples

from pyromq.tasks.names import as_key, as_tag, legal

NAMES = st.text(st.characters(codec="utf-8"), min_size=1, max_size=200)


@given(NAMES)
@settings(max_examples=examples(200))
def test_a_name_is_legal_and_a_short_one_can_be_read_back(name: str) -> None:
    found = legal(name)
    assert re.fullmatch(r"[%a-zA-Z0-9_-]{1,80}", found)
    assert unquote(found) == name or len(found) == 80


@given(NAMES, NAMES)
@settings(max_examples=examples(200))
def test_two_names_stay_two(one: str, other: str) -> None:
    assert (legal(one) == legal(other)) == (one == other)


def test_long_names_that_begin_alike_stay_apart() -> None:
    assert legal("a" * 100 + "b") != legal("a" * 100 + "c")


def test_what_cannot_be_a_tag_or_a_key_is_left_out() -> None:
    assert as_tag("shop.tasks:bill") == "shop.tasks:bill"
    assert as_tag("a || b") is None
    assert as_tag(None) is None
    assert as_key("id-1") == ("id-1",)
    assert as_key("two words") == as_key(None) == as_key("") == ()
