"""The parts of an operation: fields, the role it needs, what it would do, and what it did.

Pages, JSON and everything else go through `perform.py`, which checks the role here, on the operation.
"""

import shlex
from collections.abc import Mapping
from typing import Any, ClassVar

import msgspec

from pyromq.admin.cluster import Cluster
from pyromq.console.security.audit import AuditEntry
from pyromq.console.security.roles import UserRole
from pyromq.console.store_jobs import StoreJobs

Row = dict[str, Any]


class OperationPlan(msgspec.Struct):
    """The preview of an operation: one row for each thing it changes, and what the audit log keeps of
    before."""

    rows: list[Row] = []
    before: Any = None
    warning: str = ""


class Done(msgspec.Struct):
    """The result of an operation; `again` are the fields of an operation for what failed, `open` a page to go
    to."""

    rows: list[Row] = []
    open: tuple[str, ...] = ()
    failed: dict[str, str] = {}
    again: dict[str, str] = {}


class Surroundings(msgspec.Struct):
    """The parts of the console that an operation may use."""

    cluster: Cluster
    store_jobs: StoreJobs
    person: str
    undone: AuditEntry | None = None
    """For an undo: the line of the audit log that announced what is undone."""


class Operation(msgspec.Struct, frozen=True, kw_only=True):
    """The fields of a class are the fields of its form."""

    NAME: ClassVar[str]
    ROLE: ClassVar[UserRole]
    TYPED: ClassVar[str] = ""
    """The field whose value a person types again before something is deleted."""
    LONG: ClassVar[tuple[str, ...]] = ()
    """Fields with several lines."""
    SECRET: ClassVar[str] = ""
    """The field that is shown nowhere again: not on pages, not in URLs, not in the audit log."""
    SECTION: ClassVar[str] = ""
    """The entry of the rail."""
    CAN_BE_UNDONE: ClassVar[bool] = False

    def touched(self) -> tuple[str, ...]:
        """The topics and groups that change, for patterns of names."""
        return ()

    def line(self, namesrv: str) -> str:
        """The `mqadmin` line that does the same; empty if `mqadmin` cannot."""
        return ""

    @classmethod
    async def fields_now(cls, cluster: Cluster, given: Mapping[str, str]) -> dict[str, str]:
        """The form's values for fields that its URL does not name: the present ones of what is changed."""
        return {}

    def typed(self) -> str:
        return str(getattr(self, self.TYPED)) if self.TYPED else ""

    async def plan(self, around: Surroundings) -> OperationPlan:
        """Previews the change; asks, and changes nothing."""
        return OperationPlan()

    async def run(self, around: Surroundings) -> Done:
        raise NotImplementedError

    def told_fields(self) -> dict[str, Any]:
        """The fields, without the secret one."""
        found = msgspec.structs.asdict(self)
        found.pop(self.SECRET, None)
        return found


def mqadmin_at(
    command: str, namesrv: str, in_cluster: str, addresses: str, flags: Mapping[str, object]
) -> str:
    """A line for the masters of a cluster, or one for each of the addresses."""
    named = [each.strip() for each in addresses.split(",") if each.strip()]
    places = [{"-b": each} for each in named] or [{"-c": in_cluster or "CLUSTER"}]
    return "\n".join(mqadmin(command, namesrv, {**place, **flags}) for place in places)


def mqadmin(command: str, namesrv: str, flags: Mapping[str, object]) -> str:
    """A line to copy: flags without a value are omitted, True is a flag alone."""
    words = ["mqadmin", command, "-n", namesrv]
    for flag, value in flags.items():
        if value is False or value in (None, ""):
            continue
        words += [flag] if value is True else [flag, str(value)]
    return shlex.join(words)
