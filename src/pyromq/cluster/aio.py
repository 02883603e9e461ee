"""Asking name servers from an event loop."""

import asyncio
from collections.abc import Awaitable
from typing import Protocol, TypeVar

from pyromq.cluster.name_servers import NameServers
from pyromq.protocol.catalogue import Answer, Request

A = TypeVar("A", bound=Answer)


class CallServer(Protocol):
    def __call__(self, address: str, request: Request[A], timeout_s: float) -> Awaitable[A]: ...


async def ask(name_servers: NameServers, call: CallServer, request: Request[A], timeout_s: float) -> A:
    """Ask one, and the others if it fails; the last failure is raised when all have failed."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + timeout_s
    asked = name_servers.round()
    for address in asked:
        share_s = (deadline - loop.time()) / asked.left
        if share_s <= 0:
            break
        with asked:
            return await call(address, request, share_s)
    raise asked.failure()
