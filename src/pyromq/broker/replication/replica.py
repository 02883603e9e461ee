"""The replica's side of replication: finds its master, checks that the logs agree, and copies the log.

Name servers tell where the master is, whenever the replica registers. After any failure the replica tries
again, for ever; it keeps serving readers meanwhile.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress

from pyromq.broker.flow.appending import Appending
from pyromq.broker.replication.agreement import Disagreement, check_agreement, log_range
from pyromq.broker.replication.epoch_master_link import EpochMasterLink
from pyromq.broker.replication.master_link import MasterLink
from pyromq.broker.settings import BrokerSettings
from pyromq.broker.tables.role import Role, RoleTable
from pyromq.clock import Clock
from pyromq.config.live import LiveSettings
from pyromq.errors import ConfigError, PyroError, Refused, StoreError, TransportError
from pyromq.protocol.epoch_replication import ReplicaGreeting
from pyromq.protocol.requests.replication import ExchangeHaInfo, ExchangeHaInfoAnswer
from pyromq.remoting.addresses import parse_address
from pyromq.remoting.dialer import Dialer
from pyromq.remoting.tls import certificate_names
from pyromq.security.replica_hello import HelloMember, encode_hello
from pyromq.store.message_store import MessageStore

_log = logging.getLogger(__name__)

_TICK_S = 0.5
_FIRST_RETRY_S = 0.25
_MAX_RETRY_S = 5.0
_ASK_EVERY = 3
_ASK_TIMEOUT_S = 3.0
_QUIET_FAILURES = 4
"""A replica that has just started does not know its master yet."""


class Replica:
    def __init__(
        self,
        live: LiveSettings[BrokerSettings],
        store: MessageStore,
        appending: Appending,
        role: RoleTable,
        dialer: Dialer,
        clock: Clock,
        ask_for_master: Callable[[], None],
    ) -> None:
        """`ask_for_master`: asks name servers again where the master is, through `master_is_at`."""
        self._live = live
        self._store = store
        self._appending = appending
        self._dialer = dialer
        self._clock = clock
        self._ask_for_master = ask_for_master
        self._listeners: list[Callable[[], None]] = []
        self._before_log: Callable[[], Awaitable[bool]] | None = None
        self._has_tables = True
        """Whether the master's tables were there when the present connection began; else it does not count
        as in sync."""
        self._woken = asyncio.Event()
        self._role = role.now
        self._is_replica = False
        self._is_controlled = live.now.controller_mode
        self._tls = live.now.ha_tls_client(clock)
        self._confirmed: Callable[[int], None] = lambda _: None
        self._was_cut: Callable[[], None] = lambda: None
        self._failures = 0
        self._told = ""
        self._ha_address: str | None = None
        self.master: str | None = None
        """Where the master serves requests; None if that is unknown."""
        self.master_flush_offset = 0
        """How much the master's disk has, as an operator or the master said last; for operators."""
        self.link: MasterLink | None = None
        self.disagreement = ""
        """Why this replica does not copy its master's log, and will not without an operator."""
        self._is_partial = False
        """Whether this copy lacks files that the master has: then it never counts as in sync."""
        self.is_damaged: Callable[[], bool] = lambda: False
        """Whether this copy has damage that no broker could repair: then it does not count, either."""
        self.lacks_compacted: Callable[[], bool] = lambda: False
        """Whether this copy lacks messages of compacted topics that no log has any more: then likewise."""
        self.cluster = ""
        """The cluster of the master, if it is another one."""
        self._gets_all = False
        """Whether it is empty, and its master's log complete: then nothing is lacking."""
        self._stuck_at = -1
        self._stuck_because = ""
        appending.durability.on_progress(self._flushed)
        role.on_change(self._role_changed)

    def __repr__(self) -> str:
        return f"<Replica of {self.master} {self.link!r}>"

    @property
    def is_connected(self) -> bool:
        return self.link is not None

    @property
    def agreed_end(self) -> int:
        """Up to here the log is known to be the master's; -1 while nothing is known."""
        return self._store.log.end if self.link is not None and self.link.is_aligned else -1

    @property
    def problem(self) -> str:
        """Why the master's log is not copied, if time alone does not help."""
        is_stuck = self._stuck_at == self._store.log.end
        return self.disagreement or (self._stuck_because if is_stuck else "")

    @property
    def ha_address(self) -> str | None:
        return (
            self._ha_address if self._is_controlled else self._live.now.ha_master_address or self._ha_address
        )

    def on_confirmed(self, confirmed: Callable[[int], None], was_cut: Callable[[], None]) -> None:
        """Under a controller: call `confirmed` with the log offset up to which readers may see the log, and
        `was_cut` when the end of the log was taken back."""
        self._confirmed, self._was_cut = confirmed, was_cut

    def on_master(self, listener: Callable[[], None]) -> None:
        """Call `listener` when another master is known, or a connection to it was opened."""
        self._listeners.append(listener)

    def before_log(self, ready: Callable[[], Awaitable[bool]]) -> None:
        """Under a controller: have `ready` return before the master is asked for its log. It says whether the
        master's tables are there; if they come later, `tables_came` is called."""
        self._before_log = ready

    def tables_came(self) -> None:
        if self.link is not None and not self._has_tables:
            self.link.close(TransportError("the tables have come: from now on this replica may be in sync"))
            self._failures = 0

    def master_is_at(self, address: str | None, ha_address: str | None) -> None:
        """Takes a name server's word; with a controller, it does not decide who is master."""
        if self._is_controlled:
            if address == self.master and self._ha_address is None and ha_address:
                self._ha_address = ha_address
                self._woken.set()
        elif address and ha_address and (address, ha_address) != (self.master, self._ha_address):
            _log.info("master found address=%s ha_address=%s", address, ha_address)
            self.master, self._ha_address = address, ha_address
            if self.link is not None:
                self.link.close(TransportError("the master has another address now"))
            self._woken.set()
            self._tell()

    def follow(self, master: str) -> None:
        """The controller says who is master now; it is asked for its HA port."""
        self.master, self._ha_address = master, None
        self._failures, self._told = 0, ""
        self._dialer.reset_backoff(master)
        self._woken.set()
        self._tell()

    def follow_nobody(self) -> None:
        """There is no master until somebody says who it is."""
        self.master = self._ha_address = None
        self.cluster = self.disagreement = ""
        if self.link is not None:
            self.link.close(TransportError("its log is not copied any more"))
        self._tell()

    def greet_again(self) -> None:
        """Tell the master anew whether this copy counts."""
        if self.link is not None and self._is_controlled:
            self.link.close(TransportError("this replica connects again to say whether it is whole"))

    def _role_changed(self, role: Role) -> None:
        self._role = role
        self._is_replica = not role.is_master
        if self.link is not None and not role.is_master:
            self.link.close(TransportError(f"epoch {role.epoch} has begun"))
        if role.is_master:
            self.disagreement = ""
            if self.link is not None:
                self.link.close(TransportError("this broker is the master now"))
            if self._store.copying.is_on:
                self._store.copying.end()
        else:
            self._store.copying.begin()
        self._woken.set()

    def _flushed(self) -> None:
        if self.link is not None:
            self.link.report()

    # The connection

    async def run(self) -> None:
        while True:
            self._woken.clear()
            pause_s: float | None = None
            if self._is_replica:
                try:
                    await self._follow()
                except (PyroError, OSError, TimeoutError) as problem:
                    pause_s = self._failed(problem)
            with suppress(TimeoutError):
                async with asyncio.timeout(pause_s):
                    await self._woken.wait()

    async def _follow(self) -> None:
        """Copy the master's log until the connection ends; raises its error."""
        role = self._role
        if self._is_controlled and self.master is not None and self._before_log is not None:
            self._has_tables = await self._before_log()
        address = self.ha_address or await self._ask_for_ha_address()
        if self.master is not None and not (self._is_controlled and self._store.epochs.epochs):
            await check_agreement(self._dialer, self.master, self._store)
        self._is_partial = self._live.now.sync_from_last_file and await self._lacks_files()
        self._gets_all = not self._store.log.end and self.lacks_compacted() and await self._master_has_all()
        self.disagreement = ""
        loop = asyncio.get_running_loop()
        host, port = parse_address(address)
        timeout_s = self._live.now.connect_timeout_ms / 1000
        tls = None if self._tls is None else self._tls.context()
        async with asyncio.timeout(timeout_s):
            transport, link = await loop.create_connection(
                self._make_link, host, port, ssl=tls, server_hostname=None if tls is None else host
            )
        if tls is not None:
            names = certificate_names(transport.get_extra_info("ssl_object"))
            if not self._live.now.is_ha_peer(names):
                transport.abort()
                raise TransportError(
                    f"the certificate of {address} is of {', '.join(names)}, not one of haTlsNames"
                )
        if self._role is not role:
            transport.abort()
            raise TransportError("this broker has got another role meanwhile")
        self.link = link
        _log.info("connected to the master address=%s from=%d", address, self._store.log.end)
        self._tell()
        try:
            while not link.ended.done():
                await asyncio.wait([link.ended], timeout=_TICK_S)
                self._look_after(link)
            await link.ended
        finally:
            self.link = None
            link.close(TransportError("this replica stops"))
            if link.ended.exception() is not None and link.speed.total_bytes:
                self._failures = 0

    async def _lacks_files(self) -> bool:
        """Whether this copy begins, or is to begin, with a later file than the master's log."""
        if self.master is None:
            return False
        start, end = await log_range(self._dialer, self.master)
        newest = max(start, end - end % self._store.settings.log_segment_bytes)
        return (self._store.log.start if self._store.log.end else newest) > start

    async def _master_has_all(self) -> bool:
        return self.master is not None and not (await log_range(self._dialer, self.master))[0]

    async def _ask_for_ha_address(self) -> str:
        if not self._is_controlled:
            raise TransportError("no name server knows the master")
        if self.master is None:
            raise TransportError("no controller has named a master")
        master = self.master
        try:
            answer = await self._dialer.call(master, ExchangeHaInfo(), _ASK_TIMEOUT_S)
        except Refused:
            answer = ExchangeHaInfoAnswer()
        if self.master != master:
            raise TransportError(f"{master} is not the master any more")
        # java: a master may omit it, but name servers know it, too
        self._ha_address = self._ha_address or answer.master_ha_address
        if self._ha_address is None:
            raise TransportError(f"the master {self.master} does not report its HA address")
        return self._ha_address

    def _make_link(self) -> MasterLink:
        appended = self._appending.dispatch_soon
        if not self._is_controlled:
            return MasterLink(self._store, self._clock, appended, self._hello)
        settings = self._live.now
        lacks_compacted = self.lacks_compacted() and not self._gets_all
        is_lacking = self._is_partial or self.is_damaged() or lacks_compacted
        is_whole = self._has_tables and not is_lacking
        is_learner = settings.learner or not is_whole or self._role.is_mirror
        greeting = ReplicaGreeting(self._role.broker_id, settings.sync_from_last_file, is_learner)
        return EpochMasterLink(
            self._store,
            self._clock,
            appended,
            self._hello,
            greeting=greeting,
            confirmed=self._confirmed,
            was_cut=self._was_cut,
        )

    def _hello(self, challenge: bytes) -> bytes:
        settings = self._live.now
        if (own := settings.credentials) is None:
            raise ConfigError(
                "innerClientAuthenticationCredentials",
                "",
                "an account of brokers: the master asks who this is",
            )
        cluster = self.cluster or settings.broker_cluster_name
        member = HelloMember(cluster, settings.broker_name, self._role.broker_id)
        return encode_hello(challenge, member, own)

    def _look_after(self, link: MasterLink) -> None:
        settings, now = self._live.now, self._clock.monotonic()
        link.speed.sample(now)
        if now - link.last_read > settings.ha_silence_ms / 1000:
            link.close(
                TransportError(f"it sent nothing for {settings.ha_silence_ms} ms (haHousekeepingInterval)")
            )
        elif now - link.last_write >= settings.ha_report_s:
            link.report(even_if_known=True)

    def _failed(self, problem: Exception) -> float:
        """Tell what is wrong, once; returns the seconds until the next attempt."""
        self._failures += 1
        if isinstance(problem, Disagreement):
            self.disagreement = str(problem)
        elif isinstance(problem, StoreError):
            # Once may be a bit that flipped on the way.
            is_again = self._stuck_at == self._store.log.end
            self._stuck_at = self._store.log.end
            self._stuck_because = f"the master's log is not copied: {problem}" if is_again else ""
        is_new = self.ha_address is None and self._failures <= _QUIET_FAILURES
        if self._told != str(problem) and not is_new:
            self._told = str(problem)
            level = logging.ERROR if isinstance(problem, Disagreement) else logging.WARNING
            _log.log(level, "the master's log is not copied address=%s: %s", self.ha_address, problem)
        if self._failures <= _QUIET_FAILURES or self._failures % _ASK_EVERY == 0:
            self._ask_for_master()  # a registration of many topics is large
        return min(_FIRST_RETRY_S * 2.0 ** min(self._failures - 1, 8), _MAX_RETRY_S)

    def _tell(self) -> None:
        self._told = ""
        for listener in self._listeners:
            listener()
