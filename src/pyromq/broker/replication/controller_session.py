"""The broker under its controllers: it gets an id, sends heartbeats, and takes the role that they give it.

Roles come with an epoch; only a newer epoch changes the role. A notice of the controller may get lost, so the
broker also asks. It registers with name servers when it knows its role.

A broker whose disk takes nothing falls silent: to the controller it is gone, and another one becomes master.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable
from contextlib import suppress

from pyromq.broker.context import Context
from pyromq.broker.replication.controllers import Controllers
from pyromq.broker.replication.identity import Claim, Incarnation
from pyromq.broker.replication.in_sync_master import InSyncMaster
from pyromq.broker.replication.in_sync_set import InSyncSet
from pyromq.broker.replication.mirror import Mirror
from pyromq.broker.replication.replica import Replica
from pyromq.broker.tables.role import Role
from pyromq.chance import getrandbits
from pyromq.errors import ConnectFailed, PyroError, Refused, StoreError, TransportError
from pyromq.protocol.codes import ResponseCode
from pyromq.protocol.names import MASTER_ID
from pyromq.protocol.requests.brokers import SendBrokerHeartbeat
from pyromq.protocol.requests.controller import (
    AlterSyncStateSet,
    ApplyBrokerId,
    ElectMaster,
    GetNextBrokerId,
    GetReplicaInfo,
    NotifyBrokerRoleChanged,
    RegisterBrokerAtController,
    SyncStateSet,
)
from pyromq.remoting.connection import Connection
from pyromq.remoting.dialer import Dialer
from pyromq.remoting.program import end
from pyromq.remoting.routing import Caller, handles

_log = logging.getLogger(__name__)

_FIRST_RETRY_S = 0.1
_MAX_RETRY_S = 2.0
_HEARTBEAT_TIMEOUT_S = 3.0
_AFTER_REFUSAL_S = 0.2

_UNKNOWN_TO_CONTROLLER = (
    ResponseCode.CONTROLLER_BROKER_METADATA_NOT_EXIST,
    ResponseCode.CONTROLLER_BROKER_NEED_TO_BE_REGISTERED,
)
_NEVER_DONE = frozenset(
    {
        ResponseCode.CONTROLLER_FENCED_MASTER_EPOCH,
        ResponseCode.CONTROLLER_FENCED_SYNC_STATE_SET_EPOCH,
        ResponseCode.CONTROLLER_INVALID_MASTER,
        ResponseCode.CONTROLLER_INVALID_REPLICAS,
        ResponseCode.CONTROLLER_BROKER_NOT_ALIVE,
        ResponseCode.CONTROLLER_ALTER_SYNC_STATE_SET_FAILED,
    }
)
"""Answers after which a proposed set has surely not been taken."""


class ControllerSession:
    def __init__(
        self,
        context: Context,
        master: InSyncMaster,
        replica: Replica,
        dialer: Dialer,
        mirror: Mirror,
        *,
        role_known: Callable[[], None],
        before_leading: Callable[[], None],
    ) -> None:
        """`role_known` is called with every new role, `before_leading` before this broker is the master. It
        takes part when `mirror` is over.

        Raises ConfigError if the store belongs to another broker.
        """
        live, store, settings = context.live, context.store, context.live.now
        self._live = live
        self._store = store
        self._role = context.tables.role
        self._before_leading = before_leading
        self._master = master
        self._replica = replica
        self._dialer = dialer
        self._clock = context.clock
        self._address = mirror.address
        self._role_known = role_known
        self._controllers = Controllers(live, dialer)
        self._cluster, self._name = settings.broker_cluster_name, settings.broker_name
        self._identity = mirror.identity
        self._mirror = mirror
        self._own_id = self._identity.read()
        self._incarnation = Incarnation(str(getrandbits(63)), store.settings.flush_policy.is_sync)
        self._kept_since = self._last_incarnation()
        self._members = _ids_in(self._identity.read_members())
        """The brokers of the group that this one has heard of; empty until a controller has named them."""
        self._is_registered = False
        self._working: asyncio.Task[None] | None = None
        self._beat_due = asyncio.Event()
        self._poll_due = asyncio.Event()
        self._is_silent = False
        self._beating: set[str] = set()
        self._beats: set[asyncio.Task[None]] = set()
        self._told = self._last_refusal = ""
        self.joined = asyncio.Event()
        """Set when the first role is known."""
        self.problem = "no controller has given this broker a role yet"
        """The problem that keeps this broker from its role; empty if nothing does."""
        dialer.on_connection_lost(self._connection_lost)

    def __repr__(self) -> str:
        return f"<ControllerSession id={self._own_id} {self._role!r} {self._controllers!r}>"

    @property
    def epoch(self) -> int:
        return self._role.now.epoch

    async def run(self) -> None:
        self._working = asyncio.current_task()
        await self._mirror.is_over.wait()
        await self._join()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._keep_beating(), name="heartbeats")
            tasks.create_task(self._keep_asking(), name="roles")
            tasks.create_task(self._keep_set(), name="in-sync set")
            tasks.create_task(self._keep_finding_leader(), name="leader")

    async def leave(self) -> None:
        """Let the controllers notice at once that this broker stops."""
        await end(self._working, *self._beats)
        for address in self._controllers.addresses:
            self._dialer.hang_up(address, "this broker stops")

    # Joining

    async def _join(self) -> None:
        """Get an id and a role, however long it takes."""
        pause_s = _FIRST_RETRY_S
        while True:
            try:
                await self._claim_id()
                if self._mirror.was_one and self._own_id is not None:
                    # It does not wait for brokers of its former group: the first one promoted is the master.
                    self._note(frozenset([self._own_id]))
                await self._register()
                await self._beat_all()
                if not self.joined.is_set():
                    await self._stand_for_election()
                if self.joined.is_set():
                    return
                problem = "the group has no master, and this broker may not become it"
            except (PyroError, OSError) as error:
                problem = str(error)
            self._complain(problem)
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, _MAX_RETRY_S)

    async def _claim_id(self) -> None:
        if self._own_id is not None:
            return
        claim = self._identity.read_claim()
        if claim is None:
            found = await self._controllers.call(
                GetNextBrokerId(cluster_name=self._cluster, broker_name=self._name)
            )
            claim = Claim(found.next_broker_id or 1, f"{self._address};{self._clock.now_ms()}")
            self._identity.write_claim(claim)
        try:
            await self._controllers.call(
                ApplyBrokerId(
                    cluster_name=self._cluster,
                    broker_name=self._name,
                    applied_broker_id=claim.broker_id,
                    register_check_code=claim.check_code,
                )
            )
        except Refused as refusal:
            if refusal.code == ResponseCode.CONTROLLER_BROKER_ID_INVALID:
                self._identity.drop_claim()  # another broker was faster
            raise
        self._identity.write(claim.broker_id)
        self._own_id = claim.broker_id
        _log.info("the controller gave this broker its id name=%s id=%d", self._name, claim.broker_id)

    def _last_incarnation(self) -> str | None:
        """The name of the last start, if everything that this broker has reported since is in its log."""
        found, recovery = self._identity.read_incarnation(), self._store.recovery
        if found is None or not recovery.is_whole or not (recovery.was_clean or found.is_sync):
            return None
        return found.name

    async def _register(self) -> None:
        """Once in the life of this process: to the controller it means that the broker has restarted."""
        if self._is_registered:
            return
        answer = await self._controllers.call(
            RegisterBrokerAtController(
                cluster_name=self._cluster,
                broker_name=self._name,
                broker_id=self._own_id,
                broker_address=self._address,
                invoke_time=self._clock.now_ms(),
                incarnation=self._incarnation.name,
                kept_since=self._kept_since if not self._mirror.was_one else None,
                log_epoch=max(self._store.epochs.newest, 0),
                learner=self._live.now.learner or None,
                mirrored=self._mirror.was_one or None,
            )
        )
        self._identity.write_incarnation(self._incarnation)
        self._is_registered = True
        body = answer.body
        if body is not None and answer.sync_state_set_epoch is not None:
            body.sync_state_set_epoch = answer.sync_state_set_epoch
        self._learn(answer.master_broker_id, answer.master_address, answer.master_epoch, body)

    async def _stand_for_election(self) -> None:
        if self._live.now.learner or self._is_unfit:
            return
        answer = await self._controllers.call(
            ElectMaster(
                cluster_name=self._cluster,
                broker_name=self._name,
                broker_id=self._own_id if self._own_id is not None else -1,
                invoke_time=self._clock.now_ms(),
                log_epoch=max(self._store.epochs.newest, 0),
                log_end=self._store.log.end,
                awaited=_listed(self._master.in_sync.awaited if self._master.in_sync is not None else ()),
                members=_listed(self._members),
            )
        )
        members = SyncStateSet(
            sync_state_set=answer.body.sync_state_set if answer.body is not None else set(),
            sync_state_set_epoch=answer.sync_state_set_epoch or 0,
        )
        self._learn(answer.master_broker_id, answer.master_address, answer.master_epoch, members)

    # Heartbeats

    @property
    def _is_unfit(self) -> bool:
        """Whether the disk of this broker takes nothing. A master that is alone in sync stays: it is read."""
        in_sync = self._master.in_sync
        is_alone = in_sync is not None and in_sync.members == {self._own_id}
        return bool(self._store.faults) and self.joined.is_set() and not is_alone

    def _fall_silent(self) -> None:
        reason = self._store.statistics().fault_reason
        _log.warning("this broker can be no master until its disk takes messages again: %s", reason)
        for address in self._controllers.addresses:
            self._dialer.hang_up(address, "the disk takes nothing")

    async def _keep_beating(self) -> None:
        while True:
            self._beat_due.clear()
            was_silent, self._is_silent = self._is_silent, self._is_unfit
            if self._is_silent and not was_silent:
                self._fall_silent()
            for address in self._controllers.addresses:
                if address not in self._beating and not self._is_silent:
                    beat = asyncio.create_task(self._beat(address))
                    self._beats.add(beat)
                    beat.add_done_callback(self._beats.discard)
            with suppress(TimeoutError):
                async with asyncio.timeout(self._live.now.heartbeat_interval_ms / 1000):
                    await self._beat_due.wait()
            self._master.look()

    async def _beat_all(self) -> None:
        await asyncio.gather(*map(self._beat, self._controllers.addresses))

    async def _beat(self, address: str) -> None:
        self._beating.add(address)
        sent_at = self._clock.since_boot()
        settings = self._live.now
        beat = SendBrokerHeartbeat(
            cluster_name=self._cluster,
            broker_addr=self._address,
            broker_name=self._name,
            broker_id=self._own_id,
            epoch=self._store.epochs.newest,
            max_offset=self._store.log.end,
            confirm_offset=self._master.confirmed,
            heartbeat_timeout_millis=settings.controller_timeout_ms,
            election_priority=settings.election_priority,
        )
        lease = self._master.lease
        try:
            await self._dialer.call(address, beat, _HEARTBEAT_TIMEOUT_S)
        except ConnectFailed as problem:
            if address == self._controllers.leader and isinstance(problem.__cause__, ConnectionRefusedError):
                lease.resume()
        except PyroError as problem:
            _log.debug("heartbeat not answered controller=%s: %s", address, problem)
            if address == self._controllers.leader and isinstance(problem, Refused):
                self._controllers.leader = None  # it leads no more
                self._poll_due.set()
        else:
            if address == self._controllers.leader:
                lease.renew(sent_at)
                if not lease.is_held and self._role.now.is_master:
                    self._poll_due.set()
        finally:
            self._beating.discard(address)

    def _connection_lost(self, connection: Connection) -> None:
        if connection.peer_address == self._controllers.leader:
            self._master.lease.suspend()
            self._beat_due.set()
            self._poll_due.set()

    # Roles

    async def _keep_finding_leader(self) -> None:
        while True:
            await asyncio.sleep(self._live.now.leader_poll_ms / 1000)
            with suppress(PyroError):
                await self._controllers.find_leader()

    async def _keep_asking(self) -> None:
        pause_s = _FIRST_RETRY_S
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(self._live.now.controller_poll_ms / 1000):
                    await self._poll_due.wait()
            self._poll_due.clear()
            try:
                await self._ask()
            except (PyroError, OSError) as problem:
                self._complain(str(problem))
                await asyncio.sleep(pause_s)
                pause_s = min(2 * pause_s, _MAX_RETRY_S)
                self._poll_due.set()  # somebody leads again soon
            else:
                self._told = self.problem = ""
                pause_s = _FIRST_RETRY_S

    async def _ask(self) -> None:
        lease = self._master.lease
        asked = lease.ask()
        try:
            answer = await self._controllers.call(
                GetReplicaInfo(broker_name=self._name, broker_id=self._own_id)
            )
        except Refused as refusal:
            if refusal.code in _UNKNOWN_TO_CONTROLLER:
                self._is_registered = False
                await self._register()
            raise
        if answer.members and (answer.master_epoch or 0) >= self.epoch:
            in_sync = self._master.in_sync
            self._note(_ids_in(answer.members) | (in_sync.awaited if in_sync is not None else frozenset()))
        if answer.master_broker_id is None or not answer.master_address:
            await self._stand_for_election()
        else:
            if (answer.master_broker_id, answer.master_epoch) == (self._own_id, self.epoch):
                lease.confirm(asked)
                self._master.look()
            self._learn(answer.master_broker_id, answer.master_address, answer.master_epoch, answer.body)

    @handles(NotifyBrokerRoleChanged)
    def told(self, request: NotifyBrokerRoleChanged, caller: Caller) -> None:
        members = request.body
        if request.sync_state_set_epoch is not None:
            members.sync_state_set_epoch = request.sync_state_set_epoch
        try:
            self._learn(request.master_broker_id, request.master_address, request.master_epoch, members)
        except StoreError as problem:
            self._complain(str(problem))

    def _learn(
        self, master_id: int | None, address: str | None, epoch: int | None, members: SyncStateSet | None
    ) -> None:
        """Take over what a controller says, unless something newer is known. Raises StoreError."""
        if not self._is_registered or self._own_id is None or master_id is None or not epoch or not address:
            return
        found = members if members is not None else SyncStateSet()
        in_sync, version = frozenset(found.sync_state_set), found.sync_state_set_epoch
        if epoch > self.epoch:
            if master_id == self._own_id:
                self._lead(epoch, in_sync | {self._own_id}, version)
            else:
                self._follow(epoch, master_id, address)
            self.problem = self._told = ""
            self.joined.set()
            self._mirror.joined()
            self._role_known()
            self._beat_due.set()
            self._poll_due.set()
        elif epoch == self.epoch and self._role.now.is_master:
            self._master.controller_says(in_sync, version)

    def _lead(self, epoch: int, members: frozenset[int], version: int) -> None:
        assert self._own_id is not None
        self._has_heard_of(members)
        self._store.copying.drop_part()
        self._before_leading()
        self._store.begin_epoch(epoch)
        _log.warning("this broker is the master now epoch=%d log_end=%d", epoch, self._store.log.end)
        self._master.lead(self._own_id, members, version)
        self._role.change(Role(MASTER_ID, epoch))

    def _follow(self, epoch: int, master_id: int, address: str) -> None:
        assert self._own_id is not None
        self._has_heard_of(frozenset([master_id]))
        _log.warning("this broker is replica %d now epoch=%d master=%s", self._own_id, epoch, address)
        self._role.change(Role(self._own_id, epoch))
        self._replica.follow(address)

    # The brokers of the group

    def _has_heard_of(self, others: frozenset[int]) -> None:
        """Note other brokers, if a controller has named some before. Raises StoreError.

        A replica notes its master, and a master all that it proposes, before they can have what it has not.
        So if the controller's store is lost, each broker that may have more than this one is known to this
        one, or to one that this one knows.
        """
        if self._members:
            self._note(self._members | others)

    def _note(self, members: frozenset[int]) -> None:
        if members == self._members or self._own_id is None:
            return
        try:
            self._identity.write_members(self._own_id, _listed(members))
        except OSError as problem:
            raise StoreError(f"the brokers of the group cannot be noted: {problem}") from problem
        self._members = members

    def _complain(self, problem: str) -> None:
        self.problem = f"no controller confirms the role of this broker: {problem}"
        if self._told != problem:
            self._told = problem
            _log.warning("%s", self.problem)

    # The in-sync set

    async def _keep_set(self) -> None:
        while True:
            await self._master.wait_for_news(self._live.now.in_sync_check_ms / 1000)
            while (wanted := self._master.wanted_set()) is not None:
                in_sync = self._master.in_sync
                if in_sync is None or await self._alter(in_sync, wanted):
                    continue
                await asyncio.sleep(_AFTER_REFUSAL_S)

    async def _alter(self, in_sync: InSyncSet, wanted: frozenset[int]) -> bool:
        """Propose a set to the controller; whether it took it."""
        request = AlterSyncStateSet(
            broker_name=self._name,
            master_broker_id=self._own_id,
            master_epoch=self.epoch,
            invoke_time=self._clock.now_ms(),
            body=SyncStateSet(sync_state_set=set(wanted), sync_state_set_epoch=in_sync.version),
        )
        try:
            self._has_heard_of(wanted)
            answer = await self._controllers.call(request)
        except StoreError as problem:
            self._log_refusal(logging.WARNING, wanted, problem)
            in_sync.refused()  # no controller has got it
            return False
        except Refused as refusal:
            self._log_refusal(logging.INFO, wanted, refusal)
            if refusal.code in _NEVER_DONE:
                in_sync.refused()
            else:
                in_sync.unanswered()
            self._poll_due.set()
            return False
        except ConnectFailed as problem:
            self._log_refusal(logging.INFO, wanted, problem)
            in_sync.refused()  # no controller has got it
            return False
        except TransportError as problem:
            self._log_refusal(logging.WARNING, wanted, f"no answer, so it may have been changed: {problem}")
            in_sync.unanswered()
            self._poll_due.set()
            return False
        self._last_refusal = ""
        if answer.body is not None and self._master.in_sync is in_sync:
            members = answer.body
            version = max(members.sync_state_set_epoch, answer.new_sync_state_set_epoch)
            self._master.controller_says(frozenset(members.sync_state_set), version, is_answer=True)
        return True

    def _log_refusal(self, level: int, wanted: frozenset[int], problem: object) -> None:
        """It is proposed again several times a second: only news are more than details."""
        if str(problem) == self._last_refusal:
            level = logging.DEBUG
        self._last_refusal = str(problem)
        _log.log(level, "in-sync set not changed wanted=%s: %s", sorted(wanted), problem)


def _ids_in(text: str) -> frozenset[int]:
    return frozenset(map(int, filter(None, text.split(";"))))


def _listed(ids: Iterable[int]) -> str:
    return ";".join(map(str, sorted(ids)))
