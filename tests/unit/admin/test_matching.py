import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.chance import examples

from pyromq.admin.matching import BodyFilter, parse_json_path
from pyromq.errors import ConfigError


@pytest.mark.parametrize(
    ("path", "body", "matches"),
    [
        ("$.id=7", b'{"id": 7}', True),
        ("$.id=7", b'{"id": "7"}', False),
        ('$.id="7"', b'{"id": "7"}', True),
        ("$.id=A-7", b'{"id": "A-7"}', True),
        ("$.a.b[1].c=null", b'{"a": {"b": [0, {"c": null}]}}', True),
        ("$[0]=1", b"[1]", True),
        ("$[1]=1", b"[1]", False),
        ("$.a=1", b'{"a": true}', False),
        ("$.a=true", b'{"a": 1}', False),
        ("$.a=1", b"not json", False),
        ("$=1", b"1", True),
        ("$.a=1", b'["a"]', False),
    ],
)
def test_a_value_at_a_path_of_a_json_body(path: str, body: bytes, matches: bool) -> None:
    assert BodyFilter(json_path=path).matches(body) is matches


def test_a_text_is_found_in_any_case_and_both_filters_must_hold() -> None:
    assert BodyFilter("GRÜSSE").matches("viele Grüße".encode())
    assert not BodyFilter("x").matches(b"\xff\xfe")
    assert BodyFilter("seven", "$.n=7").matches(b'{"n": 7, "w": "seven"}')
    assert not BodyFilter("eight", "$.n=7").matches(b'{"n": 7, "w": "seven"}')
    assert BodyFilter().matches(b"")


@pytest.mark.parametrize("text", ["x", "id=7", "$.id", "$..a=1", "$[x]=1", "$.a b]=1", "$[-1]=2"])
def test_what_is_no_path_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="a path and a value"):
        parse_json_path(text)


@given(st.dictionaries(st.text("abc", min_size=1), st.integers() | st.text() | st.booleans(), min_size=1))
@settings(max_examples=examples(50))
def test_every_value_of_an_object_is_found_at_its_path(body: dict[str, object]) -> None:
    for key, value in body.items():
        path = f"$.{key}={msgspec.json.encode(value).decode()}"
        assert BodyFilter(json_path=path).matches(msgspec.json.encode(body))
