"""Ports that stay ours while servers come and go: bound by a socket that never listens.

Where nobody listens, connecting is refused, and no other process gets the port meanwhile. A server that takes
it says SO_REUSEADDR, as ours do.
"""

import errno
import socket
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager

from pyromq.errors import StateError

_TRIES = 100
_HIGHEST = 65535


@contextmanager
def held_port(distances: Sequence[int] = (0,), host: str = "127.0.0.1") -> Iterator[int]:
    """A port of the system's choice; it and those at these distances from it are held while the block runs.

    Only Linux lets one socket hold a port and another listen there. Elsewhere this is 0: the system chooses
    when a server starts, and whoever comes first may have the port between two starts.
    """
    if sys.platform != "linux":
        yield 0
        return
    for _ in range(_TRIES):
        with ExitStack() as held:
            port = _hold(held, host, 0)
            if _hold_all(held, host, [port + distance for distance in distances if distance]):
                yield port
                return
    raise StateError(f"no port on {host} was free with those at the distances {list(distances)}")


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
    # Said earlier, it would let in those who hold the port already.
    holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    found: int = holder.getsockname()[1]
    return found
