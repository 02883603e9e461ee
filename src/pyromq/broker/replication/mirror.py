"""A mirror: a broker whose master is the one of its name in another cluster.

It copies log and tables as a replica does, and appends nothing. It never counts as in sync there, and it is
unknown to the controllers of both clusters. Name servers of the other cluster tell where the master is.

Two clusters may have given out the same epochs. So before this log is cut to what the other one has, the last
messages that it keeps are compared.

When it is promoted, the controllers of this cluster choose a master in an epoch that is newer than all
those that it has copied. So a broker of the other cluster that becomes a mirror of this one cuts its log
where this one left it.
"""

import asyncio
import logging
import zlib
from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple

from pyromq.broker.context import Context
from pyromq.broker.replication.agreement import is_same_message, log_range
from pyromq.broker.replication.identity import JOINED, MIRRORING, PROMOTED, IdentityFiles, MirrorState
from pyromq.broker.replication.replica import Replica
from pyromq.broker.tables.role import Role
from pyromq.config.settings_file import SettingsFile
from pyromq.errors import PyroError, Refused, StateError, StoreError, TransportError
from pyromq.protocol.codes import ResponseCode
from pyromq.protocol.names import MASTER_ID
from pyromq.protocol.requests.pulling import ViewMessage
from pyromq.protocol.requests.replication import (
    EpochEntryCache,
    GetEpochs,
    PromoteMirror,
    PromoteMirrorAnswer,
)
from pyromq.protocol.requests.routes import GetClusterInfo
from pyromq.remoting.dialer import Dialer
from pyromq.remoting.routing import Caller, handles
from pyromq.remoting.settings import addresses_in
from pyromq.store.log.epochs import Epoch, Epochs, agreed_end

_log = logging.getLogger(__name__)

_TIMEOUT_S = 5.0
_RETRY_S = 0.5
_ROLE_S = 10.0
_FIRST_ID = 1 << 32
"""Ids of a group's own brokers are far below."""


class MirroredMaster(NamedTuple):
    """The master in the other cluster, when it answered last."""

    cluster: str
    address: str
    epoch: int
    log_end: int
    heard_ms: int


class Mirror:
    def __init__(
        self,
        context: Context,
        replica: Replica,
        dialer: Dialer,
        identity: IdentityFiles,
        settings_file: SettingsFile,
        address: str,
        *,
        role_known: Callable[[], None],
    ) -> None:
        """Raises ConfigError if the store belongs to another broker, StoreError if it cannot be written."""
        settings = context.live.now
        self._live = context.live
        self._store = context.store
        self._role = context.tables.role
        self._clock = context.clock
        self._replica = replica
        self._dialer = dialer
        self.identity = identity
        self.address = address
        """Where this broker serves requests."""
        self._settings_file = settings_file
        self._role_known = role_known
        name = f"{settings.broker_cluster_name} {address}"
        self._id = _FIRST_ID + zlib.crc32(name.encode())
        self.of = settings.mirror_of
        self._state = identity.read_mirror()
        self.is_over = asyncio.Event()
        """Set if this broker is not a mirror, and when it is promoted."""
        self.has_joined = asyncio.Event()
        """Set when it has a role in its own cluster."""
        self.source: MirroredMaster | None = None
        self.cut: tuple[int, int] | None = None
        """From where to where this log had messages that the other one has not, if there were some."""
        self.problem = ""
        """Why the other log is not copied, and will not be without an operator."""
        self.trouble = ""
        """Why it is not copied at the moment."""
        self._is_same_log = False
        self._heard = context.clock.monotonic()
        self._begin()

    def __repr__(self) -> str:
        return f"<Mirror of {self.of} {self.source}>" if self.is_on else "<Mirror, not one any more>"

    @property
    def is_on(self) -> bool:
        return not self.is_over.is_set()

    @property
    def was_one(self) -> bool:
        """Whether controllers have given this broker no role since it was a mirror."""
        return not self.is_on and self._state is not None and self._state.step != JOINED

    @property
    def behind_bytes(self) -> int:
        """How much of the other log is not here, as of the last answer."""
        return 0 if self.source is None else max(0, self.source.log_end - self._store.log.end)

    @property
    def silent_s(self) -> float:
        """Since the other master answered; at first, since the start."""
        return self._clock.monotonic() - self._heard

    def figures(self) -> dict[str, str]:
        """For the runtime information."""
        if not self.is_on:
            return {}
        source, cut = self.source, self.cut
        found = {
            "mirrorOf": self.of,
            "mirrorIsConnected": str(self._replica.is_connected).lower(),
            "mirrorProblem": self.problem or self._replica.problem or self.trouble,
        }
        if source is not None:
            found |= {
                "mirrorCluster": source.cluster,
                "mirrorMaster": source.address,
                "mirrorEpoch": str(source.epoch),
                "mirrorLogEnd": str(source.log_end),
                "mirrorBehindBytes": str(self.behind_bytes),
                "mirrorHeardMs": str(source.heard_ms),
            }
        if cut is not None:
            found |= {"mirrorCutFrom": str(cut[0]), "mirrorCutTo": str(cut[1])}
        return found

    def _begin(self) -> None:
        state = self._state
        if not self.of or (state is not None and state.of == self.of and state.step != MIRRORING):
            if self.of:
                _log.warning("mirrorOf=%s has no effect: this broker was promoted since", self.of)
            elif state is not None and state.step == JOINED:
                self.identity.drop_mirror()
            self.is_over.set()
            return
        self._note(MIRRORING)
        # Its id here is that of the settings: clients read from it as from a master.
        listed_id = max(self._live.now.broker_id, MASTER_ID)
        self._role.change(Role(self._id, 0, self.of, listed_id))

    def _note(self, step: int) -> None:
        self._state = MirrorState(self.of or (self._state.of if self._state else ""), step)
        try:
            self.identity.write_mirror(self._state)
        except OSError as problem:
            raise StoreError(f"it cannot be noted whether this broker is a mirror: {problem}") from problem

    def joined(self) -> None:
        """The controllers of this cluster have given this broker a role."""
        if self.was_one:
            try:
                self._note(JOINED)
            except StoreError as problem:
                _log.warning("%s", problem)
        self.has_joined.set()

    # Following

    async def run(self) -> None:
        if self.is_on:
            self._role_known()
        while self.is_on:
            pause_s = self._live.now.controller_poll_ms / 1000
            try:
                await self._look()
                self.problem = self.trouble = ""
            except (PyroError, OSError) as problem:
                pause_s = _RETRY_S
                self._complain(problem)
            if not self._replica.is_connected:
                pause_s = min(pause_s, _RETRY_S)
            with suppress(TimeoutError):
                async with asyncio.timeout(pause_s):
                    await self.is_over.wait()

    def _complain(self, problem: Exception) -> None:
        self.problem = str(problem) if isinstance(problem, StateError) else ""
        if self.trouble != str(problem):
            self.trouble = str(problem)
            level = logging.ERROR if self.problem else logging.WARNING
            _log.log(level, "the other cluster's master is not known name_servers=%s: %s", self.of, problem)

    async def _look(self) -> None:
        """Find the master, and follow it if it is another one or of another epoch."""
        cluster, master = await self._find_master()
        try:
            told = (await self._dialer.call(master, GetEpochs(), _TIMEOUT_S)).body
        except Refused as refusal:
            raise StateError(
                f"{master} has no epochs, without which this log cannot follow it ({refusal.remark}): mirrors"
                " need controllers in both clusters"
            ) from None
        theirs = tuple(Epoch(each.epoch, each.start_offset) for each in told.epoch_list)
        if not theirs:
            raise TransportError(f"{master} has not been master yet")
        epoch = theirs[-1].number
        if epoch < self._role.now.epoch:
            raise TransportError(f"{master} has epoch {epoch}, and {self._role.now.epoch} has begun")
        if epoch < self._store.epochs.newest:
            raise StateError(
                f"the log of {master} is of epoch {epoch}, and this one is newer, of epoch"
                f" {self._store.epochs.newest}: nothing is copied. If that cluster counts nevertheless, stop"
                " this broker and move its store away"
            )
        if not self._replica.is_connected and self._store.log.end:
            await self._check_gap(master)
        if not self._is_same_log:
            await self._compare(master, theirs, told)
        if not self.is_on:
            return
        self._heard = self._clock.monotonic()
        former, self.source = (
            self.source,
            MirroredMaster(cluster, master, epoch, told.max_offset, self._clock.now_ms()),
        )
        if former is None or (former.address, former.epoch) != (master, epoch):
            self._replica.cluster = cluster
            role = self._role.now
            self._role.change(Role(role.broker_id, epoch, role.mirror_of, role.listed_id))
            self._replica.follow(master)
            _log.info("mirror follows cluster=%s master=%s epoch=%d", cluster, master, epoch)

    async def _find_master(self) -> tuple[str, str]:
        name = self._live.now.broker_name
        problem: PyroError = TransportError("there are no name servers")
        for address in addresses_in(self.of, key="mirrorOf"):
            try:
                info = (await self._dialer.call(address, GetClusterInfo(), _TIMEOUT_S)).body
            except PyroError as failure:
                problem = failure
                continue
            group = info.broker_addr_table.get(name)
            if group is None or MASTER_ID not in group.broker_addrs:
                problem = TransportError(f"the name server {address} knows no master of broker group {name}")
                continue
            return group.cluster or "", group.broker_addrs[MASTER_ID]
        raise problem

    async def _check_gap(self, master: str) -> None:
        start, _ = await log_range(self._dialer, master)
        if self._store.log.end < start:
            raise StateError(
                f"this log ends at {self._store.log.end}, the oldest file of {master} begins at {start}: the"
                " files in between are deleted there. To copy it from there on, stop this broker and move its"
                " store away; with a lake tier, readers still find all messages"
            )

    async def _compare(self, master: str, theirs: Epochs, told: EpochEntryCache) -> None:
        """Raises StateError if this is not the log of the other cluster up to where their epochs part."""
        ours, end = self._store.epochs.epochs, self._store.log.end
        if end:
            agreed = agreed_end(ours, end, theirs, told.max_offset) if ours else min(end, told.max_offset)
            try:
                place = self._store.cutting.last_record_before(agreed) if agreed else None
            except StoreError:
                place = None
            own = None if place is None else self._store.log.record_at(place)
            other = b"" if place is None else await self._record_of(master, place)
            if own is None or not is_same_message(own, other):
                raise StateError(
                    f"this log and that of {master} have different messages before log offset {agreed}: they"
                    " are not copies of one log. To copy that one, stop this broker and move its store away"
                )
            if agreed is not None and agreed < end:
                self.cut = agreed, end
                _log.error(
                    "this broker has messages that the cluster it mirrors never had: they are cut off, and"
                    " kept under damaged/ from=%d to=%d",
                    agreed,
                    end,
                )
        self._is_same_log = True

    async def _record_of(self, master: str, place: int) -> bytes:
        try:
            return (await self._dialer.call(master, ViewMessage(offset=place), _TIMEOUT_S)).body
        except Refused:
            return b""

    # Promotion

    @handles(PromoteMirror)
    async def promote(self, request: PromoteMirror, caller: Caller) -> PromoteMirrorAnswer:
        if not self.is_on:
            raise Refused(ResponseCode.INVALID_PARAMETER, "this broker is not a mirror")
        try:
            await self._look()
            problem = ""
        except (PyroError, OSError) as failure:
            problem = f"the other cluster's master cannot be asked: {failure}"
        behind = self.behind_bytes
        if not problem and behind:
            problem = f"{behind} bytes of the log of {self.source} are not here"
        if problem and not request.accept_loss:
            raise Refused(
                ResponseCode.NO_PERMISSION,
                f"not promoted, messages might be lost: {problem}. Wait, or promote it with acceptLoss",
            )
        end = self._store.log.end
        _log.warning(
            "mirror promoted by=%s log_end=%d behind=%d source=%s %s",
            *(caller.address, end, behind, self.source, problem),
        )
        self._note(PROMOTED)
        with suppress(StoreError):  # what was noted counts
            await self._settings_file.save({"mirrorOf": ""})
        self.is_over.set()
        self._replica.follow_nobody()
        with suppress(TimeoutError):
            async with asyncio.timeout(_ROLE_S):
                await self.has_joined.wait()
        source = self.source
        return PromoteMirrorAnswer(
            log_end=end,
            source_end=None if source is None else source.log_end,
            source_heard=None if source is None else source.heard_ms,
            epoch=self._role.now.epoch if self.has_joined.is_set() else None,
            master=self._role.now.is_master,
            remark=problem or None,
        )
