"""Reserves ports while servers stop and start again: a socket binds the port and never listens.

While no server listens, connections are refused, and no other process gets the port. A server on a reserved
port must set SO_REUSEADDR, as ours do.
"""

import errno
import random
import socket
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from pyromq.errors import StateError

_TRIES = 200
_LOWEST, _HIGHEST = 10_000, 65_535
_CLIENT_PORTS = Path("/proc/sys/net/ipv4/ip_local_port_range")


@contextmanager
def held_port(distances: Sequence[int] = (0,), host: str = "127.0.0.1") -> Iterator[int]:
    """A port chosen by the system; it and those at these distances from it are reserved during the block.

    Only Linux lets one socket hold a port and another listen on it. Elsewhere this is 0: the system chooses
    when a server starts, and another process may take the port between two starts.
    """
    if sys.platform != "linux":
        yield 0
        return
    others = [distance for distance in distances if distance]
    for number in range(_TRIES):
        with ExitStack() as held:
            # Closed connections keep their ports for a minute: several free ones side by side may not be
            # found among the ports that clients get.
            if others and number % 2:
                port = random.randrange(_LOWEST, _end_of_server_ports())
                wanted = [port, *(port + distance for distance in others)]
            else:
                port = _hold(held, host, 0)
                wanted = [port + distance for distance in others]
            if _hold_all(held, host, wanted):
                yield port
                return
    raise StateError(f"no free port on {host} together with those at the distances {list(distances)}")


def _end_of_server_ports() -> int:
    """The system gives clients ports from here on."""
    with suppress(OSError, ValueError):
        return max(int(_CLIENT_PORTS.read_text().split()[0]), _LOWEST + 1)
    return _HIGHEST


def _hold_all(held: ExitStack, host: str, ports: list[int]) -> bool:
    try:
        for port in ports:
            if not 0 < port <= _HIGHEST:
                return False
            _hold(held, host, port)
    except OSError as problem:
        if problem.errno != errno.EADDRINUSE:
            raise
        return False
    return True


def _hold(held: ExitStack, host: str, port: int) -> int:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    holder = held.enter_context(socket.socket(family, socket.SOCK_STREAM))
    holder.bind((host, port))
    # Set before bind, it would allow a port that another socket already holds.
    holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    found: int = holder.getsockname()[1]
    return found
