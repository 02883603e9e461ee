from typing import Any

import pytest
from starlette.requests import HTTPConnection

from pyromq.console.security.origin import Origins, has_token, why_forged
from pyromq.console.settings import ConsoleSettings
from pyromq.errors import ConfigError


def connection(client: str = "127.0.0.1", scheme: str = "http", **headers: str) -> HTTPConnection:
    sent = [(name.replace("_", "-").encode(), text.encode()) for name, text in headers.items()]
    return HTTPConnection(
        {
            "type": "http",
            "scheme": scheme,
            "path": "/",
            "query_string": b"",
            "headers": sent,
            "client": (client, 1),
            "server": ("127.0.0.1", 8088),
        }
    )


def origins(**settings: Any) -> Origins:
    return Origins(ConsoleSettings(**settings))


@pytest.mark.parametrize(
    ("host", "is_ours"),
    [
        ("127.0.0.1:8088", True),
        ("localhost:8088", True),
        ("LOCALHOST", True),
        ("[::1]:8088", True),
        ("evil.example", False),
        ("127.0.0.1.evil.example:8088", False),
        ("", False),
    ],
)
def test_a_foreign_host_is_refused_on_loopback_too(host: str, is_ours: bool) -> None:
    known = origins()
    assert known.is_ours(known.of(connection(host=host))) is is_ours


def test_other_names_are_listed() -> None:
    known = origins(allowed_hosts="mq.example, other.example", bind_address="10.0.0.5")
    for host in ("mq.example", "OTHER.example:443", "10.0.0.5:8088"):
        assert known.is_ours(known.of(connection("10.0.0.9", host=host)))
    assert not known.is_ours(known.of(connection("10.0.0.9", host="localhost")))


def test_a_user_is_believed_of_trusted_proxies_alone_and_of_one_header_alone() -> None:
    known = origins(trusted_proxies="10.0.0.0/8", user_header="X-User")
    assert known.of(connection("10.0.0.9", x_user=" ada ")).user == "ada"
    assert known.of(connection("192.0.2.7", x_user="ada")).user == ""
    assert origins(trusted_proxies="10.0.0.0/8").of(connection("10.0.0.9", x_user="ada")).user == ""
    twice = connection("10.0.0.9", x_user="ada")
    twice.scope["headers"].append((b"x-user", b"admin"))
    assert known.of(twice).user == ""
    with pytest.raises(ConfigError, match="trustedProxies"):
        origins(user_header="X-User")


def test_forwarded_headers_count_only_from_trusted_proxies() -> None:
    known = origins(trusted_proxies="10.0.0.0/8", allowed_hosts="mq.example")
    sent = {
        "host": "inner:8088",
        "x_forwarded_proto": "https",
        "x_forwarded_host": "mq.example",
        "x_forwarded_for": "6.6.6.6, 192.0.2.7",
    }
    trusted = known.of(connection("10.1.2.3", **sent))
    assert (str(trusted), trusted.client) == ("https://mq.example", "192.0.2.7")
    assert known.is_ours(trusted)
    stranger = known.of(connection("192.0.2.7", **sent))
    assert str(stranger) == "http://inner:8088"
    assert not known.is_ours(stranger)


@pytest.mark.parametrize(
    ("headers", "is_forged"),
    [
        ({"sec_fetch_site": "same-origin"}, False),
        ({"sec_fetch_site": "same-site"}, True),
        ({"sec_fetch_site": "cross-site", "origin": "http://localhost:8088"}, True),
        ({"sec_fetch_site": "none"}, True),
        ({"origin": "http://localhost:8088"}, False),
        ({"origin": "https://localhost:8088"}, True),
        ({"origin": "http://localhost:9999"}, True),
        ({"origin": "null"}, True),
        ({}, True),
    ],
)
def test_a_write_must_come_from_our_own_page(headers: dict[str, str], is_forged: bool) -> None:
    asked = connection(host="localhost:8088", **headers)
    assert (why_forged(asked, origins().of(asked)) is not None) is is_forged


def test_a_token_must_be_the_same() -> None:
    assert has_token("abc", "abc")
    assert not has_token("abd", "abc")
    assert not has_token(None, "abc")
    assert not has_token("é", "abc")
