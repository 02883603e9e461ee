"""The master's side of replication: serves replicas on the HA port, and knows how far they have the log.

A SYNC_MASTER acknowledges a message when `inSyncReplicas` brokers have it, itself among them. Each replica
counts with what it acknowledged on its present connection.
"""

import asyncio
import logging
import socket
from collections.abc import Callable

from pyromq.broker.flow.durability import Durability
from pyromq.broker.replication.replica_link import ReplicaLink
from pyromq.broker.settings import BrokerSettings
from pyromq.broker.tables.role import Role, RoleTable
from pyromq.clock import Clock
from pyromq.config.live import LiveSettings
from pyromq.remoting.acceptor import Acceptor
from pyromq.remoting.addresses import format_address
from pyromq.remoting.networks import is_loopback, plain_address
from pyromq.security.replica_hello import HelloReader
from pyromq.store.message_store import MessageStore

_log = logging.getLogger(__name__)

_TICK_S = 0.5
_MAX_LINKS = 64
_BACKLOG = 32
_HELLO_S = 5.0


class Master:
    """Links call `opened`, `acknowledged` and `lost`."""

    def __init__(
        self,
        live: LiveSettings[BrokerSettings],
        store: MessageStore,
        durability: Durability,
        role: RoleTable,
        clock: Clock,
    ) -> None:
        self._live = live
        self._store = store
        self._durability = durability
        self._clock = clock
        self._links: list[ReplicaLink] = []
        self._role_table = role
        self._is_master = role.now.is_master
        self._replicated = 0
        self._acceptor: Acceptor | None = None
        self.has_tables: Callable[[int], bool] = lambda _: True
        """Whether a replica has all changes of the tables that were promised."""
        self.address: tuple[str, int] = ("", 0)
        self.begins_at: Callable[[int], None] = lambda _: None
        self.new_hello: Callable[[], HelloReader | None] = lambda: None
        """How the next replica has to prove who it is; None if it need not."""
        live.on_change(self._apply_settings)
        role.on_change(self._role_changed)

    def __repr__(self) -> str:
        return f"<Master on {format_address(*self.address)} replicas={self._links}>"

    # What others ask

    @property
    def links(self) -> list[ReplicaLink]:
        """The connected replicas that have reported."""
        return [link for link in self._links if link.is_started]

    def is_in_sync(self, link: ReplicaLink) -> bool:
        """Whether a replica is near enough to count."""
        return self._store.log.end - link.acknowledged < self._live.now.in_sync_max_behind_bytes

    def wants_tables_at(self, broker_id: int, *, is_watching: bool) -> bool:
        """Whether a change of the tables is to be at a replica before it is acknowledged. `is_watching`: it
        has had all tables, and its connection is open."""
        return self._is_master and is_watching

    @property
    def expected(self) -> frozenset[int]:
        """Brokers that are in sync and have not come to this master yet."""
        return frozenset()

    @property
    def reign(self) -> object | None:
        """Another one whenever this broker becomes master; None if it is not. A fixed master has only one."""
        return self if self._is_master else None

    def tables_copied(self, broker_id: int) -> None:
        """A replica has more of the tables."""

    @property
    def acknowledges_alone(self) -> bool:
        return not self._needed

    # Settings and role

    def _apply_settings(self, settings: BrokerSettings) -> None:
        self.batch_bytes = settings.ha_batch_bytes
        self.from_last_file = settings.sync_from_last_file
        self.max_bytes_per_s = settings.ha_max_bytes_per_s if settings.ha_flow_control else None
        self._needed = settings.in_sync_replicas - 1 if settings.broker_role == "SYNC_MASTER" else 0
        self._refuses = settings.slave_acting_master and not settings.controller_mode
        self._needed_at_least = self._needed
        if settings.auto_in_sync and self._refuses:
            self._needed_at_least = min(settings.min_in_sync_replicas - 1, self._needed)
        self._tell_durability()

    def _role_changed(self, role: Role) -> None:
        self._is_master = role.is_master
        if not role.is_master:
            self._disconnect_all("this broker is a replica now")
        self._tell_durability()

    def _tell_durability(self) -> None:
        in_sync = sum(map(self.is_in_sync, self.links)) if self._needed else 0
        needed = max(min(self._needed, in_sync), self._needed_at_least)
        if self._refuses and self._is_master:
            # java: with acting masters, a message is refused unless enough replicas can get it
            self._role_table.bar(
                f"in-sync replicas not enough: {in_sync + 1} brokers are in sync, {needed + 1} are needed"
                if in_sync < needed
                else ""
            )
        if not needed or not self._is_master:
            if self._durability.replicated_offset is not None:
                self._durability.replicated(None)
            return
        acknowledged = sorted((link.acknowledged for link in self.links), reverse=True)
        if len(acknowledged) >= needed:
            self._replicated = max(self._replicated, acknowledged[needed - 1])
        self._durability.replicated(self._replicated, is_reachable=in_sync >= needed)

    # The links

    async def listen(self, taken: socket.socket) -> None:
        self.address = taken.getsockname()[:2]
        settings = self._live.now
        if self.acknowledges_alone and (settings.broker_role == "SYNC_MASTER" or settings.controller_mode):
            _log.warning(
                "this master acknowledges messages alone inSyncReplicas=%d%s: set it to 2 or more to wait"
                " for replicas",
                settings.in_sync_replicas,
                " allAckInSyncStateSet=false" if settings.controller_mode else "",
            )
        tls = settings.ha_tls_server(self._clock)
        is_open = settings.replica_networks is None and tls is None and not is_loopback(self.address[0])
        if is_open and not settings.asks_replicas and not settings.lets_anyone_in:
            _log.warning(
                "ANYONE who reaches the HA port %d may read the whole log: set haTls, or haAllowedNetworks to"
                " the addresses of replicas",
                self.address[1],
            )
        self._acceptor = Acceptor(taken, _BACKLOG, self._make_link, tls=None if tls is None else tls.context)

    _serves_early = False
    """Whether replicas may connect before this broker is the master."""

    def _make_link(self) -> ReplicaLink:
        return ReplicaLink(self, self._store, self._clock, self.new_hello())

    def opened(self, link: ReplicaLink) -> str:
        networks = self._live.now.replica_networks
        host = link.address.rpartition(":")[0].strip("[]")
        if networks is not None and plain_address(host) is not None and host not in networks:
            return "its address is not in haAllowedNetworks"
        if not self._live.now.is_ha_peer(link.certificate_names):
            return f"its certificate is of {', '.join(link.certificate_names)}, not one of haTlsNames"
        if not self._is_master and not self._serves_early:
            return "this broker is a replica itself"
        if len(self._links) >= _MAX_LINKS:
            for other in self._links:
                if not other.is_proven:  # a replica says hello at once
                    other.close("it does not say who it is, and others want to")
                    break
        if len(self._links) >= _MAX_LINKS:
            return f"there are {_MAX_LINKS} others already"
        self._links.append(link)
        return ""

    def acknowledged(self, link: ReplicaLink) -> None:
        if self._needed:
            self._tell_durability()

    def lost(self, link: ReplicaLink) -> None:
        if link in self._links:
            self._links.remove(link)
            if link.is_started:
                _log.info(
                    "replica gone replica=%s address=%s acknowledged=%d",
                    link.name,
                    link.address,
                    link.acknowledged,
                )
            self._tell_durability()

    def pump(self) -> None:
        """Messages were appended: send them on."""
        for link in self._links:
            link.send_more()

    async def run(self) -> None:
        while True:
            await asyncio.sleep(_TICK_S)
            self.tick()

    def tick(self) -> None:
        """Send heartbeats, and disconnect replicas that are silent."""
        settings, now = self._live.now, self._clock.monotonic()
        for link in list(self._links):
            link.speed.sample(now)
            if not link.is_proven and now - link.opened_at > _HELLO_S:
                link.close("it did not say who it is (Apache's replicas cannot: allowUnsignedReplicas)")
            elif now - link.last_read > settings.ha_silence_ms / 1000:
                link.close(f"it sent nothing for {settings.ha_silence_ms} ms (haHousekeepingInterval)")
            elif now - link.last_write >= settings.ha_heartbeat_ms / 1000:
                link.beat()
        if self._needed:
            self._tell_durability()

    async def close(self) -> None:
        if self._acceptor is not None:
            await self._acceptor.close()
        self._disconnect_all("this broker stops")

    def _disconnect_all(self, reason: str) -> None:
        for link in list(self._links):
            link.close(reason, logging.INFO)
