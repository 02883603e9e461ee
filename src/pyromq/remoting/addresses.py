"""Addresses as text: `ip:port`, IPv6 in brackets."""

from ipaddress import IPv6Address, ip_address
from typing import Any

from pyromq.errors import ConnectFailed

_PORT_DIGITS = 5


def format_address(host: str, port: int) -> str:
    """The text of an address; an IPv4-mapped IPv6 address is written as IPv4."""
    if ":" not in host:
        return f"{host}:{port}"
    plain = IPv6Address(host.partition("%")[0])
    if plain.ipv4_mapped is not None:
        return f"{plain.ipv4_mapped}:{port}"
    return f"[{host}]:{port}"


def format_socket_address(name: Any) -> str:
    """The text of an address of the socket module; anything but TCP is just turned into text."""
    if isinstance(name, tuple) and len(name) >= 2:
        return format_address(name[0], name[1])
    return str(name or "unknown")


def parse_address(address: str) -> tuple[str, int]:
    host, separator, port = address.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
        valid = _is_ipv6(host)
    else:
        valid = bool(host) and ":" not in host
    is_number = port.isascii() and port.isdigit() and len(port) <= _PORT_DIGITS
    if not (separator and valid and is_number and 0 < int(port) < 65536):
        raise ConnectFailed(f"{address!r} is not an address; expected host:port or [IPv6]:port")
    return host, int(port)


def _is_ipv6(host: str) -> bool:
    try:
        return ip_address(host.partition("%")[0]).version == 6
    except ValueError:
        return False
