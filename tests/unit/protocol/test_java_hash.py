"""Java's string hash, against values that Java printed and against its definition."""

import pytest

from pyromq.protocol.java_hash import java_string_hash, tag_code


def hash_by_definition(text: str) -> int:
    total = 0
    data = text.encode("utf-16-be", "surrogatepass")
    for high, low in zip(data[::2], data[1::2], strict=True):
        total = (total * 31 + (high << 8 | low)) & 0xFFFFFFFF
    return total - (1 << 32) if total & 0x80000000 else total


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", 0),
        ("TagA", 2598919),
        ("TagB", 2598920),
        ("order", 106006350),
        ("中文", 646394),
        ("polygenelubricants", -2147483648),
    ],
)
def test_known_hashes(text: str, expected: int) -> None:
    assert java_string_hash(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "é",
        "\xff" * 7,
        "😀",
        "a😀b",
        "\ud800",
        "x" * 255,
        "x" * 256,
        "x" * 257,
        "ab" * 400,
        "中" * 1000,
        "😀" * 300,
    ],
)
def test_hash_follows_the_definition_for_every_width_and_length(text: str) -> None:
    assert java_string_hash(text) == hash_by_definition(text)


@pytest.mark.parametrize(("tag", "code"), [(None, 0), ("", 0), ("TagA", 2598919), ("中文", 646394)])
def test_tag_code_is_the_hash_and_zero_for_no_tag(tag: str | None, code: int) -> None:
    assert tag_code(tag) == code


@pytest.mark.parametrize("head", ["", "TopicTest#", "中文😀", "y" * 300])
@pytest.mark.parametrize("tail", ["", "k", "中文", "x" * 600])
def test_hashing_goes_on_from_the_hash_of_the_head(head: str, tail: str) -> None:
    assert java_string_hash(tail, java_string_hash(head)) == java_string_hash(head + tail)
