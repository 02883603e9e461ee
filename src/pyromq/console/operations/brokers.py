"""Brokers and name servers: settings of running servers, draining, and cleaning up."""

from typing import ClassVar, Literal

from pyromq.admin import brokers, kv, name_servers
from pyromq.admin.failures import NotFound
from pyromq.console.operations.operation import Done, Operation, OperationPlan, Surroundings, mqadmin
from pyromq.console.secrets import masked
from pyromq.console.security.roles import UserRole


class SetOnBroker(Operation, frozen=True, kw_only=True):
    """Change one setting of a running broker."""

    NAME: ClassVar[str] = "brokers.set"
    ROLE: ClassVar[UserRole] = UserRole.ADMIN
    SECTION: ClassVar[str] = "brokers"

    address: str
    key: str
    value: str

    def line(self, namesrv: str) -> str:
        flags = {"-b": self.address, "-k": self.key, "-v": self.value}
        return mqadmin("updateBrokerConfig", namesrv, flags)

    async def _now(self, around: Surroundings) -> str:
        await _registered(around, self.address)
        settings = await brokers.config(around.cluster, self.address)
        name_servers.require_setting(f"broker {self.address}", settings, self.key)
        return settings[self.key]

    async def plan(self, around: Surroundings) -> OperationPlan:
        now = masked(self.key, await self._now(around))
        row = {"address": self.address, "setting": self.key, "value_now": now, "value_wanted": self.value}
        return OperationPlan([row], {self.key: now})

    async def run(self, around: Surroundings) -> Done:
        await self._now(around)
        remarks = await brokers.update_config(around.cluster, [self.address], self.key, self.value)
        return Done([{"address": self.address, "remark": remarks.get(self.address, "")}], ("brokers",))


class DrainBroker(Operation, frozen=True, kw_only=True):
    """Make a broker and its replicas read-only, or writable again: producers go elsewhere, consumers
    finish."""

    NAME: ClassVar[str] = "brokers.drain"
    ROLE: ClassVar[UserRole] = UserRole.ADMIN
    TYPED: ClassVar[str] = "broker"
    SECTION: ClassVar[str] = "brokers"

    broker: str
    writable: bool = False

    def line(self, namesrv: str) -> str:
        line = mqadmin("drainBroker", namesrv, {"-b": self.broker})
        return f"{line} --undo" if self.writable else line

    async def plan(self, around: Surroundings) -> OperationPlan:
        address = await around.cluster.broker_address(self.broker)
        wanted = "rw" if self.writable else "r"
        members = await brokers.of_same_groups(around.cluster, [address])
        return OperationPlan(
            [{"broker": self.broker, "address": each.address, "value_wanted": wanted} for each in members]
        )

    async def run(self, around: Surroundings) -> Done:
        members = await brokers.set_drained(around.cluster, self.broker, is_drained=not self.writable)
        return Done([{"address": each.address} for each in members], ("brokers",))


class CleanBroker(Operation, frozen=True, kw_only=True):
    """Have a broker clean up now instead of at its hour."""

    NAME: ClassVar[str] = "brokers.clean"
    ROLE: ClassVar[UserRole] = UserRole.ADMIN
    SECTION: ClassVar[str] = "brokers"

    address: str
    what: Literal["expired_log", "expired_queues", "unused_topics"] = "expired_queues"

    def line(self, namesrv: str) -> str:
        commands = {
            "expired_log": "deleteExpiredCommitLog",
            "expired_queues": "cleanExpiredCQ",
            "unused_topics": "cleanUnusedTopic",
        }
        return mqadmin(commands[self.what], namesrv, {"-b": self.address})

    async def plan(self, around: Surroundings) -> OperationPlan:
        await _registered(around, self.address)
        return OperationPlan([{"address": self.address, "what": self.what}])

    async def run(self, around: Surroundings) -> Done:
        await _registered(around, self.address)
        clean = {
            "expired_log": brokers.delete_expired_log,
            "expired_queues": brokers.clean_expired_queues,
            "unused_topics": brokers.clean_unused_topics,
        }[self.what]
        return Done([{"address": each} for each in await clean(around.cluster, [self.address])], ("brokers",))


class SetOnNameServers(Operation, frozen=True, kw_only=True):
    """Change one setting of every name server."""

    NAME: ClassVar[str] = "nameservers.set"
    ROLE: ClassVar[UserRole] = UserRole.ADMIN
    SECTION: ClassVar[str] = "nameservers"

    key: str
    value: str

    def line(self, namesrv: str) -> str:
        return mqadmin("updateNamesrvConfig", namesrv, {"-k": self.key, "-v": self.value})

    async def plan(self, around: Surroundings) -> OperationPlan:
        found = await name_servers.config(around.cluster)
        now = {address: masked(self.key, settings.get(self.key, "")) for address, settings in found.items()}
        rows = [
            {"address": address, "setting": self.key, "value_now": value, "value_wanted": self.value}
            for address, value in now.items()
        ]
        return OperationPlan(rows, now)

    async def run(self, around: Surroundings) -> Done:
        remarks = await name_servers.update_config(around.cluster, self.key, self.value)
        rows = [{"address": address, "remark": remark} for address, remark in remarks.items()]
        return Done(rows, ("nameservers",))


class PutEntry(Operation, frozen=True, kw_only=True):
    """Set a key-value entry of all name servers; an empty value deletes it."""

    NAME: ClassVar[str] = "nameservers.kv"
    ROLE: ClassVar[UserRole] = UserRole.ADMIN
    SECTION: ClassVar[str] = "nameservers"

    namespace: str
    key: str
    value: str = ""

    def line(self, namesrv: str) -> str:
        flags = {"-s": self.namespace, "-k": self.key, "-v": self.value}
        return mqadmin("updateKvConfig" if self.value else "deleteKvConfig", namesrv, flags)

    async def plan(self, around: Surroundings) -> OperationPlan:
        try:
            now = await kv.get(around.cluster, self.namespace, self.key)
        except NotFound:
            now = None
        row = {"setting": self.key, "value_now": now, "value_wanted": self.value}
        return OperationPlan([row], {self.key: now})

    async def run(self, around: Surroundings) -> Done:
        if self.value:
            await kv.put(around.cluster, self.namespace, self.key, self.value)
        else:
            await kv.delete(around.cluster, self.namespace, self.key)
        return Done([{"setting": self.key, "value_wanted": self.value}], ("nameservers",))


async def _registered(around: Surroundings, address: str) -> None:
    """Only brokers of the cluster are dialled, never an address that a form brings."""
    await around.cluster.broker_name(address)
