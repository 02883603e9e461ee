"""Consumer groups: made, changed and deleted."""

from collections.abc import Mapping
from typing import ClassVar

import msgspec

from pyromq.admin import groups
from pyromq.admin.cluster import BrokerMember, Cluster
from pyromq.admin.failures import NotFound, PartlyFailed
from pyromq.console.operations.operation import Done, Operation, Plan, Row, Surroundings, mqadmin, mqadmin_at
from pyromq.console.operations.topics import masters_at, partly_done
from pyromq.console.security.roles import Role
from pyromq.protocol.bodies.groups import SubscriptionGroupConfig


class PutGroup(Operation, frozen=True, kw_only=True):
    """Create a group, or change one; what the form does not name stays as it is."""

    NAME: ClassVar[str] = "groups.put"
    ROLE: ClassVar[Role] = Role.ADMIN
    SECTION: ClassVar[str] = "groups"

    group: str
    may_consume: bool = True
    may_broadcast: bool = True
    ordered: bool = False
    max_retries: int = 16
    retry_queues: int = 1
    in_cluster: str = ""
    at: str = ""

    def touched(self) -> tuple[str, ...]:
        return (self.group,)

    def line(self, namesrv: str) -> str:
        flags = {
            "-g": self.group,
            "-s": str(self.may_consume).lower(),
            "-d": str(self.may_broadcast).lower(),
            "-o": str(self.ordered).lower(),
            "-r": self.max_retries,
            "-q": self.retry_queues,
        }
        return mqadmin_at("updateSubGroup", namesrv, self.in_cluster, self.at, flags)

    @classmethod
    async def fields_now(cls, cluster: Cluster, given: Mapping[str, str]) -> dict[str, str]:
        if not given.get("group"):
            return {}
        masters = await masters_at(cluster, given.get("in_cluster", ""), given.get("at", ""))
        found = await cluster.known(groups.config(cluster, each.address, given["group"]) for each in masters)
        now = next((config for config in found if config is not None), None)
        if now is None:
            return {}
        return {
            "may_consume": str(now.consume_enable).lower(),
            "may_broadcast": str(now.consume_broadcast_enable).lower(),
            "ordered": str(now.consume_message_orderly).lower(),
            "max_retries": str(now.retry_max_times),
            "retry_queues": str(now.retry_queue_nums),
        }

    async def _addresses(self, around: Surroundings) -> list[str]:
        return [member.address for member in await masters_at(around.cluster, self.in_cluster, self.at)]

    async def plan(self, around: Surroundings) -> Plan:
        rows: list[Row] = []
        before: dict[str, object] = {}
        for address in await self._addresses(around):
            now = await groups.config(around.cluster, address, self.group)
            if now is not None:
                before[address] = msgspec.to_builtins(now)
            rows.append(
                {
                    "address": address,
                    "retries_now": None if now is None else now.retry_max_times,
                    "retries_wanted": self.max_retries,
                    "may_consume_now": None if now is None else now.consume_enable,
                    "may_consume_wanted": self.may_consume,
                }
            )
        return Plan(rows, before)

    async def run(self, around: Surroundings) -> Done:
        addresses = await self._addresses(around)
        now = await groups.config(around.cluster, addresses[0], self.group)
        wanted = SubscriptionGroupConfig(group_name=self.group) if now is None else now
        wanted.consume_enable = self.may_consume
        wanted.consume_broadcast_enable = self.may_broadcast
        wanted.consume_message_orderly = self.ordered
        wanted.retry_max_times = self.max_retries
        wanted.retry_queue_nums = self.retry_queues
        try:
            done = await groups.put(around.cluster, addresses, wanted)
        except PartlyFailed as partly:
            return partly_done(partly, self)
        return Done([{"address": address} for address in done], ("groups", self.group))


class DeleteGroup(Operation, frozen=True, kw_only=True):
    NAME: ClassVar[str] = "groups.delete"
    ROLE: ClassVar[Role] = Role.ADMIN
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

    async def plan(self, around: Surroundings) -> Plan:
        found = await self._found(around)
        before = {member.address: msgspec.to_builtins(settings) for member, settings in found}
        return Plan(
            [{"broker": member.broker_name, "address": member.address} for member, _ in found], before
        )

    async def run(self, around: Surroundings) -> Done:
        found = await self._found(around)
        addresses = [member.address for member, _ in found]
        done = await groups.delete(around.cluster, addresses, self.group, with_offsets=self.with_offsets)
        for name in sorted({member.cluster for member, _ in found}):
            await groups.delete_leftovers(around.cluster, self.group, name)
        return Done([{"address": address} for address in done], ("groups",))
