"""A request becomes a decision: read the group, decide, replace it, and decide again if another was faster.

There is no lock. The store compares revisions, so two requests, or two controllers that both think that they
lead, cannot both change a group from the same state.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

from pyromq.controller.decisions import BY_CONTROLLER, Situation, decide
from pyromq.controller.election import needs_election
from pyromq.controller.groups import GroupRecord
from pyromq.controller.store import ControllerStore
from pyromq.errors import StoreError
from pyromq.protocol.catalogue import Answer, Request
from pyromq.protocol.requests.controller import ElectMaster

MAX_ATTEMPTS = 20


class CommandOutcome(NamedTuple):
    """The outcome of a request: the group before and after it, and the answer."""

    before: GroupRecord | None
    after: GroupRecord | None
    answer: Answer

    @property
    def new_master(self) -> GroupRecord | None:
        """The group, if it has another master epoch with a master now."""
        if self.after is None or self.after.master_id is None:
            return None
        is_new = self.before is None or self.before.master_epoch != self.after.master_epoch
        return self.after if is_new else None


class Commands:
    def __init__(self, store: ControllerStore, situation_of: Callable[[str], Situation]) -> None:
        """`situation_of` returns what is known now about the brokers of a group."""
        self._store = store
        self._situation_of = situation_of

    def __repr__(self) -> str:
        return f"<Commands {self._store!r}>"

    async def execute(self, name: str, request: Request[Any]) -> CommandOutcome:
        """Carry out a request about one group; raises NotLeading or StoreError."""
        for _ in range(MAX_ATTEMPTS):
            stored = await self._store.read(name)
            decision = decide(stored.group, request, self._situation_of(name))
            after = decision.group
            if (
                after is None
                or after is stored.group
                or await self._store.replace(name, after, stored.revision)
            ):
                return CommandOutcome(stored.group, after, decision.answer)
        raise StoreError(f"broker group {name} was changed by others {MAX_ATTEMPTS} times in a row")

    async def groups_without_master(self) -> list[str]:
        """The groups whose master is gone and that may get another one."""
        found = await self._store.read_all()
        return [
            name
            for name, stored in found.items()
            if stored.group is not None and needs_election(stored.group, self._situation_of(name).heard)
        ]

    async def elect(self, name: str) -> CommandOutcome:
        """Have a group elect because its master is gone."""
        return await self.execute(name, ElectMaster(broker_name=name, broker_id=BY_CONTROLLER))
