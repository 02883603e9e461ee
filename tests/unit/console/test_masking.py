import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyromq.console.masking import UNREADABLE, Masks

MASKS = Masks(["password", "card*"])
SECRET = "geheim"
NESTED = {"user": {"Password": SECRET, "name": "ada"}, "items": [{"cardNumber": [SECRET]}], "n": 1}


def test_values_of_masked_fields_are_gone_at_any_depth() -> None:
    masked = MASKS.body(json.dumps(NESTED).encode())
    assert SECRET.encode() not in masked
    assert json.loads(masked) == {
        "user": {"Password": "******", "name": "ada"},
        "items": [{"cardNumber": "******"}],
        "n": 1,
    }


@pytest.mark.parametrize("body", [b"", b"plain", b'{"n":  1}', b"\xff\x00", b'"password"'])
def test_a_body_without_masked_fields_stays_as_it_is(body: bytes) -> None:
    assert MASKS.body(body) == body


def test_what_only_looks_like_json_is_hidden() -> None:
    assert MASKS.body(b'{"password": "geheim"') == UNREADABLE
    assert MASKS.body(b"[" * 100_000) == UNREADABLE
    assert Masks().body(b'{"password": "geheim"') == b'{"password": "geheim"'


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-16-be", "utf-32"])
def test_spaces_and_marks_before_it_hide_no_json(encoding: str) -> None:
    masked = MASKS.body((" " * 100 + json.dumps(NESTED)).encode(encoding))
    assert json.loads(masked)["user"] == {"Password": "******", "name": "ada"}


def test_a_value_that_another_of_the_same_name_covers_is_hidden() -> None:
    assert MASKS.body(b'{"a": {"password": "geheim"}, "a": 1}') == UNREADABLE


def test_properties_are_masked_by_their_names() -> None:
    assert MASKS.properties({"CARD": "1", "TAGS": "a"}) == {"CARD": "******", "TAGS": "a"}


def test_a_filter_cannot_find_out_what_is_masked() -> None:
    body = json.dumps(NESTED).encode()
    assert not MASKS.filter(SECRET, "").matches(body)
    assert not MASKS.filter("", f"$.user.Password={SECRET}").matches(body)
    assert MASKS.filter("ada", "$.n=1").matches(body)


@given(
    st.recursive(st.none() | st.text(), lambda deeper: st.dictionaries(st.text(), deeper) | st.lists(deeper))
)
def test_no_value_below_a_masked_field_is_left(inner: object) -> None:
    masked = json.loads(MASKS.body(json.dumps([{"password": {"deep": [SECRET, inner]}}]).encode()))
    assert masked == [{"password": "******"}]


def test_packed_bodies_are_masked_too() -> None:
    masked = MASKS.body(msgspec.msgpack.encode(NESTED))
    assert SECRET.encode() not in masked
    assert json.loads(masked)["user"] == {"Password": "******", "name": "ada"}
    odd_keys = MASKS.body(msgspec.msgpack.encode({"password": SECRET, "m": {b"k": 1, (1, 2): 2}}))
    assert json.loads(odd_keys)["password"] == "******"
    harmless = msgspec.msgpack.encode({"n": 1, "raw": b"\xff"})
    assert MASKS.body(harmless) == harmless
