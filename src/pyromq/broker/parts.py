"""All components of a running broker, created in the order of their dependencies.

A new service is listed once, in `_services`. Its own methods declare the requests it answers (`@handles`),
its background work (`run`), and what it saves at the end (`save_now`).
"""

import asyncio
import logging
from collections.abc import Sequence
from contextlib import nullcontext
from typing import NamedTuple, Protocol, runtime_checkable

import pyromq.protocol.requests  # noqa: F401  (fills the catalogue)
from pyromq.broker.addresses import BrokerAddresses
from pyromq.broker.context import Context
from pyromq.broker.fast_path import BrokerFastPath, fast_path
from pyromq.broker.flow.appending import Appending
from pyromq.broker.flow.durability import Durability
from pyromq.broker.flow.held_pulls import HeldPulls
from pyromq.broker.flow.inbound import Inbound
from pyromq.broker.flow.lite.delivery import LiteDelivery
from pyromq.broker.flow.looking_up import LookingUp
from pyromq.broker.flow.open_transactions import OpenTransactions
from pyromq.broker.flow.popping.changed_receipts import ChangedReceipts
from pyromq.broker.flow.popping.held_pops import HeldPops
from pyromq.broker.flow.popping.popped_offsets import PoppedOffsets
from pyromq.broker.flow.popping.popper import Popper
from pyromq.broker.flow.popping.revival import Revival
from pyromq.broker.flow.popping.revive_log import ReviveLog
from pyromq.broker.flow.quotas import Quotas
from pyromq.broker.flow.read_grants import ReadGrants
from pyromq.broker.flow.reading import Reading
from pyromq.broker.metering.metering import BrokerMetering
from pyromq.broker.replication.assembly import Replication
from pyromq.broker.services.acknowledging import Acknowledging
from pyromq.broker.services.assignments import Assignments
from pyromq.broker.services.brokers import Brokers
from pyromq.broker.services.compaction import Compaction
from pyromq.broker.services.delays import Delays
from pyromq.broker.services.erasing import Erasing
from pyromq.broker.services.escaping import Escaping
from pyromq.broker.services.figures import FiguresInBulk
from pyromq.broker.services.filter_servers import FilterServers
from pyromq.broker.services.groups import Groups
from pyromq.broker.services.inspection import Inspection
from pyromq.broker.services.lite_popping import LitePopping
from pyromq.broker.services.lite_topics import LiteTopics
from pyromq.broker.services.membership import Membership
from pyromq.broker.services.offsets import Offsets
from pyromq.broker.services.ordering import Ordering
from pyromq.broker.services.popping import Popping
from pyromq.broker.services.protection import Protection
from pyromq.broker.services.pulling import Pulling
from pyromq.broker.services.queries import Queries
from pyromq.broker.services.recalls import Recalls
from pyromq.broker.services.registration import Registration
from pyromq.broker.services.replies import Replies
from pyromq.broker.services.retries import Retries
from pyromq.broker.services.reviving import Reviving
from pyromq.broker.services.sending import Sending
from pyromq.broker.services.static_topics import StaticTopics
from pyromq.broker.services.tiering import Tiering
from pyromq.broker.services.timers import Timers
from pyromq.broker.services.topics import Topics
from pyromq.broker.services.transaction_checks import TransactionChecks
from pyromq.broker.services.transactions import Transactions
from pyromq.broker.services.unread import Unread
from pyromq.broker.services.upkeep import Upkeep
from pyromq.broker.settings import BrokerSettings
from pyromq.broker.table_fitting import fit_to_log
from pyromq.broker.table_remarks import table_remarks
from pyromq.broker.tables.all_tables import Tables
from pyromq.broker.topic_limits import TopicLimits
from pyromq.broker.unserved import NOT_ON_THE_FAST_PORT, UNSERVED, WITHOUT_CONTROLLER
from pyromq.clock import Clock
from pyromq.cluster.aio import ask
from pyromq.cluster.name_servers import NameServers
from pyromq.cluster.routes import Route, build_route
from pyromq.cluster.server_dialer import server_dialer
from pyromq.config.live import LiveSettings
from pyromq.config.settings_file import SettingsFile
from pyromq.errors import StoreError
from pyromq.protocol.body import MessageQueue
from pyromq.protocol.catalogue import BROKER, CATALOGUE
from pyromq.protocol.direct import DirectHeaders
from pyromq.protocol.requests.routes import GetRoute
from pyromq.protocol.requests.undeclared import UNDECLARED
from pyromq.remoting.access.account_requests import AccountRequests
from pyromq.remoting.access.keeping import AccessRules
from pyromq.remoting.access.requests import AccessRequests
from pyromq.remoting.admission import Admission
from pyromq.remoting.connection_group import ConnectionTerms
from pyromq.remoting.connection_group import FastPath as AnyFastPath
from pyromq.remoting.handshake import HttpFront
from pyromq.remoting.routing import Routes
from pyromq.remoting.server import Server
from pyromq.remoting.slices import Slices
from pyromq.store.message_store import MessageStore
from pyromq.store.results import QueueAdvance
from pyromq.tier.objects import Objects

_log = logging.getLogger(__name__)

_ROUTE_TIMEOUT_S = 3.0
_SOON_S = 0.01

_BUSIEST = (10, 310, 11, 200050)
"""Sends, pulls and pops: their headers are decoded straight into the request."""


@runtime_checkable
class BackgroundService(Protocol):
    """A service with background work, which runs until it is cancelled."""

    async def run(self) -> None: ...


@runtime_checkable
class Saved(Protocol):
    """A service with state in memory that a stopping broker must save."""

    def save_now(self) -> None:
        """Raises StoreError or OSError."""
        ...


class Given(NamedTuple):
    """Parts that a broker gets instead of those that its settings name."""

    admission: Admission | None = None
    http2: HttpFront | None = None
    objects: Objects | None = None
    """The object store of its tier."""


class BrokerParts:
    def __init__(
        self,
        live: LiveSettings[BrokerSettings],
        store: MessageStore,
        clock: Clock,
        addresses: BrokerAddresses,
        given: Given,
        *,
        is_metered: bool = False,
    ) -> None:
        settings = live.now
        self._live = live
        self._clock = clock
        self.store = store
        self.advertised = addresses.advertised

        # State
        self.tables = Tables.open(live, store, clock)
        self._slices = Slices(clock)
        self._context = Context(live, store, self.tables, clock, self._slices)
        for remark in table_remarks(store, self.tables.topics, self.tables.groups, self.tables.files):
            _log.warning("tables of the store: %s", remark)
        if store.recovery.may_lack and self.tables.role.now.is_master:
            fit_to_log(store, self.tables)
        TopicLimits(store, self.tables.topics)

        # The two paths of a message
        self.durability = Durability(store, clock, replica_timeout_ms=settings.replica_timeout_ms)
        appending = Appending(store, addresses.store_host.pack(), self.durability, self.tables.role, clock)
        self.access = AccessRules(
            settings,
            clock,
            directory=store.paths.config,
            cluster=settings.broker_cluster_name,
            files=store.files,
        )
        self._quotas = Quotas(live, self.tables, clock, self.access.attributes_of)
        self._inbound = Inbound.build(live, self.tables, appending, addresses.store_host, clock, self._quotas)
        self._read_grants = ReadGrants(live, self.tables)
        self.held_pulls = HeldPulls(self._slices)
        self.held_pops, self._notices = HeldPops(self._slices), HeldPops(self._slices)
        self._lite_pops = HeldPops(self._slices)
        self._held = (self.held_pulls, self.held_pops, self._notices, self._lite_pops)
        for held in (self.held_pulls, self.held_pops, self._notices):
            appending.on_advance(held.advanced)
            appending.on_light_advance(held.light_advanced)
        self.lite = LiteDelivery(self._context, self.durability, self._lite_pops)
        appending.on_light_advance(self.lite.light_advanced)

        # Services
        self.dialer = server_dialer(settings, clock)
        self.registration = Registration(
            live,
            self.tables.topics,
            self.tables.static_topics,
            self.tables.role,
            self.dialer,
            broker_address=self.advertised,
            ha_address=addresses.ha,
        )
        self.settings_file = SettingsFile(
            settings.config_path or store.paths.config / "broker.properties", store.files
        )
        self.replication = Replication.build(
            *(self._context, appending, self.registration, self.dialer, self.access, self.settings_file)
        )
        suspect = self.replication.repair.suspect
        has_tier = settings.has_tier
        self.tiering = (
            Tiering(self._context, self.durability, self._wake, suspect, given.objects) if has_tier else None
        )
        older = self.tiering.older_lookups if self.tiering is not None else None
        self._looking_up = LookingUp(store, older)
        self._all_services = self._services()
        if self.tiering is not None:
            self._all_services.append(self.tiering)
        self._unserved = UNDECLARED | UNSERVED | ({} if settings.controller_mode else WITHOUT_CONTROLLER)
        self.routes = Routes(*self._all_services, serving=BROKER, unserved=self._unserved)
        self._static_topics = StaticTopics(self._context, self.dialer, self._find_route, self._looking_up)
        self._static_topics.stand_before(self.routes)
        self.metering = self._metering() if is_metered else None
        if self.metering is not None:
            self.metering.stalls.watch(self._inbound.appending, self._upkeep)
            self.metering.watch_replication(self.replication)
            if self.tiering is not None:
                self.metering.watch_tier(self.tiering)
            self.metering.watch_security(self.access.refused, settings.tls_cert_path)
            self.metering.watch_pops(self._reviving.behind, lambda: self.held_pops.held_count)
        self.servers = self._servers(given.admission or self.access.control, given.http2)

    def _services(self) -> list[object]:
        live, store, tables, clock, slices = (
            self._live,
            self.store,
            self.tables,
            self._clock,
            self._slices,
        )
        inbound = self._inbound
        reading = Reading(live, store, tables, slices)
        self._delays = delays = Delays(
            store,
            inbound.appending,
            tables,
            clock,
            save_interval_ms=live.now.flush_delay_offsets_ms,
        )
        self._transactions = OpenTransactions(live, store, tables, inbound.appending, slices, clock)
        self._checks = checks = TransactionChecks(
            live, store, tables, inbound.appending, self._transactions, slices, clock
        )
        self.timers = Timers(store, inbound.appending, tables, clock, slices)
        self._lite_topics = LiteTopics(self._context, self.lite)
        deleted = self.tiering.deleted if self.tiering is not None else None
        topics = Topics(live, store, tables, self._topic_deleted, slices, self.release_held, deleted)
        topics.finish_deletions()
        tables.write_in_threads()
        unread = Unread(store, tables.offsets, slices)
        self._upkeep = Upkeep(
            store, inbound.appending, tables.statistics, tables.locks, clock, unread.cleaned
        )
        self._membership = Membership(live, tables, clock)
        self._filter_servers = FilterServers(live, tables.role, clock, self.registration.name_filter_servers)
        self.brokers = Brokers(
            live,
            store,
            tables,
            (
                tables.statistics.runtime_figures,
                delays.figures,
                self._transactions.figures,
                self.timers.figures,
                self._quotas.figures,
                self._state_figures,
            ),
            self.settings_file,
            clock,
        )
        return [
            Pulling(
                self._context,
                reading,
                self.held_pulls,
                self._read_grants,
                self._quotas,
                lambda: self.replication.is_master_near,
                lambda: self.durability.is_readable,
            ),
            Sending(live, inbound, tables, clock),
            Retries(live, store, tables, inbound),
            Recalls(live, store, tables, inbound, clock),
            Replies(live, inbound, tables, clock, self.advertised),
            delays,
            Escaping(
                live,
                tables,
                delays,
                lambda: self.replication.acting_master.is_acting,
                self._find_route,
                self.dialer,
            ),
            Transactions(live, store, tables, inbound.appending, self._transactions, clock),
            checks,
            self.timers,
            self._membership,
            self._filter_servers,
            Offsets(
                live,
                store,
                tables,
                slices=slices,
                on_reset=self.release_held,
                when_readable=self.durability.when_readable,
                looking_up=self._looking_up,
            ),
            Ordering(tables.locks, clock),
            Queries(store, self.durability, self._looking_up),
            topics,
            Groups(tables, tables.statistics.forget_group, slices),
            Inspection(live, store, tables, clock, self.advertised, slices),
            FiguresInBulk(store, tables, clock, slices, lambda: self.replication.repair.summary),
            self.brokers,
            unread,
            self._upkeep,
            Compaction(store),
            Erasing(self._context, self.durability, self.tiering),
            Protection(live, store, tables),
            *self._pop_services(reading),
            AccessRequests(self.access),
            AccountRequests(self.access, live.now.broker_name, live.now.broker_cluster_name, self.advertised),
            *self.replication.services,
        ]

    def _pop_services(self, reading: Reading) -> list[object]:
        live, store, tables, inbound = self._live, self.store, self.tables, self._inbound
        revive_log = ReviveLog(store, inbound.appending, tables.pop_counts, live.now.broker_cluster_name)
        popped_offsets = PoppedOffsets(store, tables.offsets, revive_log.topic)
        popper = Popper(live, store, tables, reading, revive_log)
        revival = Revival(live, store, tables, inbound.writable_queues, inbound.appending)
        held, notices, durability = self.held_pops, self._notices, self.durability
        self.popping = Popping(self._context, reading, popper, (held, notices), durability, self._quotas)
        changed = ChangedReceipts()
        self.acknowledging = Acknowledging(
            store, tables, revive_log, changed, (held, notices), durability, self.lite
        )
        self._reviving = Reviving(
            self._context, inbound.appending, revive_log, revival, popped_offsets, changed, self.timers
        )
        return [
            self.popping,
            LitePopping(self._context, reading, self.lite, self._lite_pops, self._quotas),
            self._lite_topics,
            self.acknowledging,
            Assignments(live, tables, self._find_queues, self._clock),
            self._reviving,
        ]

    def _wake(self, topic: str, queue_id: int) -> None:
        """Messages that somebody waits for can be read now."""
        advance = QueueAdvance(topic, queue_id, 0)
        for held in (self.held_pulls, self.held_pops, self._notices):
            held.advanced(advance)

    async def _find_queues(self, topic: str) -> Sequence[MessageQueue]:
        return (await self._find_route(topic)).subscribe_queues

    async def _find_route(self, topic: str) -> Route:
        servers = NameServers(self._live.now.name_servers)
        answer = await ask(servers, self.dialer.call, GetRoute(topic=topic), _ROUTE_TIMEOUT_S)
        return build_route(topic, answer.body)

    async def _topic_deleted(self, topic: str) -> None:
        self.tables.statistics.forget_topic(topic)
        self.tables.transaction_counts.forget(topic)
        self.tables.timer_counts.forget(topic)
        self.release_held(topic)
        await self._lite_topics.topic_deleted(topic)

    def release_held(self, topic: str | None = None) -> None:
        """Answer all pulls and pops that wait, or those of a topic."""
        for held in self._held:
            if topic is None:
                held.release_all()
            else:
                held.release(topic)

    def _state_figures(self) -> dict[str, str]:
        """For consoles: who elects its master, and why it is not ready."""
        settings = self._live.now
        controllers = settings.controller_addr if settings.controller_mode else ""
        tier = self.tiering.figures() if self.tiering is not None else {}
        mirror = self.replication.mirror.figures() if self.replication.mirror is not None else {}
        return {"controllerAddr": controllers, "readinessProblem": self.replication.problem} | tier | mirror

    def _metering(self) -> BrokerMetering:
        return BrokerMetering(
            self._live,
            self.store,
            self.tables,
            lambda: self.held_pulls.held_count,
            lambda: [server.statistics() for server in self.servers],
            self._clock,
            self._quotas,
        )

    def _servers(self, admission: Admission | None, http2: HttpFront | None) -> list[Server]:
        """The servers of the main port, and of the fast port, which does not serve pulls."""
        settings, clock = self._live.now, self._clock
        slow = (Pulling, Popping, LitePopping)
        fast_routes = Routes(
            *(service for service in self._all_services if not isinstance(service, slow)),
            serving=BROKER,
            unserved=self._unserved | NOT_ON_THE_FAST_PORT,
        )
        self._static_topics.stand_before(fast_routes)
        direct = DirectHeaders(CATALOGUE[code] for code in _BUSIEST)
        servers = [
            Server(
                routes,
                ConnectionTerms(
                    limits=settings.limits,
                    clock=clock,
                    observer=self.metering.requests if self.metering is not None else None,
                    admission=admission,
                    form=settings.header_form,
                    direct=direct,
                    fast_path=self._watched(
                        fast_path(
                            self._context, self._inbound, self._transactions, self.acknowledging, read_grants
                        )
                    ),
                ),
                tls=settings.tls_server(
                    clock,
                    offers_http2=http2 is not None,
                    offers_http1=http2 is not None and http2.speaks_http1,
                ),
                trusted_proxies=settings.trusted_proxies,
                http2=http2,
            )
            for routes, read_grants in ((self.routes, self._read_grants), (fast_routes, None))
        ]
        for held_pops in (self.held_pops, self._notices, self._lite_pops):
            self._membership.on_leaving(held_pops.release_member)
        for server in servers:
            server.on_connection_lost(self._membership.connection_lost)
            server.on_connection_lost(self._filter_servers.connection_lost)
            for held in self._held:
                server.on_connection_lost(held.release_owner)
        return servers

    @property
    def server(self) -> Server:
        return self.servers[0]

    def _watched(self, path: BrokerFastPath | None) -> AnyFastPath | None:
        if self.metering is None or path is None:
            return path
        # With synchronous flushes its answers leave later than it returns: the latency would be wrong.
        return self.metering.requests.timed(path) if self.durability.is_immediate else None

    async def run(self) -> None:
        stalls = self.metering.stalls.watching_garbage() if self.metering is not None else nullcontext()
        with stalls:
            await self._run_services()

    async def _run_services(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            for service in self._all_services:
                if isinstance(service, BackgroundService):
                    tasks.create_task(service.run(), name=type(service).__name__)

    async def catch_up(self) -> None:
        """Time has passed at once: return when all messages that are due are in their queues."""
        self.store.time.look()
        await self._checks.check_round()
        is_done = False
        while not is_done:
            end = self.store.log.end
            waits_s = (self._delays.step(), self.timers.step(), self._reviving.step())
            await asyncio.sleep(0)
            is_done = all(each is None or each > _SOON_S for each in waits_s) and self.store.log.end == end
        self.lite.announce_due()
        for held in (self.held_pops, self._notices):
            held.wake_all()

    def close(self) -> None:
        """Save all state in memory, then close the store."""
        tables = self.tables
        self.lite.close()
        saves = {
            type(service).__name__.lower(): service.save_now
            for service in self._all_services
            if isinstance(service, Saved)
        }
        # After the services, which leave their progress in these tables.
        saves |= {
            "topics": tables.topics.persist,
            "static topics": tables.static_topics.persist,
            "groups": tables.groups.persist,
            "offsets": tables.offsets.persist,
            "filters": tables.filters.close,
        }
        for what, save in saves.items():
            try:
                save()
            except (StoreError, OSError) as problem:
                _log.error("%s could not be written, the next start will have older ones: %s", what, problem)
        self.store.close()
