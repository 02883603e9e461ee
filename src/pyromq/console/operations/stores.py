"""Stores on this machine: verified."""

import shlex
from typing import ClassVar

from pyromq.console.operations.operation import Done, Operation, OperationPlan, Surroundings
from pyromq.console.security.roles import UserRole


class VerifyStore(Operation, frozen=True, kw_only=True):
    """Read every record and every unit of a store that the settings name; it continues after the answer."""

    NAME: ClassVar[str] = "stores.verify"
    ROLE: ClassVar[UserRole] = UserRole.ADMIN
    SECTION: ClassVar[str] = "brokers"

    directory: str

    def line(self, namesrv: str) -> str:
        return shlex.join(["pyromq", "store", "inspect", "--verify", self.directory])

    async def plan(self, around: Surroundings) -> OperationPlan:
        return OperationPlan([{"directory": str(around.store_jobs.require(self.directory))}])

    async def run(self, around: Surroundings) -> Done:
        directory = around.store_jobs.require(self.directory)
        around.store_jobs.verify(directory, around.person)
        return Done([{"directory": str(directory)}], ("brokers", "stores"))
