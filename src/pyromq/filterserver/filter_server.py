"""Assembles the filter server, starts it and stops it. The rules are in the parts."""

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Final

import pyromq.protocol.requests  # noqa: F401  (fills the catalogue)
from pyromq.clock import Clock, SystemClock
from pyromq.cluster.local_address import local_address
from pyromq.cluster.server_dialer import server_dialer
from pyromq.errors import ConfigError
from pyromq.filterserver.confinement import why_not
from pyromq.filterserver.exchange import FilterSource
from pyromq.filterserver.filter_process import FilterFailed, FilterProcess
from pyromq.filterserver.filtered_broker import FilteredBroker
from pyromq.filterserver.filters import Filters
from pyromq.filterserver.metering import FilterMetering
from pyromq.filterserver.pulls import FilteredPulls
from pyromq.filterserver.settings import FilterServerSettings
from pyromq.filterserver.uploads import Uploads
from pyromq.metrics import Metrics
from pyromq.protocol.catalogue import FILTER_SERVER
from pyromq.remoting.access.keeping import AccessRules
from pyromq.remoting.addresses import format_address
from pyromq.remoting.connection_group import ConnectionTerms
from pyromq.remoting.exporters import exporters
from pyromq.remoting.ports import Ports
from pyromq.remoting.program import Program, Work
from pyromq.remoting.routing import Routes
from pyromq.remoting.security_metrics import register_security
from pyromq.remoting.server import Server

UNSERVED: dict[int, str] = {}
"""Requests to a filter server that are not supported, by code, with the reason."""

_EVERYWHERE = ("", "0.0.0.0", "::")

_ATTEMPTS: Final = """
import ctypes, os

def refused(attempt, *arguments):
    try:
        return attempt(*arguments) == -1
    except PermissionError:
        return True

try:
    bytearray(MEMORY_BYTES)
except MemoryError:
    pass
else:
    raise PermissionError("the kernel lets filters have any amount of memory")
libc = ctypes.CDLL(None)
opened = refused(os.open, "/", os.O_RDONLY), refused(libc.socket, 2, 1, 0), refused(os.fork)
if not all(opened):
    raise PermissionError("the kernel lets filters open files, sockets or processes")

def match(message, context):
    return True
"""
"""A filter that tries what no filter may do."""


class FilterServer(Program):
    """`async with FilterServer(settings) as server: server.address`."""

    NAME = "filter server"

    def __init__(
        self, settings: FilterServerSettings, *, clock: Clock | None = None, ports: Ports | None = None
    ) -> None:
        self._clock: Clock = clock if clock is not None else SystemClock()
        address, pages = (settings.metrics_address, settings.metrics_port), {"/ready": self._ready}
        super().__init__(exporters(settings, settings.PART, address, pages, self._clock))
        self._settings = settings
        self._ports = ports if ports is not None else Ports()
        self._metering = FilterMetering(settings.metric_labels)
        self._dialer = server_dialer(settings, self._clock)
        self.access = AccessRules(settings, self._clock, directory=settings.auth_config_path or Path())
        register_security(self._metering.metrics, self.access.refused, settings.tls_cert_path)
        self._link = FilteredBroker(self._dialer, settings.broker_address)
        self.filters = Filters(settings, self._clock, self._metering)
        self.routes = Routes(
            Uploads(settings, self.filters, self._link),
            FilteredPulls(self.filters, self._dialer, settings.broker_address, self._clock, self._metering),
            serving=FILTER_SERVER,
            unserved=UNSERVED,
        )
        self._server = Server(
            self.routes,
            ConnectionTerms(
                limits=settings.limits,
                clock=self._clock,
                observer=self._metering,
                admission=self.access.control,
                form=settings.header_form,
            ),
            tls=settings.tls_server(self._clock),
            trusted_proxies=settings.trusted_proxies,
        )

    def __repr__(self) -> str:
        return f"<FilterServer {self._server!r} {self._link!r}>"

    @property
    def address(self) -> tuple[str, int]:
        """The address it listens on; raises StateError before the start."""
        return self._server.address

    @property
    def advertised_address(self) -> str:
        """The address that consumers get."""
        return self._link.own_address

    async def _open(self, opened: AsyncExitStack) -> None:
        settings = self._settings
        if settings.takes_filters:
            await self._check_confinement()
        opened.push_async_callback(self._dialer.close)
        opened.push_async_callback(self.filters.close)
        taken = settings.take_port(self._ports, settings.listen_port)
        try:
            await self._server.listen(taken, settings.socket_backlog)
        except BaseException:
            taken.close()
            raise
        host = local_address() if settings.bind_address in _EVERYWHERE else settings.bind_address
        self._link.own_address = format_address(settings.host or host, self._server.address[1])

    async def _check_confinement(self) -> None:
        """Try once what filters may not do: whoever allows filters must know that they are confined."""
        problem, limits = why_not(), self._settings.filter_limits
        source = _ATTEMPTS.replace("MEMORY_BYTES", str(limits.memory_bytes))
        if problem is None:
            try:
                process = await FilterProcess.start(limits)
                try:
                    await process.load(FilterSource("", "", "a try", source.encode()))
                finally:
                    await process.end()
            except FilterFailed as failure:
                problem = str(failure)
        if problem is not None:
            raise ConfigError("clientUploadFilterClassEnable", "true", f"false, because {problem}")

    async def _settle(self) -> None:
        await self._link.register()

    def _work(self) -> Work:
        return {"filter server": self._run()}

    async def _run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._link.run(), name="registration")
            tasks.create_task(self.filters.run(), name="filters")
            tasks.create_task(self.access.run(), name="access rules")

    async def _drain(self) -> None:
        await self._server.stop(self._settings.shutdown_wait_seconds)

    def _measured(self) -> Metrics:
        return self._metering.metrics

    def _described(self) -> str:
        return f"address={format_address(*self.address)} advertised={self.advertised_address}"

    def _ready(self) -> tuple[int, str]:
        link = self._link
        if not link.is_registered:
            return 503, f"not registered at the broker {self._settings.broker_address}\n"
        return 200, f"ready, registered at {link.broker_name}\n"
