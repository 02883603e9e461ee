"""The address under which other machines reach this one, as far as it can tell."""

import socket

_SOMEWHERE = ((socket.AF_INET, "192.0.2.1"), (socket.AF_INET6, "2001:db8::1"))
"""Addresses reserved for documentation; only the local end of the route matters."""


def local_address() -> str:
    """IPv4 before IPv6, then the address of the host's name; no packet is sent to others."""
    for family, somewhere in _SOMEWHERE:
        try:
            with socket.socket(family, socket.SOCK_DGRAM) as probe:
                probe.connect((somewhere, 9))
                return str(probe.getsockname()[0])
        except OSError:
            continue
    try:
        return socket.gethostbyname(socket.gethostname())
    except OSError:
        return "127.0.0.1"
