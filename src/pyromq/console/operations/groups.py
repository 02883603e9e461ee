"""Consumer groups: made, changed and deleted."""

from typing import Any, ClassVar

import msgspec

from pyromq.admin import groups
from pyromq.admin.attributes import GROUP, Attribute, as_changes
from pyromq.admin.cluster import BrokerMember, Cluster
from pyromq.admin.failures import NotFound
from pyromq.console.operations.operation import Done, Operation, OperationPlan, Surroundings, mqadmin
from pyromq.console.operations.settings import with_fields
from pyromq.console.security.roles import UserRole
from pyromq.protocol.catalogue import Answer
from pyromq.protocol.requests.groups import SubscriptionGroupConfig

_Fields: Any = with_fields("group", GROUP)


class PutGroup(_Fields, frozen=True, kw_only=True):  # type: ignore[misc, call-arg]
    """Create a group, or change one."""

    NAME: ClassVar[str] = "groups.put"
    SECTION: ClassVar[str] = "groups"
    SUBJECT: ClassVar[str] = "group"
    ATTRIBUTES: ClassVar[tuple[Attribute, ...]] = GROUP
    COMMAND: ClassVar[str] = "updateSubGroup -g"

    def more_flags(self) -> dict[str, object]:
        changes = self.changes(self.new())
        return {"--attributes": ",".join(f"{key}={value}" for key, value in changes.items()) or None}

    @classmethod
    async def config(cls, cluster: Cluster, address: str, name: str) -> SubscriptionGroupConfig | None:
        return await groups.config(cluster, address, name)

    def new(self) -> SubscriptionGroupConfig:
        return SubscriptionGroupConfig(group_name=self.group)

    async def put(
        self,
        cluster: Cluster,
        addresses: list[str],
        wanted: SubscriptionGroupConfig,
        changes: dict[str, str],
    ) -> dict[str, Answer]:
        wanted.attributes = as_changes(wanted.attributes) | changes
        return await groups.put(cluster, addresses, wanted)


class DeleteGroupOperation(Operation, frozen=True, kw_only=True):
    NAME: ClassVar[str] = "groups.delete"
    ROLE: ClassVar[UserRole] = UserRole.ADMIN
    TYPED: ClassVar[str] = "group"
    SECTION: ClassVar[str] = "groups"

    group: str
    with_offsets: bool = True
    in_cluster: str = ""

    def touched(self) -> tuple[str, ...]:
        return (self.group,)

    def line(self, namesrv: str) -> str:
        flags = {"-c": self.in_cluster or "CLUSTER", "-g": self.group, "-r": str(self.with_offsets).lower()}
        return mqadmin("deleteSubGroup", namesrv, flags)

    async def _found(self, around: Surroundings) -> list[tuple[BrokerMember, SubscriptionGroupConfig]]:
        found = await groups.configs_of(around.cluster, self.group)
        there = [each for each in found if self.in_cluster in ("", each[0].cluster)]
        if not there:
            raise NotFound(f"there is no group {self.group} in cluster {self.in_cluster}")
        return there

    async def plan(self, around: Surroundings) -> OperationPlan:
        found = await self._found(around)
        before = {member.address: msgspec.to_builtins(settings) for member, settings in found}
        return OperationPlan(
            [{"broker": member.broker_name, "address": member.address} for member, _ in found], before
        )

    async def run(self, around: Surroundings) -> Done:
        found = await self._found(around)
        addresses = [member.address for member, _ in found]
        done = await groups.delete(around.cluster, addresses, self.group, with_offsets=self.with_offsets)
        for name in sorted({member.cluster for member, _ in found}):
            await groups.delete_leftovers(around.cluster, self.group, name)
        return Done([{"address": address} for address in done], ("groups",))
