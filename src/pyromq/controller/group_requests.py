"""Requests about broker groups: every one is carried out by the state machine, for the leader only."""

from typing import Any, TypeVar, cast

from pyromq.clock import Clock
from pyromq.controller.decisions import replicas_info
from pyromq.controller.elections import Elections
from pyromq.controller.liveness import Liveness
from pyromq.controller.store import ControllerStore, NotLeading
from pyromq.errors import Refused, StoreError
from pyromq.protocol.catalogue import Answer, BodyAnswer, Request
from pyromq.protocol.codes import ResponseCode
from pyromq.protocol.requests.controller import (
    AlterSyncStateSet,
    AlterSyncStateSetAnswer,
    ApplyBrokerId,
    ApplyBrokerIdAnswer,
    BrokerReplicasInfo,
    CleanBrokerData,
    ElectMaster,
    ElectMasterAnswer,
    GetNextBrokerId,
    GetNextBrokerIdAnswer,
    GetReplicaInfo,
    GetReplicaInfoAnswer,
    GetSyncStateData,
    RegisterBrokerAtController,
    RegisterBrokerAtControllerAnswer,
)
from pyromq.remoting.channel import Channel
from pyromq.remoting.routing import Caller, handles

A = TypeVar("A", bound=Answer)


class GroupRequests:
    def __init__(
        self, elections: Elections, store: ControllerStore, liveness: Liveness[Channel], clock: Clock
    ) -> None:
        self._elections = elections
        self._store = store
        self._liveness = liveness
        self._clock = clock

    def __repr__(self) -> str:
        return f"<GroupRequests {self._elections!r}>"

    async def _execute(self, name: str | None, request: Request[A]) -> A:
        try:
            outcome = await self._elections.execute(name or "", request)
        except (NotLeading, StoreError) as problem:
            raise _refusal(problem) from None
        answer = outcome.answer
        if type(answer) is Answer and answer.code != ResponseCode.SUCCESS:
            raise Refused(answer.code, answer.remark)
        return cast(Any, answer)  # type: ignore[no-any-return]

    @handles(GetNextBrokerId)
    async def next_id(self, request: GetNextBrokerId, caller: Caller) -> GetNextBrokerIdAnswer:
        return await self._execute(request.broker_name, request)

    @handles(ApplyBrokerId)
    async def apply_id(self, request: ApplyBrokerId, caller: Caller) -> ApplyBrokerIdAnswer:
        return await self._execute(request.broker_name, request)

    @handles(RegisterBrokerAtController)
    async def register(
        self, request: RegisterBrokerAtController, caller: Caller
    ) -> RegisterBrokerAtControllerAnswer:
        answer = await self._execute(request.broker_name, request)
        # It will ask for an election next, perhaps before its first heartbeat has arrived.
        member = request.broker_name or "", request.broker_id or 0
        now = self._clock.monotonic()
        self._liveness.greet(request.cluster_name or "", member, caller.channel, now)
        return answer

    @handles(ElectMaster)
    async def elect(self, request: ElectMaster, caller: Caller) -> ElectMasterAnswer:
        return await self._execute(request.broker_name, request)

    @handles(AlterSyncStateSet)
    async def alter_sync_set(self, request: AlterSyncStateSet, caller: Caller) -> AlterSyncStateSetAnswer:
        return await self._execute(request.broker_name, request)

    @handles(GetReplicaInfo)
    async def replica_info(self, request: GetReplicaInfo, caller: Caller) -> GetReplicaInfoAnswer:
        return await self._execute(request.broker_name, request)

    @handles(CleanBrokerData)
    async def clean(self, request: CleanBrokerData, caller: Caller) -> Answer:
        return await self._execute(request.broker_name, request)

    @handles(GetSyncStateData)
    async def sync_state_data(
        self, request: GetSyncStateData, caller: Caller
    ) -> BodyAnswer[BrokerReplicasInfo]:
        try:
            found = await self._store.read_all()
        except (NotLeading, StoreError) as problem:
            raise _refusal(problem) from None
        groups = [found[name].group for name in dict.fromkeys(request.body) if name in found]
        table = {
            group.name: replicas_info(group, self._elections.situation_of(group.name).heard)
            for group in groups
            if group is not None and group.replicas
        }
        return BodyAnswer(body=BrokerReplicasInfo(replicas_info_table=table))


def _refusal(problem: NotLeading | StoreError) -> Refused:
    if isinstance(problem, NotLeading):
        return Refused(ResponseCode.CONTROLLER_NOT_LEADER, str(problem))
    return Refused(ResponseCode.SYSTEM_ERROR, f"whether this was carried out is not known: {problem}")
