"""Sets of addresses as operators write them: `10.0.0.5, 10.1.0.0/16, fd00::/8`."""

from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Self

from pyromq.errors import ConfigError


class Networks:
    """`host in networks`; an IPv4-mapped IPv6 address counts as IPv4."""

    def __init__(self, networks: tuple[IPv4Network | IPv6Network, ...] = ()) -> None:
        self._networks = networks

    @classmethod
    def parse(cls, text: str, *, key: str) -> Self:
        """Parse addresses and networks, separated by commas; raises ConfigError that names `key`."""
        try:
            return cls(tuple(ip_network(each.strip()) for each in text.split(",") if each.strip()))
        except ValueError as problem:
            raise ConfigError(
                key, text, f"IP addresses or networks, separated by commas ({problem})"
            ) from None

    def __repr__(self) -> str:
        return f"<Networks {','.join(map(str, self._networks))}>"

    def __contains__(self, host: object) -> bool:
        address = plain_address(str(host))
        return address is not None and any(address in network for network in self._networks)


def plain_address(host: str) -> IPv4Address | IPv6Address | None:
    """The IP address of a socket's peer; None if `host` is not an IP address."""
    try:
        address = ip_address(host.partition("%")[0])
    except ValueError:
        return None
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        return address.ipv4_mapped
    return address


def is_loopback(host: str) -> bool:
    """Whether a server that listens there can be reached from this machine only."""
    address = plain_address(host)
    return address.is_loopback if address is not None else host == "localhost"
