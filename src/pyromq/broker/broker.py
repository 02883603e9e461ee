"""The broker put together: what knows whom, what starts and what stops. Nothing is decided here."""

import asyncio
import logging
import os
import random
import socket
from dataclasses import dataclass
from typing import Self

import pyromq.protocol.requests  # noqa: F401  (fills the catalogue)
from pyromq.broker.express import Road, express_road
from pyromq.broker.flow.appending import Appending
from pyromq.broker.flow.born_hosts import BornHosts
from pyromq.broker.flow.durability import Durability
from pyromq.broker.flow.held_pulls import HeldPulls
from pyromq.broker.flow.lanes import Lanes
from pyromq.broker.flow.outlets import Outlets
from pyromq.broker.flow.pressure import Pressure
from pyromq.broker.flow.reading import Reading
from pyromq.broker.flow.stamping import Stamp
from pyromq.broker.metering import Metering
from pyromq.broker.recovery_log import log_recovery
from pyromq.broker.services.brokers import Brokers
from pyromq.broker.services.delays import Delays
from pyromq.broker.services.groups import Groups
from pyromq.broker.services.inspection import Inspection
from pyromq.broker.services.membership import Membership
from pyromq.broker.services.offsets import Offsets
from pyromq.broker.services.ordering import Ordering
from pyromq.broker.services.protection import Protection
from pyromq.broker.services.pulling import Pulling
from pyromq.broker.services.queries import Queries
from pyromq.broker.services.registration import Registration
from pyromq.broker.services.replies import Replies
from pyromq.broker.services.retries import Retries
from pyromq.broker.services.sending import Sending
from pyromq.broker.services.topics import Topics
from pyromq.broker.services.upkeep import Upkeep
from pyromq.broker.settings import BrokerConfiguration, BrokerSettings, vip_port
from pyromq.broker.status_pages import StatusPages
from pyromq.broker.table_remarks import table_remarks
from pyromq.broker.tables.clients import ConsumerTable, ProducerTable
from pyromq.broker.tables.delay_offsets import DelayOffsetTable
from pyromq.broker.tables.filters import FilterTable
from pyromq.broker.tables.groups import GroupTable
from pyromq.broker.tables.offsets import OffsetTable
from pyromq.broker.tables.queue_locks import QueueLocks
from pyromq.broker.tables.role import Role, RoleTable
from pyromq.broker.tables.statistics import Statistics
from pyromq.broker.tables.topics import TopicTable, system_topics
from pyromq.broker.unserved import NOT_ON_THE_FAST_PORT, UNSERVED
from pyromq.clock import Clock, SystemClock
from pyromq.config.durable_file import DurableFile
from pyromq.config.live import LiveSettings
from pyromq.config.saving import Saving
from pyromq.errors import ConfigError, StateError, StoreError
from pyromq.protocol.catalogue import BROKER, CATALOGUE
from pyromq.protocol.direct import DirectHeaders
from pyromq.protocol.message_id import UniqueKeys
from pyromq.protocol.record import Host
from pyromq.remoting.addresses import format_address
from pyromq.remoting.admission import Admission
from pyromq.remoting.dialer import Dialer
from pyromq.remoting.routing import Routes
from pyromq.remoting.server import Server, ServerStatistics, listening_socket
from pyromq.remoting.slices import Slices
from pyromq.remoting.tls import TlsOptions
from pyromq.remoting.traffic import Express as ExpressRoad
from pyromq.store.filesystem import Files
from pyromq.store.message_store import MessageStore
from pyromq.store.statistics import StoreStatistics

_log = logging.getLogger(__name__)

_BUSIEST = (10, 310, 11)
"""Sends and pulls: their headers are read in one go."""

_TABLES = (
    "topics.json",
    "subscriptionGroup.json",
    "consumerOffset.json",
    "consumerFilter.json",
    "delayOffset.json",
)

_PORT_TRIES = 20
"""How often a pair of free ports is looked for when the system may choose."""


@dataclass(frozen=True, slots=True)
class BrokerStatistics:
    store: StoreStatistics
    traffic: ServerStatistics
    topics: int
    groups: int
    held_pulls: int


class Broker:
    """`async with Broker(configuration) as broker: broker.address`."""

    def __init__(
        self,
        configuration: BrokerConfiguration,
        *,
        clock: Clock | None = None,
        files: Files | None = None,
        admission: Admission | None = None,
    ) -> None:
        """`files`: what the store sees of the file system. Without an `admission` anyone may do anything."""
        self._configuration = configuration
        self._clock: Clock = clock if clock is not None else SystemClock()
        self._files = files
        self._admission = admission
        self._live = LiveSettings(configuration.broker)
        self._pages = StatusPages(self._clock)
        self._parts: _Parts | None = None
        self._background: asyncio.Task[None] | None = None
        self._registering: asyncio.Task[None] | None = None
        self._is_stopping = False
        self._stopped = asyncio.Event()

    def __repr__(self) -> str:
        state = repr(self._parts.server) if self._parts is not None else "not started"
        return f"<Broker {self.settings.broker_name} {state}>"

    @property
    def settings(self) -> BrokerSettings:
        return self._live.now

    @property
    def address(self) -> tuple[str, int]:
        """Where it listens; raises StateError before the start."""
        return self._started.server.address

    @property
    def addresses(self) -> list[tuple[str, int]]:
        """All that it listens on for clients."""
        return [server.address for server in self._started.servers]

    @property
    def advertised_address(self) -> str:
        """What clients are told."""
        return self._started.advertised

    @property
    def metrics_address(self) -> tuple[str, int]:
        """Where metrics and readiness are; raises StateError if they are switched off."""
        return self._pages.address

    @property
    def store(self) -> MessageStore:
        return self._started.store

    @property
    def role(self) -> RoleTable:
        return self._started.role

    @property
    def routes(self) -> Routes:
        return self._started.routes

    @property
    def _started(self) -> "_Parts":
        if self._parts is None:
            raise StateError("the broker has not been started")
        return self._parts

    def statistics(self) -> BrokerStatistics:
        parts = self._started
        return BrokerStatistics(
            store=parts.store.statistics(),
            traffic=parts.server.statistics(),
            topics=len(parts.topics),
            groups=len(parts.groups),
            held_pulls=parts.held_pulls.held_count,
        )

    async def start(self) -> None:
        if self._parts is not None:
            raise StateError("the broker has been started already")
        await self._pages.start(self.settings)
        try:
            self._parts = parts = await self._open()
        except BaseException:
            await self._pages.stop()
            raise
        self._background = asyncio.create_task(parts.run(), name="broker")
        self._registering = asyncio.create_task(parts.registration.run(), name="registration")
        try:
            await parts.registration.wait_tried()
        except BaseException:
            await self.stop()
            raise
        self._pages.show(parts.metering, parts.store)
        _log.info("broker started name=%s address=%s", self.settings.broker_name, parts.advertised)

    async def _open(self) -> "_Parts":
        store = await self._open_store()
        log_recovery(store.recovery)
        ports: list[socket.socket] = []
        try:
            ports += _take_ports(self.settings)
            parts = _Parts(self._live, store, self._clock, ports[0].getsockname()[1], self._admission)
            for server, taken in zip(parts.servers, ports, strict=True):
                await server.listen(taken, self.settings.socket_backlog)
        except BaseException:
            for taken in ports:
                taken.close()
            store.close()
            raise
        return parts

    async def _open_store(self) -> MessageStore:
        # Recovery may take long, and a signal must be able to end it.
        opening = asyncio.create_task(
            asyncio.to_thread(
                MessageStore.open, self._configuration.store, clock=self._clock, files=self._files
            )
        )
        try:
            return await asyncio.shield(opening)
        except asyncio.CancelledError:
            # A thread cannot be cancelled: what it opens is closed again.
            await asyncio.wait([opening])
            if opening.exception() is None:
                opening.result().close()
            raise

    async def run_until_stopped(self) -> None:
        """Return after `stop`; raises what ended the background work, should it ever end by itself."""
        if self._background is None or self._registering is None:
            raise StateError("the broker has not been started")
        stopped = asyncio.create_task(self._stopped.wait())
        working = {self._background, self._registering}
        try:
            done, _ = await asyncio.wait({stopped, *working}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            stopped.cancel()
        if not self._is_stopping:
            for task in done & working:
                task.result()
        await self._stopped.wait()

    async def stop(self) -> None:
        """Leave the name servers, finish what is in flight, make everything safe, close."""
        if self._background is None or self._is_stopping:
            return
        self._is_stopping = True
        parts = self._started
        await _end(self._registering)
        await parts.registration.unregister()
        for server in parts.servers:
            server.send_away()  # before pulls are let go, or they would be back at once
        parts.held_pulls.release_all()
        grace_s = self.settings.shutdown_wait_seconds
        await asyncio.gather(*(server.stop(grace_s) for server in parts.servers))
        await _end(self._background)
        parts.close()
        await parts.dialer.close()
        await parts.settings_saving.close()
        await self._pages.stop()
        self._stopped.set()
        _log.info("broker stopped name=%s", self.settings.broker_name)

    async def abandon(self) -> None:
        """Let go of everything at once, as a crash would: nobody is told, the next start recovers."""
        if self._background is None or self._is_stopping:
            return
        self._is_stopping = True
        parts = self._started
        await _end(self._registering)
        await _end(self._background)
        for server in parts.servers:
            for connection in list(server.connections):
                connection.abort()
            await server.stop(0)
        parts.offsets.abandon()
        parts.store.abandon()
        await parts.dialer.close()
        await parts.settings_saving.close()
        await self._pages.stop()
        self._stopped.set()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()


class _Parts:
    """Everything a running broker consists of, made in the order in which it depends on each other."""

    def __init__(
        self,
        live: LiveSettings[BrokerSettings],
        store: MessageStore,
        clock: Clock,
        port: int,
        admission: Admission | None = None,
    ) -> None:
        settings = live.now
        self.store = store

        # What it knows
        statistics = Statistics(clock, is_system=lambda topic: self.topics.is_system(topic))
        system = system_topics(
            broker_name=settings.broker_name,
            cluster=settings.broker_cluster_name,
            auto_create=settings.auto_create_topics,
            default_queues=settings.default_topic_queues,
            trace_topic=settings.trace_topic if settings.trace_topic_enabled else None,
            cluster_topic=settings.cluster_topic,
            broker_topic=settings.broker_topic,
        )
        files = {name: store.table(name) for name in _TABLES}
        self.topics = topics = TopicTable(files["topics.json"], clock, system)
        self.groups = groups = GroupTable(
            files["subscriptionGroup.json"], clock, lambda: live.now.auto_create_groups
        )
        self.offsets = offsets = OffsetTable(
            files["consumerOffset.json"],
            clock,
            commits_per_version=settings.commits_per_version,
            server_side_reset=settings.server_side_reset,
        )
        self.filters = filters = FilterTable(
            files["consumerFilter.json"],
            clock,
            lambda: live.now.dead_filter_ms,
            lambda: live.now.filter_retries,
        )
        delay_offsets = DelayOffsetTable(
            files["delayOffset.json"], clock, deliveries_per_version=settings.deliveries_per_version
        )
        for remark in table_remarks(store, topics, groups, files.values()):
            _log.warning("tables of the store: %s", remark)
        consumers, producers = ConsumerTable(), ProducerTable()
        locks = QueueLocks(settings.queue_lock_expiry_ms)
        self.role = role = RoleTable(Role(settings.broker_id))

        # Where it is
        self.advertised = format_address(settings.broker_ip1, port)
        store_host = Host.of(_looked_up(settings.broker_ip1), port)

        # The two roads of a message
        durability = Durability(store, clock)
        self.appending = appending = Appending(store, store_host.pack(), durability)
        slices = Slices(clock)
        self.held_pulls = held_pulls = HeldPulls(slices)
        appending.on_advance(held_pulls.advanced)
        lanes = Lanes(live, topics, role, clock)
        pressure = Pressure(live, clock, appending.at_turn_end)
        stamp, born_hosts = Stamp(live), BornHosts()
        unique_keys = UniqueKeys(store_host.ip, os.getpid(), random.getrandbits(32))

        # What it does
        self.dialer = Dialer(
            form=settings.header_form,
            clock=clock,
            tls=_tls_options(settings),
            connect_timeout_s=settings.connect_timeout_ms / 1000,
        )
        self.registration = Registration(
            live,
            topics,
            role,
            self.dialer,
            broker_address=self.advertised,
            ha_address=format_address(settings.broker_ip2, settings.ha_listen_port or port + 1),
        )
        config_path = settings.config_path or store.paths.config / "broker.properties"
        self.settings_saving = Saving(
            DurableFile(config_path),
            lambda: BrokerConfiguration(live.now, store.settings).to_properties_text().encode(),
        )
        self._membership = Membership(live, topics, groups, consumers, producers, filters, clock)
        self._delays = Delays(
            store,
            appending,
            delay_offsets,
            statistics,
            role,
            clock,
            save_interval_ms=settings.flush_delay_offsets_ms,
        )
        self._offsets_service = Offsets(
            live,
            store,
            topics,
            groups,
            offsets,
            consumers,
            slices=slices,
            delay_offsets=delay_offsets.wrapper,
            on_reset=held_pulls.release,
        )
        self._upkeep = Upkeep(store, appending.dispatch_soon, statistics, locks, clock)
        self._protection = Protection(live, store, groups, offsets, consumers)

        def topic_deleted(topic: str) -> None:
            statistics.forget_topic(topic)
            held_pulls.release(topic)

        outlets = Outlets(live, topics, groups, consumers, role)
        reading = Reading(live, store, topics, groups, consumers, filters, statistics, slices)
        pulling = Pulling(
            live, store, topics, reading, offsets, consumers, held_pulls, outlets, statistics, slices
        )
        topics_service = Topics(live, store, topics, offsets, topic_deleted, slices)
        topics_service.finish_deletions()
        others = (
            Sending(
                live,
                lanes,
                pressure,
                appending,
                stamp,
                born_hosts,
                groups,
                locks,
                unique_keys,
                statistics,
                clock,
            ),
            Retries(live, store, topics, groups, lanes, pressure, appending, statistics),
            Replies(live, lanes, appending, stamp, born_hosts, producers, statistics, clock, self.advertised),
            self._membership,
            self._offsets_service,
            Ordering(locks, clock),
            Queries(store),
            topics_service,
            Groups(groups, offsets, consumers, statistics.forget_group, slices),
            Inspection(
                live,
                store,
                topics,
                groups,
                offsets,
                consumers,
                filters,
                statistics,
                clock,
                self.advertised,
                slices,
            ),
            Brokers(
                live,
                store,
                topics,
                (statistics.runtime_figures, self._delay_figures),
                self.settings_saving.save,
                clock,
            ),
        )
        self.routes = Routes(pulling, *others, serving=BROKER, unserved=UNSERVED)
        fast_routes = Routes(*others, serving=BROKER, unserved=UNSERVED | NOT_ON_THE_FAST_PORT)
        direct = DirectHeaders(CATALOGUE[code] for code in _BUSIEST)
        roads = [
            express_road(
                store,
                store_host.pack(),
                appending,
                lanes,
                pressure,
                stamp,
                born_hosts,
                statistics,
                settings.limits,
                each,
                offsets,
            )
            for each in (outlets, None)  # nobody pulls from the fast port
        ]
        self.metering = (
            Metering(
                live,
                store,
                topics,
                groups,
                offsets,
                consumers,
                producers,
                statistics,
                lambda: self.held_pulls.held_count,
                lambda: [server.statistics() for server in self.servers],
                clock,
            )
            if settings.metrics_exporter == "PROM"
            else None
        )
        self.servers = [
            Server(
                routes,
                limits=settings.limits,
                tls=settings.tls_server(clock),
                trusted_proxies=settings.trusted_proxies,
                clock=clock,
                observer=self.metering,
                admission=admission,
                form=settings.header_form,
                direct=direct,
                express=self._watched(road),
            )
            for routes, road in zip((self.routes, fast_routes), roads, strict=True)
        ]
        for server in self.servers:
            server.on_connection_lost(self._membership.connection_lost)
            server.on_connection_lost(held_pulls.release_owner)

    @property
    def server(self) -> Server:
        return self.servers[0]

    def _watched(self, express: Road) -> ExpressRoad | None:
        if self.metering is None:
            return express
        # Its answers would come later than it returns, and who asks for latencies wants those of flushes.
        return self.metering.timed(express) if self.appending.durability.is_immediate else None

    async def run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            for part in (
                self._membership,
                self._delays,
                self._offsets_service,
                self._upkeep,
                self._protection,
            ):
                tasks.create_task(part.run(), name=type(part).__name__)

    def close(self) -> None:
        """Make everything safe that is still only in memory."""
        for what, save in (
            ("topics", self.topics.persist),
            ("groups", self.groups.persist),
            ("progress of delayed messages", self._delays.save_now),
            ("offsets", self.offsets.persist),
            ("filters", self.filters.persist),
        ):
            try:
                save()
            except (StoreError, OSError) as problem:
                _log.error("%s not written, the next start has older ones: %s", what, problem)
        self.store.close()

    def _delay_figures(self) -> dict[str, str]:
        return {
            f"scheduleMessageOffset_{level}": f"{offset},{end}"
            for level, (offset, end) in self._delays.progress().items()
        }


def _looked_up(host: str) -> str:
    """What is written into messages is an IP address, also where clients are told a name."""
    if ":" in host:  # only addresses of version 6 have colons
        return host
    try:
        return socket.gethostbyname(host)
    except OSError as problem:
        raise ConfigError("brokerIP1", host, f"an address or a known name ({problem.strerror})") from None


async def _end(task: "asyncio.Task[None] | None") -> None:
    if task is not None:
        task.cancel()
        await asyncio.wait([task])


def _take_ports(settings: BrokerSettings) -> list[socket.socket]:
    """The main port and the fast one two below it; if the system may choose, a pair that is free."""
    for attempt in range(_PORT_TRIES):
        main = _take(settings, settings.listen_port)
        try:
            return [main, _take(settings, vip_port(main.getsockname()[1]))]
        except OSError:
            main.close()
            if settings.listen_port or attempt == _PORT_TRIES - 1:
                raise
    raise StateError("no attempt was made")


def _take(settings: BrokerSettings, port: int) -> socket.socket:
    return listening_socket(
        settings.bind_address,
        port,
        send_buffer_bytes=settings.socket_send_buffer_bytes,
        receive_buffer_bytes=settings.socket_receive_buffer_bytes,
    )


def _tls_options(settings: BrokerSettings) -> TlsOptions | None:
    if not settings.tls_enable:
        return None
    return TlsOptions(
        certificate_path=settings.tls_client_cert_path,
        key_path=settings.tls_client_key_path,
        key_password=settings.tls_client_key_password,
        trust_path=settings.tls_client_trust_cert_path,
        verify=settings.tls_client_auth_server,
    )
