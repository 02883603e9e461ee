"""Operations that create a topic or a group, or change its settings.

Form, preview and line are made from the declared attributes. Settings that the form does not name stay as
they are.
"""

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

import msgspec

from pyromq.admin.attributes import PERMISSIONS, Attribute, AttributeKind
from pyromq.admin.cluster import BrokerMember, Cluster
from pyromq.admin.failures import NotFound, PartlyFailed
from pyromq.console.operations.operation import Done, Operation, OperationPlan, Row, Surroundings, mqadmin_at
from pyromq.console.security.roles import UserRole
from pyromq.protocol.catalogue import Answer

_FORMS: dict[AttributeKind, Any] = {
    AttributeKind.SWITCH: bool,
    AttributeKind.COUNT: int,
    AttributeKind.NUMBER: int,
    AttributeKind.PERMISSION: Literal["rw", "r", "w"],
}
_WORDS = {bits: word for word, bits in PERMISSIONS.items()}


def _shown(attribute: Attribute, value: Any) -> Any:
    """The value of a field, as forms have it."""
    return _WORDS.get(value, str(value)) if attribute.kind is AttributeKind.PERMISSION else value


class PutSettings(Operation, frozen=True, kw_only=True):
    """Without `at` it is done on every master of the cluster."""

    ROLE: ClassVar[UserRole] = UserRole.ADMIN
    SUBJECT: ClassVar[str]
    """The field with the name of the topic or group."""
    ATTRIBUTES: ClassVar[tuple[Attribute, ...]]
    COMMAND: ClassVar[str]
    """The `mqadmin` command, and its flag for the subject."""

    in_cluster: str = ""
    at: str = ""

    @classmethod
    async def config(cls, cluster: Cluster, address: str, name: str) -> Any:
        """The configuration on one broker; None if it does not have it."""
        raise NotImplementedError

    def new(self) -> Any:
        """A configuration with defaults."""
        raise NotImplementedError

    async def put(
        self, cluster: Cluster, addresses: list[str], wanted: Any, changes: dict[str, str]
    ) -> dict[str, Answer]:
        """`changes`: of its `attributes`."""
        raise NotImplementedError

    def more_flags(self) -> dict[str, object]:
        return {}

    def touched(self) -> tuple[str, ...]:
        return (getattr(self, self.SUBJECT),)

    def chosen(self) -> dict[str, Any]:
        """The form's values, by the fields of attributes."""
        found: dict[str, Any] = {}
        for each in self.ATTRIBUTES:
            if each.form:
                value = getattr(self, each.form)
                found[each.field] = PERMISSIONS[value] if each.kind is AttributeKind.PERMISSION else value
        for each in self.ATTRIBUTES:
            if each.same_as and found[each.field] is None:
                found[each.field] = found[each.same_as]
        return found

    def changes(self, now: Any) -> dict[str, str]:
        """The changes to the `attributes` of a configuration, each named `+name`."""
        chosen = self.chosen()
        return {
            f"+{each.key}": str(chosen[each.field])
            for each in self.ATTRIBUTES
            if each.key and (chosen[each.field] != each.default or each.key in now.attributes)
        }

    def line(self, namesrv: str) -> str:
        command, flag = self.COMMAND.split()
        flags: dict[str, object] = {flag: self.touched()[0]}
        chosen = self.chosen()
        for each in self.ATTRIBUTES:
            if each.form and each.flags:
                value = chosen[each.field]
                flags[each.flag] = str(value).lower() if each.kind is AttributeKind.SWITCH else value
        return mqadmin_at(command, namesrv, self.in_cluster, self.at, flags | self.more_flags())

    @classmethod
    async def fields_now(cls, cluster: Cluster, given: Mapping[str, str]) -> dict[str, str]:
        if not given.get(cls.SUBJECT):
            return {}
        masters = await masters_at(cluster, given.get("in_cluster", ""), given.get("at", ""))
        found = await cluster.known(cls.config(cluster, each.address, given[cls.SUBJECT]) for each in masters)
        now = next((config for config in found if config is not None), None)
        return {} if now is None else cls.shown(now)

    @classmethod
    def shown(cls, config: Any) -> dict[str, str]:
        """The fields of the form for a configuration."""
        found: dict[str, str] = {}
        for each in cls.ATTRIBUTES:
            value = each.of(config)
            if each.form and (not each.same_as or value != getattr(config, each.same_as)):
                text = str(_shown(each, value))
                found[each.form] = text.lower() if each.kind is AttributeKind.SWITCH else text
        return found

    async def _masters(self, around: Surroundings) -> list[BrokerMember]:
        return await masters_at(around.cluster, self.in_cluster, self.at)

    async def plan(self, around: Surroundings) -> OperationPlan:
        rows: list[Row] = []
        before: dict[str, object] = {}
        chosen = self.chosen()
        for member in await self._masters(around):
            now = await self.config(around.cluster, member.address, *self.touched())
            if now is not None:
                before[member.address] = msgspec.to_builtins(now)
            row: Row = {"broker": member.broker_name, "address": member.address}
            for each in self.ATTRIBUTES:
                if each.form:
                    row[f"{each.form}_now"] = None if now is None else _shown(each, each.of(now))
                    row[f"{each.form}_wanted"] = _shown(each, chosen[each.field])
            rows.append(row)
        return OperationPlan(rows, before)

    async def run(self, around: Surroundings) -> Done:
        addresses = [member.address for member in await self._masters(around)]
        wanted = await self.config(around.cluster, addresses[0], *self.touched()) or self.new()
        chosen = self.chosen()
        for each in self.ATTRIBUTES:
            if each.form and not each.key:
                setattr(wanted, each.field, chosen[each.field])
        try:
            done = await self.put(around.cluster, addresses, wanted, self.changes(wanted))
        except PartlyFailed as partly:
            return partly_done(partly, self)
        return Done([{"address": address} for address in done], (self.SECTION, *self.touched()))


def with_fields(subject: str, attributes: tuple[Attribute, ...]) -> Any:
    """The class whose fields are those of the form."""
    fields: list[Any] = [(subject, str)]
    for each in attributes:
        if each.form:
            form, default = _FORMS[each.kind], _shown(each, each.default)
            fields.append((each.form, form | None, None) if each.same_as else (each.form, form, default))
    return msgspec.defstruct(f"{subject}_fields", fields, bases=(PutSettings,), frozen=True, kw_only=True)


async def masters_at(cluster: Cluster, in_cluster: str, at: str) -> list[BrokerMember]:
    """The masters of one cluster, or of all; with `at`, those at these addresses alone."""
    found = await cluster.masters(in_cluster or None)
    wanted = {each.strip() for each in at.split(",") if each.strip()}
    chosen = [member for member in found if not wanted or member.address in wanted]
    if not chosen:
        raise NotFound(f"no master is registered at {at}")
    return chosen


def partly_done(partly: PartlyFailed, operation: Operation) -> Done:
    """Both halves, and the same operation for the half that failed."""
    failed = {address: str(problem) for address, problem in partly.failed.items()}
    told = operation.told_fields()
    again = {key: str(value) for key, value in told.items() if value is not None} | {"at": ",".join(failed)}
    return Done([{"address": address} for address in partly.done], (), failed, again)
