"""Start and stop of a broker."""

import asyncio
import logging
import socket
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass

import pyromq.protocol.requests  # noqa: F401  (fills the catalogue)
from pyromq.broker.addresses import BrokerAddresses
from pyromq.broker.parts import BrokerParts, Given
from pyromq.broker.recovery_log import log_recovery
from pyromq.broker.replication.assembly import Replication
from pyromq.broker.services.tiering import Tiering
from pyromq.broker.settings import BrokerConfiguration, BrokerSettings, vip_port
from pyromq.broker.tables.all_tables import Tables
from pyromq.broker.tables.role import RoleTable
from pyromq.clock import Clock, SystemClock
from pyromq.config.live import LiveSettings
from pyromq.errors import StateError
from pyromq.filesystem import Files
from pyromq.metrics import Measured
from pyromq.remoting.access.keeping import AccessRules
from pyromq.remoting.admission import Admission
from pyromq.remoting.exporters import exporters
from pyromq.remoting.handshake import HttpFront
from pyromq.remoting.ports import Ports
from pyromq.remoting.program import Program, Work, end
from pyromq.remoting.routing import Routes
from pyromq.remoting.server import Server, ServerStatistics
from pyromq.store.message_store import MessageStore
from pyromq.store.statistics import StoreStatistics
from pyromq.tier.objects import Objects

_log = logging.getLogger(__name__)

_FIRST_ROLE_S = 5.0
"""A start waits this long for a controller; then the broker keeps waiting as a replica without a master."""
_PORT_TRIES = 20
"""Attempts to find a pair of free ports when the system chooses."""


@dataclass(frozen=True, slots=True)
class BrokerStatistics:
    store: StoreStatistics
    traffic: ServerStatistics
    topics: int
    groups: int
    held_pulls: int


class Broker(Program):
    """`async with Broker(configuration) as broker: broker.address`."""

    NAME = "broker"

    def __init__(
        self,
        configuration: BrokerConfiguration,
        *,
        clock: Clock | None = None,
        files: Files | None = None,
        ports: Ports | None = None,
        admission: Admission | None = None,
        http2: HttpFront | None = None,
        objects: Objects | None = None,
    ) -> None:
        """`files`: the file system for the store. `ports`: the network it listens on. `http2` serves HTTP/2
        on the broker's ports. `objects`: the object store of its tier, instead of the one in the settings.

        `admission` decides instead of the settings of access control.
        """
        settings = configuration.broker
        self._clock: Clock = clock if clock is not None else SystemClock()
        pages = {"/status": self._status, "/ready": self._ready}
        address = settings.metrics_address or settings.broker_ip1, settings.metrics_port
        super().__init__(exporters(settings, settings.PART, address, pages, self._clock))
        self._configuration = configuration
        self._files = files
        self._ports = ports if ports is not None else Ports()
        self._given = Given(admission, http2, objects)
        self._live = LiveSettings(settings)
        self._parts: BrokerParts | None = None

    def __repr__(self) -> str:
        state = repr(self._parts.server) if self._parts is not None else "not started"
        return f"<Broker {self.settings.broker_name} {state}>"

    @property
    def settings(self) -> BrokerSettings:
        return self._live.now

    @property
    def address(self) -> tuple[str, int]:
        """The main address it listens on; raises StateError before the start."""
        return self._started.server.address

    @property
    def addresses(self) -> list[tuple[str, int]]:
        """All addresses it listens on for clients."""
        return [server.address for server in self._started.servers]

    @property
    def advertised_address(self) -> str:
        """The address that clients use."""
        return self._started.advertised

    def server_at(self, address: str) -> Server | None:
        """The server that listens on an advertised address, for callers in the same process."""
        is_here = self._parts is not None and not self._is_stopping and address == self._parts.advertised
        return self._started.server if is_here else None

    @property
    def store(self) -> MessageStore:
        return self._started.store

    @property
    def tables(self) -> Tables:
        return self._started.tables

    @property
    def role(self) -> RoleTable:
        return self._started.tables.role

    @property
    def replication(self) -> Replication:
        return self._started.replication

    @property
    def tiering(self) -> Tiering | None:
        """The lake tier, if there is one."""
        return self._started.tiering

    @property
    def access(self) -> AccessRules:
        return self._started.access

    @property
    def routes(self) -> Routes:
        return self._started.routes

    @property
    def _started(self) -> BrokerParts:
        if self._parts is None:
            raise StateError("the broker is not started")
        return self._parts

    def statistics(self) -> BrokerStatistics:
        parts = self._started
        return BrokerStatistics(
            store=parts.store.statistics(),
            traffic=parts.server.statistics(),
            topics=len(parts.tables.topics),
            groups=len(parts.tables.groups),
            held_pulls=parts.held_pulls.held_count,
        )

    async def catch_up(self) -> None:
        """A test has let time pass: deliver what is due now, and ask about open transactions."""
        await self._started.catch_up()

    async def _open(self, opened: AsyncExitStack) -> None:
        store = await self._open_store()
        opened.callback(store.close)
        log_recovery(store.recovery)
        taken: list[socket.socket] = []
        try:
            taken += _take_ports(self._ports, self.settings)
            main, fast, ha = taken
            addresses = BrokerAddresses.of(self.settings, self._ports, _port_of(main), _port_of(ha))
            parts = BrokerParts(
                *(self._live, store, self._clock, addresses, self._given),
                is_metered=bool(self._exporters),
            )
            for server, port in zip(parts.servers, (main, fast), strict=True):
                await server.listen(port, self.settings.socket_backlog)
            await parts.replication.master.listen(ha)
        except BaseException:
            for port in taken:
                port.close()
            raise
        self._parts = parts
        opened.push_async_callback(parts.settings_file.close)
        opened.push_async_callback(parts.dialer.close)
        opened.callback(parts.close)

    def _work(self) -> Work:
        return {"broker": self._started.run(), "registration": self._started.registration.run()}

    async def _settle(self) -> None:
        parts = self._started
        if (session := parts.replication.session) is not None and not parts.replication.is_mirror:
            with suppress(TimeoutError):
                async with asyncio.timeout(_FIRST_ROLE_S):
                    await session.joined.wait()
        await parts.registration.wait_tried()

    def _measured(self) -> Measured | None:
        return self._started.metering

    def _described(self) -> str:
        return f"name={self.settings.broker_name} address={self.advertised_address}"

    def _status(self) -> tuple[int, str]:
        """The figures of `mqadmin brokerStatus`."""
        figures = self._started.brokers.all_figures()
        return 200, "".join(f"{name:<40}: {value}\n" for name, value in figures.items())

    def _ready(self) -> tuple[int, str]:
        parts = self._started
        if parts.store.faults:
            return 503, f"the store accepts no messages: {parts.store.statistics().fault_reason}\n"
        problem = parts.replication.problem
        return (503, f"{problem}\n") if problem else (200, "ready\n")

    async def _open_store(self) -> MessageStore:
        # Recovery may take long; a signal must be able to stop it.
        opening = asyncio.create_task(
            asyncio.to_thread(
                MessageStore.open,
                self._configuration.store,
                clock=self._clock,
                files=self._files,
                has_group=self.settings.controller_mode or self.settings.broker_role == "SLAVE",
            )
        )
        try:
            return await asyncio.shield(opening)
        except asyncio.CancelledError:
            # A thread cannot be cancelled: wait for the store and close it again.
            await asyncio.wait([opening])
            if opening.exception() is None:
                opening.result().close()
            raise

    async def _drain(self) -> None:
        """Unregister, and finish the requests in flight."""
        parts = self._started
        await end(self._background["registration"])
        await parts.registration.unregister()
        for server in parts.servers:
            server.start_draining()  # before held pulls are answered, or clients would pull again at once
        parts.release_held()
        parts.replication.table_changes.release()
        grace_s = self.settings.shutdown_wait_seconds
        await parts.durability.drained(grace_s)
        await parts.replication.leave()
        await asyncio.gather(*(server.stop(grace_s) for server in parts.servers))

    async def abandon(self) -> None:
        """Stop at once, like a crash: nothing is saved or unregistered, and the next start recovers."""
        if not self._begin_stop():
            return
        parts = self._started
        await end(*self._background.values())
        await parts.replication.master.close()
        for server in parts.servers:
            for connection in list(server.connections):
                connection.abort()
            await server.stop(0)
        parts.tables.abandon()
        parts.store.abandon()
        self._opened.pop_all()  # it would save everything
        await parts.dialer.close()
        await parts.settings_file.close()
        for exporter in self._exporters:
            await exporter.stop()
        self._stopped.set()


def _take_ports(ports: Ports, settings: BrokerSettings) -> list[socket.socket]:
    """The main port, the fast port two below it and the HA port; free ones if the system chooses."""
    for attempt in range(_PORT_TRIES):
        taken = [settings.take_port(ports, settings.listen_port)]
        try:
            taken.append(settings.take_port(ports, vip_port(_port_of(taken[0]))))
            taken.append(_take_ha_port(ports, settings, _port_of(taken[0]) + 1))
            return taken
        except OSError:
            for each in taken:
                each.close()
            if settings.listen_port or attempt == _PORT_TRIES - 1:
                raise
    raise StateError("no attempt was made")


def _take_ha_port(ports: Ports, settings: BrokerSettings, usual: int) -> socket.socket:
    """The usual port may be taken by anyone; replicas learn another one from the name server."""
    if settings.ha_listen_port:
        return settings.take_port(ports, settings.ha_listen_port)
    try:
        return settings.take_port(ports, usual)
    except OSError as problem:
        chosen = settings.take_port(ports, 0)
        _log.info("replicas connect to port %d, set haListenPort to choose it: %s", _port_of(chosen), problem)
        return chosen


def _port_of(taken: socket.socket) -> int:
    port: int = taken.getsockname()[1]
    return port
