"""Which addresses the patterns of access files mean."""

import pytest

from pyromq.errors import ConfigError
from pyromq.security.address_patterns import AddressPattern, host_of, is_in_network


def pattern(text: str) -> AddressPattern:
    return AddressPattern.parse(text, key="whiteRemoteAddress")


@pytest.mark.parametrize(
    ("text", "inside", "outside"),
    [
        ("10.1.2.3", ["10.1.2.3", "::ffff:10.1.2.3"], ["10.1.2.4", "", "::a01:203"]),
        ("*", ["10.1.2.3", "::1", "anything"], []),
        ("*.*.*.*", ["10.1.2.3"], []),
        ("10.1.2.*", ["10.1.2.0", "10.1.2.255"], ["10.1.3.0", "110.1.2.1"]),
        ("10.1.*", ["10.1.9.9"], ["10.2.0.1"]),
        ("10.1.*.*", ["10.1.9.9"], ["10.2.0.1"]),
        ("10.1.2.5-9", ["10.1.2.5", "10.1.2.9"], ["10.1.2.4", "10.1.2.10"]),
        ("10.1.5-9.*", ["10.1.5.0", "10.1.9.77"], ["10.1.4.1", "10.1.10.1"]),
        ("10.1.2.{3,5}", ["10.1.2.3", "10.1.2.5"], ["10.1.2.4"]),
        ("10.1.2.3,10.9.9.9", ["10.1.2.3", "10.9.9.9"], ["10.1.2.9"]),
        ("1:2:3:4:5:6:7:8", ["1:2:3:4:5:6:7:8"], ["1:2:3:4:5:6:7:9", "10.1.2.3"]),
        ("2::ac5:78:1-200:*", ["2::ac5:78:1:ffff", "2::ac5:78:200:0"], ["2::ac5:78:201:0"]),
        ("2::ac5:78:1-200", ["2::ac5:78:1f"], ["2::ac5:78:201", "2::ac5:79:1"]),
        ("2::ac5:{1,9}", ["2::ac5:9"], ["2::ac5:2"]),
        ("::1", ["::1", "0:0:0:0:0:0:0:1"], ["::2", "127.0.0.1"]),
        ("", [], ["10.1.2.3", ""]),
    ],
)
def test_a_pattern_means_these_addresses_and_no_others(
    text: str, inside: list[str], outside: list[str]
) -> None:
    assert [host for host in inside if not pattern(text).matches(host)] == []
    assert [host for host in outside if pattern(text).matches(host)] == []


@pytest.mark.parametrize(
    "text", ["10.1.2", "10.1.2.256", "10.1.2.9-5", "-5.1.2.3", "a.b.c.d", "10.1.2{3,5}", "1::g", "10.1.2.3,x"]
)
def test_a_pattern_that_means_nothing_is_refused_with_its_text(text: str) -> None:
    with pytest.raises(ConfigError, match="whiteRemoteAddress"):
        pattern(text)


def test_networks_are_addresses_or_cidr() -> None:
    assert is_in_network("10.9.1.1", "10.0.0.0/8")
    assert is_in_network("::ffff:10.9.1.1", "10.9.1.1")
    assert not is_in_network("11.0.0.1", "10.0.0.0/8")
    assert not is_in_network("nobody", "10.0.0.0/8")


def test_the_host_of_an_address() -> None:
    assert [host_of(each) for each in ("10.1.2.3:10911", "[::1]:10911")] == ["10.1.2.3", "::1"]
