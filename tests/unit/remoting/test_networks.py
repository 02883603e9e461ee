"""Sets of addresses, as settings name them."""

import pytest

from pyromq.errors import ConfigError
from pyromq.remoting.networks import Networks, is_loopback


@pytest.mark.parametrize(
    ("text", "host", "is_in"),
    [
        ("", "127.0.0.1", False),
        ("10.0.0.5", "10.0.0.5", True),
        ("10.0.0.5", "10.0.0.6", False),
        (" 10.0.0.5 , 10.1.0.0/16 ", "10.1.255.1", True),
        ("10.1.0.0/16", "10.2.0.1", False),
        ("10.1.0.0/16", "::ffff:10.1.2.3", True),
        ("::ffff:0:0/96", "10.1.2.3", False),
        ("fd00::/8", "fd12::1", True),
        ("fd00::/8", "10.1.2.3", False),
        ("fe80::/10", "fe80::1%eth0", True),
        ("0.0.0.0/0,::/0", "not an address", False),
        ("0.0.0.0/0,::/0", "", False),
    ],
)
def test_an_address_is_in_or_not(text: str, host: str, is_in: bool) -> None:
    assert (host in Networks.parse(text, key="k")) is is_in


@pytest.mark.parametrize("text", ["localhost", "10.0.0.0/33", "10.0.0.1/8", "10.0.0.1;10.0.0.2", "1"])
def test_what_is_no_address_is_told(text: str) -> None:
    with pytest.raises(ConfigError, match=r"k=.*separated by commas"):
        Networks.parse(text, key="k")


@pytest.mark.parametrize(
    ("host", "is_local"),
    [
        ("127.0.0.1", True),
        ("127.8.9.1", True),
        ("::1", True),
        ("::ffff:127.0.0.1", True),
        ("localhost", True),
        ("0.0.0.0", False),
        ("::", False),
        ("", False),
        ("10.0.0.1", False),
    ],
)
def test_only_this_machine_reaches_a_loopback_address(host: str, is_local: bool) -> None:
    assert is_loopback(host) is is_local
