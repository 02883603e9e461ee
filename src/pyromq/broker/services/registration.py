"""Registration of this broker and its topics with every name server.

Each name server has its own task, so that a dead one does not delay the others. After any failure the broker
registers everything again as soon as it can reach the name server.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypedDict

import msgspec

from pyromq.broker.settings import BrokerSettings
from pyromq.broker.tables.role import Role, RoleTable
from pyromq.broker.tables.static_topics import StaticTopicTable
from pyromq.broker.tables.topics import TopicTable
from pyromq.config.live import LiveSettings
from pyromq.errors import PyroError, Refused, TransportError
from pyromq.protocol import names, registration
from pyromq.protocol.body import DataVersion
from pyromq.protocol.codes import CURRENT_VERSION
from pyromq.protocol.registration import RegisterBrokerBody
from pyromq.protocol.requests.brokers import (
    QueryDataVersion,
    RegisterBroker,
    RegisterBrokerAnswer,
    SendBrokerHeartbeat,
    UnregisterBroker,
)
from pyromq.protocol.requests.topics import TopicConfig, TopicConfigAndMappingSerializeWrapper
from pyromq.remoting.connection import Connection
from pyromq.remoting.dialer import Dialer

_log = logging.getLogger(__name__)

UNREGISTER_TIMEOUT_S = 3.0
FIRST_ROUND_S = 3.0
"""A start waits this long for slow name servers; the broker registers with them later in any case."""

FIRST_RETRY_S = 0.5
MAX_RETRY_S = 2.0


@dataclass(frozen=True, slots=True)
class NameServerState:
    """The state of the registration with one name server."""

    address: str
    is_registered: bool
    registrations: int
    failures: int
    last_problem: str


class _NameServer:
    """The state of one name server, and the broker's next message to it."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.needs_everything = True
        self.changed: dict[str, TopicConfig] = {}
        self.connection: Connection | None = None
        self.is_registered = False
        self.accepts_compressed = True
        self.registrations = 0
        self.failures = 0
        self.failures_in_a_row = 0
        self.last_problem = ""
        self.wake = asyncio.Event()
        self.tried = asyncio.Event()
        self.task: asyncio.Task[None] | None = None

    @property
    def is_behind(self) -> bool:
        return self.needs_everything or bool(self.changed)

    @property
    def retry_s(self) -> float:
        return min(FIRST_RETRY_S * 2.0 ** min(self.failures_in_a_row - 1, 10), MAX_RETRY_S)

    def tell_everything(self) -> None:
        self.needs_everything = True
        self.wake.set()

    def lost(self, connection: Connection) -> None:
        if self.connection is connection:
            self.connection = None
            self.is_registered = False
            self.tell_everything()

    def state(self) -> NameServerState:
        return NameServerState(
            self.address, self.is_registered, self.registrations, self.failures, self.last_problem
        )


@dataclass(frozen=True, slots=True)
class _Everything:
    """The encoded registrations of all topics, and the values they depend on."""

    made_from: tuple[object, ...]
    bodies: tuple[bytes, ...]


class Registration:
    def __init__(
        self,
        live: LiveSettings[BrokerSettings],
        topics: TopicTable,
        static_topics: StaticTopicTable,
        role: RoleTable,
        dialer: Dialer,
        *,
        broker_address: str,
        ha_address: str,
    ) -> None:
        """`broker_address` is for clients, `ha_address` for replicas."""
        self._live = live
        self._topics = topics
        self._static_topics = static_topics
        self._role = role.now
        self._dialer = dialer
        self.broker_address = broker_address
        self.ha_address = ha_address
        self._before: Callable[[], Awaitable[None]] | None = None
        self._servers: dict[str, _NameServer] = {}
        self._list_changed = asyncio.Event()
        self._everything: dict[bool, _Everything] = {}
        self._on_master: Callable[[str | None, str | None], None] = lambda _master, _ha: None
        self._filter_servers: tuple[str, ...] = ()
        self._permission = live.now.broker_permission
        self._is_held = live.now.controller_mode
        topics.on_change(self._topics_changed)
        live.on_change(self._apply_settings)
        role.on_change(self._role_changed)

    def __repr__(self) -> str:
        registered = sum(server.is_registered for server in self._servers.values())
        return f"<Registration of {self.broker_address} at {registered} of {len(self._servers)} name servers>"

    def on_master(self, listener: Callable[[str | None, str | None], None]) -> None:
        """Call `listener` with the master's two addresses, for clients and for replicas, when a name server
        sends them to a replica."""
        self._on_master = listener

    def on_start(self, before: Callable[[], Awaitable[None]]) -> None:
        """Register only after this is done."""
        self._before = before

    def register_soon(self) -> None:
        """Register again with every name server that can be reached."""
        for server in self._servers.values():
            server.tell_everything()

    def name_filter_servers(self, addresses: Sequence[str]) -> None:
        """Routes shall name these from now on."""
        if tuple(addresses) != self._filter_servers:
            self._filter_servers = tuple(addresses)
            self._register_anew()

    def release(self) -> None:
        """The role of this broker is known: register. Under a controller nothing is registered before."""
        if self._is_held:
            self._is_held = False
            self._apply_settings(self._live.now)

    def statistics(self) -> list[NameServerState]:
        return [server.state() for server in self._servers.values()]

    # Changes

    def _topics_changed(self, configs: list[TopicConfig]) -> None:
        """Changes of one turn of the event loop are sent together in the next turn."""
        for server in self._servers.values():
            if not configs:  # a deletion: only a full registration shows it
                server.tell_everything()
            server.changed.update((config.topic_name, config) for config in configs)
            server.wake.set()

    def _apply_settings(self, settings: BrokerSettings) -> None:
        if settings.broker_permission != self._permission:
            self._permission = settings.broker_permission
            self._register_anew()
        known = [address for address, server in self._servers.items() if server.task is not None]
        wanted = () if self._is_held else settings.name_servers
        if list(wanted) != known:
            self._servers = {
                address: self._servers.get(address) or _NameServer(address) for address in wanted
            }
            self._list_changed.set()

    def _role_changed(self, role: Role) -> None:
        if role != self._role:
            self._role = role
            self._register_anew()

    def _register_anew(self) -> None:
        # java: name servers ignore a registration whose version they know, and one of an older master
        self._topics.bump_version(self._role.epoch)
        for server in self._servers.values():
            server.tell_everything()
            server.wake.set()

    # The tasks

    async def run(self) -> None:
        """Keep this broker registered with every name server, until cancelled."""
        if self._before is not None:
            await self._before()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._beat())
            running: dict[str, _NameServer] = {}
            while True:
                self._list_changed.clear()
                for address, server in list(running.items()):
                    if self._servers.get(address) is not server:
                        tasks.create_task(self._leave(running.pop(address)))
                for address, server in self._servers.items():
                    if address not in running:
                        running[address] = server
                        server.task = tasks.create_task(self._keep_registered(server))
                await self._list_changed.wait()

    async def wait_tried(self, timeout_s: float = FIRST_ROUND_S) -> None:
        """Wait until every name server was tried once, or until the time-out."""
        if self._servers:
            waits = [asyncio.create_task(server.tried.wait()) for server in self._servers.values()]
            try:
                await asyncio.wait(waits, timeout=timeout_s)
            finally:
                for wait in waits:
                    wait.cancel()

    async def _keep_registered(self, server: _NameServer) -> None:
        while True:
            server.wake.clear()
            pause_s = await self._bring_up_to_date(server)
            server.tried.set()
            if server.is_behind and not server.failures_in_a_row:
                continue
            try:
                async with asyncio.timeout(pause_s):
                    await server.wake.wait()
                if server.failures_in_a_row:
                    # Frequent changes must not cause frequent attempts at a dead name server.
                    await asyncio.sleep(min(pause_s, FIRST_RETRY_S))
            except TimeoutError:
                if not server.failures_in_a_row:
                    await self._look_after(server)

    async def _bring_up_to_date(self, server: _NameServer) -> float:
        """Send a name server what it does not know; returns the seconds until the next attempt."""
        try:
            if server.needs_everything:
                await self._register_everything(server)
            elif server.changed:
                changed, server.changed = server.changed, {}
                await self._register(server, self._encoded(changed, self._topics.data_version, server))
        except PyroError as problem:
            server.needs_everything = True
            server.is_registered = False
            server.failures += 1
            server.failures_in_a_row += 1
            server.last_problem = str(problem)
            if server.failures_in_a_row == 1:
                _log.warning("registration failed name_server=%s: %s", server.address, problem)
            return server.retry_s
        if server.failures_in_a_row:
            server.failures_in_a_row = 0
            _log.info("registered again name_server=%s", server.address)
        return self._live.now.registration_period_s

    async def _look_after(self, server: _NameServer) -> None:
        """The period has passed: register again, unless the name server is up to date."""
        if self._live.now.force_register or await self._is_outdated(server):
            server.needs_everything = True

    async def _is_outdated(self, server: _NameServer) -> bool:
        question = QueryDataVersion(**self._identity(), body=self._topics.data_version)
        try:
            return (await self._dialer.call(server.address, question, self._timeout_s)).changed
        except PyroError as problem:
            _log.info("data version could not be queried name_server=%s: %s", server.address, problem)
            return True

    async def _leave(self, server: _NameServer) -> None:
        """A name server was removed from the settings."""
        if server.task is not None:
            server.task.cancel()
        await self._unregister(server)

    # Registering

    async def _register_everything(self, server: _NameServer) -> None:
        await self._connected(server)
        # Changes from here on are sent later.
        server.needs_everything, server.changed = False, {}
        is_compressed = self._live.now.compressed_register and server.accepts_compressed
        answers = [await self._register(server, body) for body in self._all_bodies(is_compressed)]
        server.is_registered = server.connection is not None
        server.registrations += 1
        if server.registrations == 1:
            _log.info("registered name_server=%s topics=%d", server.address, len(self._topics))
        self._take_order(server, answers[-1])
        if not self._role.is_master:
            self._on_master(answers[-1].master_addr, answers[-1].ha_server_addr)

    async def _register(self, server: _NameServer, body: bytes) -> RegisterBrokerAnswer:
        settings = self._live.now
        is_compressed = not body.startswith(b"{")
        request = RegisterBroker(
            **self._identity(),
            ha_server_addr=self.ha_address,
            # java: 4.9 supports neither this nor heartbeats, and waits 120 s for the next registration
            heartbeat_timeout_millis=settings.not_active_timeout_ms
            if settings.heartbeat_interval_ms
            else None,
            enable_acting_master=settings.slave_acting_master,
            compressed=is_compressed,
            body_crc32=registration.body_crc32(body),
            body=body,
        )
        connection = await self._connected(server)
        try:
            return await connection.call(request, self._timeout_s)
        except Refused:
            if is_compressed:
                # java: 4.9 cannot read the compressed form of 5.x
                server.accepts_compressed = False
            raise

    async def _connected(self, server: _NameServer) -> Connection:
        try:
            async with asyncio.timeout(self._timeout_s):
                connection = await self._dialer.connection(server.address)
        except TimeoutError:
            raise TransportError(f"{server.address}: no connection within {self._timeout_s} s") from None
        if connection is not server.connection:
            # The process behind a new connection may be a new one that knows nothing.
            server.needs_everything = True
            server.connection = connection
            connection.on_close(server.lost)
        return connection

    def _take_order(self, server: _NameServer, answer: RegisterBrokerAnswer) -> None:
        """The first registered name server of the list decides which topics are ordered.

        If every answer counted, two name servers that disagree would change the topics for ever.
        """
        first = next((each for each in self._servers.values() if each.is_registered), None)
        if first is server and answer.body is not None:
            self._topics.mark_ordered(answer.body.table)

    @property
    def _timeout_s(self) -> float:
        return self._live.now.register_timeout_ms / 1000

    def _identity(self) -> "_Identity":
        settings, role = self._live.now, self._role
        return {
            "broker_name": settings.broker_name,
            "broker_addr": self.broker_address,
            "cluster_name": settings.broker_cluster_name,
            "broker_id": role.broker_id if role.listed_id is None else role.listed_id,
        }

    # Bodies

    def _all_bodies(self, is_compressed: bool) -> tuple[bytes, ...]:
        """The same for all name servers until a topic changes."""
        settings, version = self._live.now, self._topics.data_version
        part_size = settings.split_registration_topics if settings.split_registration else 0
        made_from = (version, self._client_permission, part_size, self._filter_servers)
        known = self._everything.get(is_compressed)
        if known is None or known.made_from != made_from:
            parts = list(_parts(self._topics.all(), part_size))
            bodies = tuple(
                self._encode(part, _version_of_part(version, len(parts) - 1 - number), is_compressed)
                for number, part in enumerate(parts)
            )
            known = self._everything[is_compressed] = _Everything(made_from, bodies)
        return known.bodies

    def _encoded(self, topics: dict[str, TopicConfig], version: DataVersion, server: _NameServer) -> bytes:
        return self._encode(topics, version, self._live.now.compressed_register and server.accepts_compressed)

    def _encode(self, topics: dict[str, TopicConfig], version: DataVersion, is_compressed: bool) -> bytes:
        body = RegisterBrokerBody(
            topic_config_serialize_wrapper=TopicConfigAndMappingSerializeWrapper(
                data_version=version,
                topic_config_table=self._permitted(topics),
                topic_queue_mapping_info_map=self._static_topics.infos(topics),
            ),
            filter_server_list=list(self._filter_servers),
        )
        encode = registration.encode_compressed if is_compressed else registration.encode_plain
        return encode(body, CURRENT_VERSION)

    @property
    def _client_permission(self) -> int:
        # A mirror accepts no messages, so producers do not find it.
        return self._live.now.broker_permission & (~names.WRITE if self._role.is_mirror else -1)

    def _permitted(self, topics: dict[str, TopicConfig]) -> dict[str, TopicConfig]:
        """The topics, with their permissions limited to those of the broker."""
        permission = self._client_permission
        if permission & names.READ_WRITE == names.READ_WRITE:
            return topics
        return {
            name: msgspec.structs.replace(config, perm=config.perm & permission)
            for name, config in topics.items()
        }

    # Heartbeats

    async def _beat(self) -> None:
        """Send heartbeats between registrations, so that name servers notice a hanging broker in seconds."""
        interval_s = self._live.now.heartbeat_interval_ms / 1000
        while interval_s:
            await asyncio.sleep(interval_s)
            self.beat()

    def beat(self) -> None:
        # java: 5.x refreshes the broker's time, 4.9 ignores it
        beat = SendBrokerHeartbeat(
            **self._identity(), heartbeat_timeout_millis=self._live.now.not_active_timeout_ms
        )
        for server in self._servers.values():
            if server.is_registered and server.connection is not None and server.connection.is_open:
                server.connection.send_oneway(beat)

    # Leaving

    async def unregister(self) -> None:
        """Unregister from every name server; called after `run` has ended."""
        await asyncio.gather(*map(self._unregister, self._servers.values()))

    async def _unregister(self, server: _NameServer) -> None:
        if not server.registrations:
            return
        try:
            await self._dialer.call(
                server.address, UnregisterBroker(**self._identity()), UNREGISTER_TIMEOUT_S
            )
            _log.info("unregistered name_server=%s", server.address)
        except PyroError as problem:
            _log.warning("could not unregister name_server=%s: %s", server.address, problem)
        server.is_registered = False


class _Identity(TypedDict):
    broker_name: str
    broker_addr: str
    cluster_name: str
    broker_id: int


def _parts(topics: dict[str, TopicConfig], part_size: int) -> Iterator[dict[str, TopicConfig]]:
    """The topics in parts of `part_size`; 0 means one part."""
    if not part_size or len(topics) <= part_size:
        yield topics
        return
    all_topics = list(topics.items())
    for start in range(0, len(all_topics), part_size):
        yield dict(all_topics[start : start + part_size])


def _version_of_part(version: DataVersion, parts_to_come: int) -> DataVersion:
    """Name servers ignore a known version, so each part has its own; the last part has the real one."""
    if not parts_to_come:
        return version
    return msgspec.structs.replace(version, counter=version.counter - parts_to_come)
