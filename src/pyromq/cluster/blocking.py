"""Asking name servers from a thread that may wait."""

from typing import TypeVar

from pyromq.cluster.name_servers import NameServers
from pyromq.protocol.catalogue import Answer, Request
from pyromq.remoting.blocking_link import Links

A = TypeVar("A", bound=Answer)


def ask(name_servers: NameServers, links: Links, request: Request[A]) -> A:
    """Ask one, and the others if it fails; the last failure is raised when all have failed."""
    asked = name_servers.round()
    for address in asked:
        with asked, links.borrow(address) as link:
            return link.call(request)
    raise asked.failure()
