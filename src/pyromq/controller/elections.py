"""Carries out requests about groups, and elects masters for those whose master is gone.

A new master is logged, counted and announced here, whether a broker, an operator or the controller caused it.
A broker that asks who is master waits for an election that is being stored: a master that is being replaced,
and is heard again meanwhile, is not confirmed.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Any
from weakref import WeakValueDictionary

from pyromq.clock import Clock
from pyromq.config.live import LiveSettings
from pyromq.controller.commands import CommandOutcome, Commands
from pyromq.controller.decisions import Situation
from pyromq.controller.groups import GroupRecord
from pyromq.controller.liveness import Liveness
from pyromq.controller.role_notices import RoleNotices
from pyromq.controller.settings import ControllerSettings
from pyromq.controller.store import ControllerStore, NotLeading
from pyromq.errors import StoreError
from pyromq.protocol.catalogue import Request
from pyromq.protocol.codes import ResponseCode
from pyromq.protocol.requests.controller import ElectMaster, GetReplicaInfo, RegisterBrokerAtController
from pyromq.remoting.channel import Channel

_log = logging.getLogger(__name__)

# java: the names that Apache's metrics give to the results of elections
_RESULTS: dict[int, str] = {
    ResponseCode.SUCCESS: "new_master_elected",
    ResponseCode.CONTROLLER_MASTER_STILL_EXIST: "keep_current_master",
    ResponseCode.CONTROLLER_MASTER_NOT_AVAILABLE: "no_master_elected",
    ResponseCode.CONTROLLER_ELECT_MASTER_FAILED: "no_master_elected",
}


class Elections:
    def __init__(
        self,
        store: ControllerStore,
        liveness: Liveness[Channel],
        notices: RoleNotices,
        settings: LiveSettings[ControllerSettings],
        clock: Clock,
        count: Callable[[str, str, str], None],
    ) -> None:
        """`count` is called with the cluster, the group and the result of every election."""
        self._store = store
        self._liveness = liveness
        self._notices = notices
        self._settings = settings
        self._clock = clock
        self._count = count
        self._commands = Commands(store, self.situation_of)
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        """Held while a group elects. A lock that is neither held nor waited for is gone."""

    def __repr__(self) -> str:
        return f"<Elections {self._commands!r}>"

    def situation_of(self, name: str) -> Situation:
        heard = self._liveness.of_group(name, self._clock.monotonic())
        return Situation(heard, self._settings.now.elects_unclean)

    async def execute(self, name: str, request: Request[Any]) -> CommandOutcome:
        """Carry out a request about a group; raises NotLeading or StoreError."""
        if isinstance(request, ElectMaster | GetReplicaInfo):
            async with self._lock(name):
                outcome = await self._commands.execute(name, request)
        else:
            outcome = await self._commands.execute(name, request)
        self._act_on(outcome, is_election=isinstance(request, ElectMaster))
        if isinstance(request, RegisterBrokerAtController) and outcome.after is not outcome.before:
            self._tell_master(outcome.after)
        return outcome

    async def elect_where_masters_are_gone(self) -> None:
        """Elect for every group that needs it. What the store does not do now is tried again later."""
        if not self._store.is_leading:
            return
        for attempt in range(self._settings.now.elect_master_max_retry_count):
            try:
                for name in await self._commands.groups_without_master():
                    async with self._lock(name):
                        self._act_on(await self._commands.elect(name), is_election=True)
            except NotLeading:
                return
            except StoreError as problem:
                _log.error("could not elect masters attempt=%d: %s", attempt + 1, problem)
            else:
                return

    def _lock(self, name: str) -> asyncio.Lock:
        return self._locks.setdefault(name, asyncio.Lock())

    def _act_on(self, outcome: CommandOutcome, *, is_election: bool) -> None:
        before, after = outcome.before, outcome.after
        if after is None:
            return
        if is_election and (result := _RESULTS.get(outcome.answer.code)) is not None:
            self._count(after.cluster, after.name, result)
        if before is not None and before.master_epoch != after.master_epoch and after.master_id is None:
            _log.warning("group has no master group=%s epoch=%d", after.name, after.master_epoch)
        if outcome.new_master is not None:
            self._announce(after)

    def _tell_master(self, group: GroupRecord | None) -> None:
        """A broker has registered: the in-sync set has another version, which proposals must name."""
        if group is not None and group.master_id is not None and self._settings.now.notifies_brokers:
            self._notices.send(group, [group.master_id])

    def _announce(self, group: GroupRecord) -> None:
        _log.info(
            "new master group=%s id=%s address=%s epoch=%d",
            *(group.name, group.master_id, group.master_address, group.master_epoch),
        )
        if self._settings.now.notifies_brokers:
            alive = self.situation_of(group.name).heard.alive
            self._notices.send(group, [each for each in group.replicas if each in alive])
