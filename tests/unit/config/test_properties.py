"""Java's properties text, as java.util.Properties defines it."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyromq.config import properties
from pyromq.errors import ConfigError


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("listenPort=9876", {"listenPort": "9876"}),
        ("listenPort = 9876", {"listenPort": "9876"}),
        ("listenPort:9876", {"listenPort": "9876"}),
        ("listenPort 9876", {"listenPort": "9876"}),
        ("listenPort\t:\f9876", {"listenPort": "9876"}),
        ("  listenPort=9876", {"listenPort": "9876"}),
        ("a==b", {"a": "=b"}),
        ("a= b c ", {"a": "b c "}),
        ("a", {"a": ""}),
        ("=b", {"": "b"}),
        ("", {}),
        ("# a=1\n! b=2\n   # c=3\nd=4", {"d": "4"}),
        ("a=1\r\nb=2\rc=3\n", {"a": "1", "b": "2", "c": "3"}),
        ("a=1\na=2", {"a": "2"}),
        ("a=1,\\\n    2,\\\n    3\nb=4", {"a": "1,2,3", "b": "4"}),
        ("a=1\\\\\nb=2", {"a": "1\\", "b": "2"}),
        ("a=1\\\n\nb=2", {"a": "1", "b": "2"}),
        ("a=1\\\n# not a comment", {"a": "1# not a comment"}),
        ("# a comment does not continue\\\na=1", {"a": "1"}),
        ("a=1\\", {"a": "1"}),
        ("a\\=b\\:c\\ d=e", {"a=b:c d": "e"}),
        ("a=\\t\\n\\r\\f\\\\\\q", {"a": "\t\n\r\f\\q"}),
        ("a=\\u4e2d\\u6587", {"a": "中文"}),
        ("a=\\ud83d\\ude80", {"a": "🚀"}),
        ("a=\\u12345", {"a": "\u1234" + "5"}),
    ],
)
def test_text_is_read_as_java_reads_it(text: str, values: dict[str, str]) -> None:
    assert properties.parse(text) == values


@pytest.mark.parametrize("text", ["a=\\u12", "a=\\uzzzz", "a\\u=1"])
def test_a_broken_escape_names_its_line(text: str) -> None:
    with pytest.raises(ConfigError, match=r"line 2.*hexadecimal"):
        properties.parse("first=1\n" + text)


TEXTS = st.dictionaries(
    st.text(st.characters(exclude_categories=["Cs"]), min_size=1),
    st.text(st.characters(exclude_categories=["Cs"])),
)


@given(TEXTS)
def test_what_is_written_reads_back_the_same(values: dict[str, str]) -> None:
    text = properties.render(values)
    assert text.isascii()
    assert properties.parse(text) == values


@given(st.text(alphabet="ab\\u01=: \t\n\r#!"))
def test_no_text_raises_anything_but_a_config_error(text: str) -> None:
    try:
        properties.parse(text)
    except ConfigError:
        assert "\\u" in text


def test_a_file_may_be_utf8_or_latin1(tmp_path: Path) -> None:
    path = tmp_path / "namesrv.properties"
    path.write_bytes("productEnvName=中文\n".encode())
    assert properties.read(path) == {"productEnvName": "中文"}
    path.write_bytes("productEnvName=süd\n".encode("iso-8859-1"))
    assert properties.read(path) == {"productEnvName": "süd"}


def test_a_missing_file_is_a_config_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="No such file"):
        properties.read(tmp_path / "absent.conf")


def test_a_broken_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "broken.conf"
    path.write_text("a=\\u1")
    with pytest.raises(ConfigError) as caught:
        properties.read(path)
    assert caught.value.__notes__ == [f"in {path}"]


WRITTEN_BY_HAND = """\
# Our broker
brokerName = broker-a

! sizes
maxMessageSize: \\
    4194304
autoCreateTopicEnable true"""


def test_rewriting_keeps_comments_order_and_other_lines() -> None:
    rewritten = properties.rewrite(WRITTEN_BY_HAND, {"maxMessageSize": "100", "slaveReadEnable": "true"})
    assert rewritten == (
        "# Our broker\nbrokerName = broker-a\n\n! sizes\nmaxMessageSize=100\n"
        "autoCreateTopicEnable true\nslaveReadEnable=true\n"
    )


def test_rewriting_a_value_as_it_is_changes_nothing() -> None:
    assert properties.rewrite(WRITTEN_BY_HAND, {"brokerName": "broker-a"}) == WRITTEN_BY_HAND


def test_rewriting_changes_the_last_of_several_equal_keys_because_it_counts() -> None:
    assert properties.rewrite("a=1\r\nb=2\r\na=3\r\n", {"a": "4"}) == "a=1\r\nb=2\r\na=4\r\n"


@given(values=TEXTS, changes=TEXTS)
def test_a_rewritten_text_has_the_changed_values_and_all_others(
    values: dict[str, str], changes: dict[str, str]
) -> None:
    rewritten = properties.rewrite(properties.render(values), changes)
    assert properties.parse(rewritten) == {**values, **changes}
