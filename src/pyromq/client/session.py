"""One client for all producers and consumers of a process that have equal settings and the same event loop.

It has the connections, the routes and the client id, sends heartbeats, and passes requests of brokers to the
producer or consumer they are for. The last producer or consumer that leaves closes it.
"""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Any, Self, TypeVar
from weakref import WeakKeyDictionary

from pyromq.chance import getrandbits, process_id
from pyromq.client.application_log import application_log
from pyromq.client.callbacks import Callbacks
from pyromq.client.members import ConsumerMember, ProducerMember
from pyromq.client.namespaces import unwrap, wrap
from pyromq.client.requesting import PendingReplies
from pyromq.client.settings import ClientSettings
from pyromq.client.troubles import Troubles
from pyromq.clock import Clock, clock_of
from pyromq.cluster.aio import ask
from pyromq.cluster.local_address import local_address
from pyromq.cluster.name_servers import NameServers, name_server_addresses
from pyromq.cluster.route_table import KnownRoutes
from pyromq.cluster.signing import signers
from pyromq.errors import CallTimeout, PyroError, Refused, StateError, TransportError
from pyromq.protocol.catalogue import CLIENT, Answer, Request
from pyromq.protocol.codes import ResponseCode
from pyromq.protocol.frame import HeaderForm
from pyromq.protocol.message_id import UniqueKeys
from pyromq.protocol.names import MASTER_ID
from pyromq.protocol.request_forms import FilledForm
from pyromq.protocol.requests.membership import HeartbeatData, ProducerData, SendHeartbeat, UnregisterClient
from pyromq.remoting import routing
from pyromq.remoting.connection import Connection
from pyromq.remoting.connection_group import ConnectionTerms
from pyromq.remoting.dialer import ONEWAY_TIMEOUT_S, Dialer, DialerStatistics
from pyromq.remoting.in_process import Find

_log = logging.getLogger(__name__)

A = TypeVar("A", bound=Answer)

_FIRST_HEARTBEAT_S = 1.0
_FIRST_NAMESRV_URL_S = 10.0
_NAMESRV_URL_INTERVAL_S = 120.0
_NAMESRV_URL_TIMEOUT_S = 3.0
_UNREGISTER_S = 3.0

_SESSIONS: "WeakKeyDictionary[asyncio.AbstractEventLoop, list[Session]]" = WeakKeyDictionary()


@dataclass(frozen=True, slots=True)
class SessionStatistics:
    users: int
    producer_groups: int
    consumer_groups: int
    brokers: int
    heartbeats: int
    failed_heartbeats: int
    connections: DialerStatistics


class Session:
    """Obtained by `obtain`, released by `release`."""

    def __init__(
        self,
        settings: ClientSettings,
        *,
        clock: Clock | None = None,
        stable_id: bool = False,
        in_process: Find | None = None,
    ) -> None:
        self.settings = settings
        self.in_process = in_process
        self.clock: Clock = clock if clock is not None else clock_of(asyncio.get_running_loop())
        self.is_stable = stable_id
        self._process_id = process_id()
        # java: unique among the clients of a machine
        own_instance = None if stable_id else f"{process_id()}#{getrandbits(63)}"
        self.client_id = settings.client_id(own_instance)
        self.replies = PendingReplies()
        self.packed_ip = _packed_ip(settings)
        self.unique_keys = UniqueKeys(self.packed_ip, process_id(), getrandbits(32))
        self._loop = asyncio.get_running_loop()
        self._producers: dict[str, list[ProducerMember]] = {}
        self._consumers: dict[str, ConsumerMember] = {}
        self._asked: set[ProducerMember] = set()
        self._reserved: set[str] = set()
        self._users = 0
        self._introduced: set[str] = set()
        self._told: set[str] = set()
        self._masters: dict[str, str] = {}
        """The last known master of each broker name."""
        self._acknowledged: set[str] = set()
        self._introducing = asyncio.Lock()
        self._is_forgotten = False
        self._tasks: set[asyncio.Task[None]] = set()
        self._first_question: asyncio.Task[None] | None = None
        self._is_heartbeat_planned = False
        self._is_closed = False
        self._heartbeats = 0
        self._failed_heartbeats = 0
        self._troubles = Troubles(_log, logging.INFO)
        self._conflicts: set[str] = set()
        self.refusal: Refused | None = None
        """Why a broker refused the last heartbeats: a group that must subscribe alike does not."""
        self.name_servers = NameServers(settings.namesrv)
        self.routes = KnownRoutes(
            self.name_servers, self._call_name_server, settings.call_timeout_s, self._brokers_changed
        )
        callbacks = Callbacks(
            self._producers, self._consumers, self.routes, self.replies, settings.namespace, self.clock
        )
        self._new_signer = signers(settings.credentials, settings.namespace_v2, self.clock)
        self._dialer = Dialer(
            ConnectionTerms(clock=self.clock, form=settings.form),
            routes=routing.Routes(callbacks, serving=CLIENT),
            tls=settings.tls,
            new_signer=self._new_signer,
            connect_timeout_s=settings.connect_timeout_s,
            in_process=in_process,
        )
        self._dialer.on_connection_lost(self._connection_lost)

    def __repr__(self) -> str:
        return (
            f"<Session {self.client_id} users={self._users} producers={len(self._producers)} "
            f"consumers={len(self._consumers)} {self.routes!r}>"
        )

    def statistics(self) -> SessionStatistics:
        return SessionStatistics(
            users=self._users,
            producer_groups=len(self._producers),
            consumer_groups=len(self._consumers),
            brokers=len(self.routes.brokers),
            heartbeats=self._heartbeats,
            failed_heartbeats=self._failed_heartbeats,
            connections=self._dialer.statistics(),
        )

    # Beginning and end

    @classmethod
    async def obtain(
        cls,
        settings: ClientSettings,
        *,
        consumer_group: str | None = None,
        stable_id: bool = False,
        clock: Clock | None = None,
        in_process: Find | None = None,
    ) -> Self:
        """The session for these settings; every call needs a `release`.

        Consumers of one group must have different client ids: a caller with a `consumer_group` gets a session
        that has no consumer of that group yet, unless an instance name was chosen. With `stable_id` the
        client id is the same after a restart, because the offset files of broadcasting consumers are named
        after it. `in_process` finds brokers of this process, which are called without a socket.
        """
        _forget_closed_loops()
        sessions = _SESSIONS.setdefault(asyncio.get_running_loop(), [])
        for session in sessions:
            is_fitting = session.settings == settings and session.is_stable == stable_id
            is_fitting = is_fitting and session.in_process == in_process
            is_fitting = is_fitting and session._process_id == process_id()
            is_free = (
                consumer_group is None
                or not settings.is_default_instance
                or not session.has_consumer(consumer_group)
            )
            if is_fitting and is_free and isinstance(session, cls):
                break
        else:
            session = cls(settings, clock=clock, stable_id=stable_id, in_process=in_process)
            session._start()
            sessions.append(session)
        session._users += 1
        if consumer_group is not None:
            session._reserved.add(consumer_group)
        if session._first_question is not None:
            try:
                # A caller that is cancelled must not cancel it for the others.
                await asyncio.shield(session._first_question)
            except BaseException:
                session._reserved.discard(consumer_group or "")
                await session.release()
                raise
        return session

    def _start(self) -> None:
        if self.settings.namesrv_url is not None and not self.settings.namesrv:
            self._first_question = self._start_task(self._ask_for_name_servers())
            self._every(_NAMESRV_URL_INTERVAL_S, self._ask_for_name_servers, first_s=_FIRST_NAMESRV_URL_S)
        self._every(self.settings.route_interval_s, self.routes.poll)
        self._every(self.settings.heartbeat_interval_s, self.heartbeat_now, first_s=_FIRST_HEARTBEAT_S)
        _log.debug("client started id=%s namesrv=%s", self.client_id, self.name_servers)

    async def release(self) -> None:
        self._users -= 1
        if self._users > 0 or self._is_closed:
            return
        self._is_closed = True
        sessions = _SESSIONS.get(self._loop, [])
        if self in sessions:
            sessions.remove(self)
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self.routes.close()
        await self._dialer.close()
        _log.debug("client stopped id=%s", self.client_id)

    def _every(
        self, interval_s: float, work: Callable[[], Awaitable[None]], *, first_s: float | None = None
    ) -> None:
        async def repeat() -> None:
            await asyncio.sleep(interval_s if first_s is None else first_s)
            troubles = Troubles(_log)
            while True:
                try:
                    await work()
                except PyroError as problem:
                    troubles.happened(work, problem, "periodic work failed work=%s", work.__name__)
                else:
                    troubles.ended(work, "periodic work succeeded work=%s", work.__name__)
                await asyncio.sleep(interval_s)

        self._start_task(repeat())

    def _start_task(self, work: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    # Names

    def wrap(self, name: str) -> str:
        """The name of a topic or group that brokers know."""
        return wrap(name, self.settings.namespace)

    def unwrap(self, name: str) -> str:
        """The name of a topic or group that the application knows."""
        return unwrap(name, self.settings.namespace)

    # Calling

    def check_loop(self) -> None:
        """Raises StateError on another event loop than that of the start: futures would never be woken."""
        try:
            is_other = asyncio.get_running_loop() is not self._loop
        except RuntimeError:  # none at all
            is_other = True
        if is_other:
            raise StateError(
                "used on another event loop than it was started on, on another thread, or in a forked child:"
                " create new producers and consumers there"
            )

    @property
    def fills_forms(self) -> bool:
        """Whether requests are sent as declared: in JSON, without signature or namespace fields."""
        return self._new_signer is None and self.settings.form == HeaderForm.JSON

    def call(
        self, address: str, request: Request[A] | FilledForm[A], timeout_s: float
    ) -> Coroutine[Any, Any, A]:
        """Call a broker. A new connection begins with a heartbeat."""
        if address not in self._introduced:
            self._heartbeat_soon(address)
        return self._dialer.call(address, request, timeout_s)

    def writable(self, address: str) -> Connection | None:
        """The connection to a broker, if one is open and takes requests now."""
        if address not in self._introduced:
            self._heartbeat_soon(address)
        return self._dialer.writable(address)

    def call_soon(self, function: Callable[..., object], *args: object) -> None:
        """Call a function on the loop, from any thread; not at all if the loop is gone."""
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(function, *args)

    @property
    def max_frame_bytes(self) -> int:
        return self._dialer.max_frame_bytes

    def retire(self, address: str, connection: Connection) -> None:
        """Use the connection for no more calls: the server said GO_AWAY."""
        self._dialer.retire(address, connection)

    def is_introduced(self, address: str) -> bool:
        """Whether the broker has got a heartbeat on the connection that is open now, or is getting it."""
        return address in self._introduced

    async def send_oneway(
        self, address: str, request: Request[Any], timeout_s: float = ONEWAY_TIMEOUT_S
    ) -> None:
        if address not in self._introduced:
            self._heartbeat_soon(address)
        await self._dialer.send_oneway(address, request, timeout_s)

    def broker_address(
        self, broker_name: str, broker_id: int = MASTER_ID, *, only_this: bool = False
    ) -> str | None:
        """The address of a broker; unless `only_this`, another broker of the same name will do."""
        return self.routes.address(broker_name, broker_id, only_this=only_this)

    async def ask_name_server(self, request: Request[A], timeout_s: float) -> A:
        return await ask(self.name_servers, self._call_name_server, request, timeout_s)

    async def _call_name_server(self, address: str, request: Request[A], timeout_s: float) -> A:
        return await self._dialer.call(address, request, timeout_s)

    def _connection_lost(self, connection: Connection) -> None:
        address = connection.peer_address
        self._introduced.discard(address)
        self._told.discard(address)
        self._acknowledged.discard(address)
        if self._is_closed:
            return
        if address in self.name_servers.addresses:
            self.routes.watch_lost()
        if self._must_be_connected() and address in self._broker_addresses():
            # Other producers reconnect with their next message.
            self._heartbeat_soon(address)

    # Members

    def _must_be_connected(self) -> bool:
        """Whether someone here waits for requests of brokers, and may send nothing for a long time."""
        return bool(self._consumers or self._asked)

    def has_consumer(self, group: str) -> bool:
        return group in self._consumers or group in self._reserved

    def add_consumer(self, group: str, member: ConsumerMember) -> None:
        if group in self._consumers:
            raise StateError(
                f"the client {self.client_id} already has a consumer of group {group}: give this one another"
                " instance_name"
            )
        self._consumers[group] = member

    async def remove_consumer(self, group: str, member: ConsumerMember) -> None:
        """Forget the consumer and unregister it at every broker."""
        self._reserved.discard(group)
        if self._consumers.get(group) is member:
            del self._consumers[group]
            await self._unregister(UnregisterClient(client_id=self.client_id, consumer_group=group))

    def add_producer(self, group: str, member: ProducerMember) -> None:
        self._producers.setdefault(group, []).append(member)

    def keep_connected(self, member: ProducerMember) -> None:
        """Brokers ask this producer questions, so they must reach it even if it sends nothing."""
        self._asked.add(member)

    async def remove_producer(self, group: str, member: ProducerMember) -> None:
        """Forget the producer; after the last one of its group, unregister the group at every broker."""
        self._asked.discard(member)
        members = self._producers.get(group, [])
        if member in members:
            members.remove(member)
            if not members:
                del self._producers[group]
                self._is_forgotten = bool(self._producers)
                await self._unregister(UnregisterClient(client_id=self.client_id, producer_group=group))

    async def _unregister(self, request: UnregisterClient) -> None:
        async def tell(address: str) -> None:
            try:
                await self._dialer.call(address, request, _UNREGISTER_S)
            except PyroError as problem:
                _log.info("not unregistered broker=%s: %s", address, problem)

        # Brokers that never got a heartbeat do not know us.
        await asyncio.gather(*map(tell, list(self._told)))

    # Heartbeats

    async def heartbeat_now(self) -> None:
        """Send a heartbeat to every broker; one that cannot be reached gets the next one."""
        self.refusal = None
        if self._producers or self._consumers:
            await asyncio.gather(*map(self._send_heartbeat, self._broker_addresses()))

    async def wait_known(self) -> None:
        """Return when every broker that can be reached has answered a heartbeat."""
        async with self._introducing:
            if self._is_forgotten and self._producers:
                # java: a broker that loses one group of producers finds the client for no replies any more,
                # until a group that it does not know appears
                known = next(iter(self._producers))
                await self._unregister(UnregisterClient(client_id=self.client_id, producer_group=known))
                await self.heartbeat_now()
                self._is_forgotten = False
        if not self._acknowledged.issuperset(self._broker_addresses()):
            await self.heartbeat_now()

    def _broker_addresses(self) -> list[str]:
        """The brokers that get heartbeats; replicas need to know consumers only."""
        return [
            address
            for addresses in self.routes.brokers.values()
            for broker_id, address in addresses.items()
            if broker_id == MASTER_ID or self._consumers
        ]

    def _heartbeat(self) -> SendHeartbeat:
        return SendHeartbeat(
            body=HeartbeatData(
                client_id=self.client_id,
                producer_data_set=[ProducerData(group_name=group) for group in self._producers],
                consumer_data_set=[member.consumer_data() for member in self._consumers.values()],
            )
        )

    async def _send_heartbeat(self, address: str) -> bool:
        """One heartbeat; says whether it arrived."""
        self._introduced.add(address)
        self._heartbeats += 1
        try:
            # Connect first: the heartbeat must say what is true when it is sent.
            await self._dialer.connection(address)
            self._told.add(address)
            answer = await self._dialer.call(address, self._heartbeat(), self.settings.call_timeout_s)
        except PyroError as problem:
            self._failed_heartbeats += 1
            if isinstance(problem, Refused) and problem.code == ResponseCode.ILLEGAL_OPERATION:
                self._note_conflict(problem.remark)
                self.refusal = problem
            if isinstance(problem, TransportError):
                self._introduced.discard(address)
            self._troubles.happened(address, problem, "heartbeat failed broker=%s", address)
            return False
        self._troubles.ended(address, "heartbeat succeeded broker=%s", address)
        self._note_conflict(answer.conflict)
        self._acknowledged.add(address)
        return True

    def _note_conflict(self, text: str | None) -> None:
        """Members of a group subscribe differently; every broker says so, again and again."""
        if text is not None and text not in self._conflicts:
            self._conflicts.add(text)
            application_log.warning("%s", text)

    def _heartbeat_soon(self, address: str) -> None:
        if not (self._producers or self._consumers) or address not in self._broker_addresses():
            return
        self._introduced.add(address)
        self._start_task(self._heartbeat_and_rebalance(address))

    async def _heartbeat_and_rebalance(self, address: str) -> None:
        """Rebalance, too: meanwhile the broker may have reported us as gone."""
        if await self._send_heartbeat(address):
            for member in list(self._consumers.values()):
                member.members_changed()

    def _brokers_changed(self) -> None:
        known = {address for each in self.routes.brokers.values() for address in each.values()}
        for address in known:
            self._dialer.reset_backoff(address)
        for name, addresses in self.routes.brokers.items():
            master = addresses.get(MASTER_ID)
            if master is not None and (replaced := self._masters.get(name, master)) not in known:
                # It hangs, or is lost: calls that wait for its answers ask the new one.
                self._dialer.hang_up(replaced, f"{master} is the master of {name} now")
            if master is not None:
                self._masters[name] = master
        self._heartbeat_all_soon()

    def _heartbeat_all_soon(self) -> None:
        """Brokers came or went."""
        if self._is_heartbeat_planned or self._is_closed:
            return
        self._is_heartbeat_planned = True

        async def heartbeat_all() -> None:
            self._is_heartbeat_planned = False
            new = set(self._broker_addresses()) - self._introduced
            if self._must_be_connected():
                await asyncio.gather(*map(self._heartbeat_and_rebalance, new))

        self._start_task(heartbeat_all())

    async def silent_brokers(self, timeout_s: float) -> dict[str, PyroError]:
        """Ask every known broker now; returns the names of those that do not serve us, with the reasons."""

        async def ask(name: str) -> PyroError | None:
            try:
                async with asyncio.timeout(timeout_s):
                    address = self.broker_address(name) or ""
                    await self._dialer.call(address, self._heartbeat(), timeout_s)
            except TimeoutError:
                return CallTimeout(f"no answer in {timeout_s:g} s")
            except PyroError as problem:
                return problem
            return None

        names = list(self.routes.brokers)
        answers = zip(names, await asyncio.gather(*map(ask, names)), strict=True)
        return {name: problem for name, problem in answers if problem is not None}

    # Name servers by URL

    async def _ask_for_name_servers(self) -> None:
        url = self.settings.namesrv_url or ""
        if self.settings.unit_name:
            url += f"-{self.settings.unit_name}?nofix=1"
        try:
            text = await asyncio.to_thread(_read_first_line, url)
        except (OSError, ValueError) as problem:
            self._troubles.happened(url, problem, "name servers not learned url=%s", url)
            return
        self._troubles.ended(url, "name servers learned url=%s", url)
        if addresses := name_server_addresses(text):
            self.name_servers.update(addresses)


def _forget_closed_loops() -> None:
    """Clients that were not closed before their loop ended would be kept for ever, sockets and all."""
    for reference in _SESSIONS.keyrefs():
        loop = reference()
        if loop is not None and loop.is_closed():
            _SESSIONS.pop(loop, None)


def _packed_ip(settings: ClientSettings) -> bytes:
    try:
        return ip_address(settings.client_ip or local_address()).packed
    except ValueError:  # the client ip may be any text
        return ip_address(local_address()).packed


def _read_first_line(url: str) -> str:
    # Imported late: few clients need it, and it is slow to import.
    import urllib.request

    with urllib.request.urlopen(url, timeout=_NAMESRV_URL_TIMEOUT_S) as answer:
        return str(answer.readline(4096), "utf-8", "replace").strip()
