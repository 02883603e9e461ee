"""Users and policies of the cluster's own access control. A password goes to the brokers and nowhere else."""

from collections.abc import Awaitable, Collection, Mapping
from typing import ClassVar, Literal

from pyromq.admin import access, access_overview
from pyromq.admin.cluster import Cluster
from pyromq.admin.failures import PartlyFailed
from pyromq.console.operations.operation import Done, Operation, OperationPlan, Row, Surroundings, mqadmin_at
from pyromq.console.operations.settings import masters_at, partly_done
from pyromq.console.security.roles import UserRole
from pyromq.protocol.quotas import OF_USERS
from pyromq.protocol.requests.access import UserInfo
from pyromq.security.users import SUBJECT_PREFIX

PolicyType = Literal["Custom", "Default"]


class _OnMasters(Operation, frozen=True, kw_only=True):
    """Rules shared by all: administrators alone, on every master or on those named."""

    ROLE: ClassVar[UserRole] = UserRole.ADMIN
    SECTION: ClassVar[str] = "access"

    user: str
    in_cluster: str = ""
    at: str = ""

    @property
    def subject(self) -> str:
        return f"{SUBJECT_PREFIX}{self.user}"

    def touched(self) -> tuple[str, ...]:
        # Who may change only topics and groups with certain names may not change users.
        return (self.subject,)

    def _line(self, command: str, namesrv: str, flags: dict[str, object]) -> str:
        return mqadmin_at(command, namesrv, self.in_cluster, self.at, flags)

    async def _addresses(self, around: Surroundings) -> list[str]:
        return [member.address for member in await masters_at(around.cluster, self.in_cluster, self.at)]

    async def _done(self, work: Awaitable[Collection[str]]) -> Done:
        try:
            return Done([{"address": address} for address in await work], ("access",))
        except PartlyFailed as partly:
            return partly_done(partly, self)

    async def plan(self, around: Surroundings) -> OperationPlan:
        """This user's present settings at the brokers."""
        now = await access_overview.of_cluster(around.cluster)
        users: list[Row] = [
            {
                "broker": ", ".join(brokers),
                "user": row.name,
                "type": row.type,
                "status": row.status,
                "quotas": ", ".join(f"{name}={value}" for name, value in row.quotas),
            }
            for row, brokers in now.users.items()
            if row.name == self.user
        ]
        policies: list[Row] = [
            {
                "broker": ", ".join(brokers),
                "resource": row.resource,
                "actions": ", ".join(row.actions),
                "source_ips": ", ".join(row.source_ips),
                "decision": row.decision,
            }
            for row, brokers in now.policies.items()
            if row.subject == self.subject
        ]
        rows = policies if self.NAME.startswith("access.policy") else users
        return OperationPlan(rows, {"users": users, "policies": policies})


class CreateUserOperation(_OnMasters, frozen=True, kw_only=True):
    NAME: ClassVar[str] = "access.user.create"
    SECRET: ClassVar[str] = "password"

    password: str
    user_type: Literal["Normal", "Super"] = "Normal"

    def line(self, namesrv: str) -> str:
        return self._line("createUser", namesrv, {"-u": self.user, "-t": self.user_type})

    async def run(self, around: Surroundings) -> Done:
        info = UserInfo(password=self.password, user_type=self.user_type)
        addresses = await self._addresses(around)
        return await self._done(access.create_user(around.cluster, addresses, self.user, info))


class ChangeUser(_OnMasters, frozen=True, kw_only=True):
    """Fields that are left empty stay as they are."""

    NAME: ClassVar[str] = "access.user.change"
    SECRET: ClassVar[str] = "password"

    password: str = ""
    user_type: Literal["", "Normal", "Super"] = ""
    user_status: Literal["", "enable", "disable"] = ""
    quota_send_messages: int | None = None
    quota_send_bytes: int | None = None
    quota_read_messages: int | None = None
    quota_read_bytes: int | None = None

    @classmethod
    async def fields_now(cls, cluster: Cluster, given: Mapping[str, str]) -> dict[str, str]:
        """The quotas as they are, of the first broker that has any."""
        if not (name := given.get("user")):
            return {}
        now = await access_overview.of_cluster(cluster)
        found = [dict(row.quotas) for row in now.users if row.name == name and row.quotas]
        return {_field(quota): value for quota, value in found[0].items()} if found else {}

    def _quotas(self) -> dict[str, str]:
        given = {quota: getattr(self, _field(quota)) for quota in OF_USERS}
        return {quota: str(value) for quota, value in given.items() if value is not None}

    def line(self, namesrv: str) -> str:
        changes = (
            f"+{quota}={value}" if value != "0" else f"-{quota}" for quota, value in self._quotas().items()
        )
        flags = {
            "-u": self.user,
            "-p": "-" if self.password else "",
            "-t": self.user_type,
            "-s": self.user_status,
            "--attributes": ",".join(changes),
        }
        return self._line("updateUser", namesrv, dict(flags))

    async def run(self, around: Surroundings) -> Done:
        info = UserInfo(
            password=self.password or None,
            user_type=self.user_type or None,
            user_status=self.user_status or None,
            attributes=self._quotas() or None,
        )
        addresses = await self._addresses(around)
        return await self._done(access.update_user(around.cluster, addresses, self.user, info))


class DeleteUserOperation(_OnMasters, frozen=True, kw_only=True):
    """With its policies."""

    NAME: ClassVar[str] = "access.user.delete"
    TYPED: ClassVar[str] = "user"

    def line(self, namesrv: str) -> str:
        return self._line("deleteUser", namesrv, {"-u": self.user})

    async def run(self, around: Surroundings) -> Done:
        addresses = await self._addresses(around)
        return await self._done(access.delete_user(around.cluster, addresses, self.user))


class PutPolicy(_OnMasters, frozen=True, kw_only=True):
    """Allow or deny; an entry replaces the one of the same resource."""

    NAME: ClassVar[str] = "access.policy.put"

    resources: str
    actions: str
    decision: Literal["Allow", "Deny"] = "Allow"
    source_ips: str = ""
    policy_type: PolicyType = "Custom"

    def line(self, namesrv: str) -> str:
        if self.policy_type != "Custom":
            return ""
        flags: dict[str, object] = {
            "-s": self.subject,
            "-r": ",".join(_split(self.resources)),
            "-a": ",".join(_split(self.actions)),
            "-d": self.decision,
            "-i": ",".join(_split(self.source_ips)),
        }
        return self._line("updateAcl", namesrv, flags)

    async def run(self, around: Surroundings) -> Done:
        info = access.acl(
            _split(self.resources),
            _split(self.actions),
            self.decision,
            _split(self.source_ips),
            self.policy_type,
        )
        addresses = await self._addresses(around)
        return await self._done(access.update_acl(around.cluster, addresses, self.subject, info))


class DeletePolicy(_OnMasters, frozen=True, kw_only=True):
    """The entry of one resource, or all policies of the user."""

    NAME: ClassVar[str] = "access.policy.delete"
    TYPED: ClassVar[str] = "user"

    resource: str = ""
    policy_type: PolicyType = "Custom"

    def line(self, namesrv: str) -> str:
        if self.resource and self.policy_type != "Custom":
            return ""
        return self._line("deleteAcl", namesrv, {"-s": self.subject, "-r": self.resource})

    async def run(self, around: Surroundings) -> Done:
        addresses = await self._addresses(around)
        return await self._done(
            access.delete_acl(
                around.cluster,
                addresses,
                self.subject,
                self.resource or None,
                self.policy_type if self.resource else None,
            )
        )


def _field(quota: str) -> str:
    return quota.replace(".", "_")


def _split(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]
