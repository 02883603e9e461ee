"""Servers and dialers for the length of a `with` block."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import fields
from typing import Any

from tests.support.echo_service import EchoService

from pyromq.remoting.addresses import format_address
from pyromq.remoting.connection_group import ConnectionTerms
from pyromq.remoting.dialer import Dialer
from pyromq.remoting.server import Server


def _terms(options: dict[str, Any]) -> ConnectionTerms:
    """The options about connections, taken out of all options."""
    names = [each.name for each in fields(ConnectionTerms) if each.name in options]
    return ConnectionTerms(**{name: options.pop(name) for name in names})


@asynccontextmanager
async def serving(service: EchoService, *, host: str = "127.0.0.1", **options: Any) -> AsyncIterator[Server]:
    server = Server(service.routes(), _terms(options), **options)
    await server.start(host, 0)
    try:
        yield server
    finally:
        await server.stop(grace_s=0)


@asynccontextmanager
async def dialing(**options: Any) -> AsyncIterator[Dialer]:
    dialer = Dialer(_terms(options), **options)
    try:
        yield dialer
    finally:
        await dialer.close()


def address_of(server: Server) -> str:
    return format_address(*server.address)
