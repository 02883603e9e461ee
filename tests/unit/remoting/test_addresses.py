"""Addresses are `host:port`, IPv6 in brackets."""

import pytest

from pyromq.errors import ConnectFailed
from pyromq.remoting.addresses import format_address, format_socket_address, parse_address


@pytest.mark.parametrize(
    ("host", "port", "text"),
    [
        ("127.0.0.1", 9876, "127.0.0.1:9876"),
        ("::1", 9876, "[::1]:9876"),
        ("::ffff:192.0.2.1", 1, "192.0.2.1:1"),
        ("fe80::1%eth0", 2, "[fe80::1%eth0]:2"),
        ("broker-a", 10911, "broker-a:10911"),
    ],
)
def test_an_address_is_written(host: str, port: int, text: str) -> None:
    assert format_address(host, port) == text


def test_whatever_a_socket_calls_its_peer_can_be_written() -> None:
    assert format_socket_address(("::1", 5, 0, 0)) == "[::1]:5"
    assert format_socket_address(None) == "unknown"


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [("127.0.0.1:9876", "127.0.0.1", 9876), ("[::1]:5", "::1", 5), ("broker-a:10911", "broker-a", 10911)],
)
def test_an_address_is_read(text: str, host: str, port: int) -> None:
    assert parse_address(text) == (host, port)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "host",
        ":1",
        "host:",
        "host:0",
        "host:65536",
        "host:-1",
        "host:x",
        "::1:5",
        "[host]:5",
        "[::1]",
        "h:²",
    ],
)
def test_what_is_no_address_is_said_to_be_none(text: str) -> None:
    with pytest.raises(ConnectFailed, match="is not an address"):
        parse_address(text)
