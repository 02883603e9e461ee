"""Mends of the decisions, undone one at a time: the model must find what each of them was made for."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Final, NamedTuple
from unittest.mock import patch

from msgspec.structs import replace
from tests.model.world import Budget

from pyromq.broker.replication.in_sync_master import InSyncMaster
from pyromq.broker.replication.in_sync_set import InSyncSet
from pyromq.controller import decisions
from pyromq.controller.groups import BrokerGroup

_started: Callable[..., BrokerGroup] = decisions._started
_objection = decisions._objection


def _keeps_the_version(group: BrokerGroup, broker_id: int, *more: Any) -> BrokerGroup:
    after = _started(group, broker_id, *more)
    if broker_id in group.sync_set:
        return after
    return replace(after, sync_set_epoch=group.sync_set_epoch)


def _believes_no_broker(*start: Any) -> BrokerGroup:
    return _started(*start[:-1], None)


def _refuses_the_present_set(group: BrokerGroup | None, request: Any, heard: Any) -> tuple[int, str]:
    if group is not None and request.body.sync_state_set == group.sync_set:
        return 2013, "these are in sync already"
    return _objection(group, request, heard)


@contextmanager
def _repeats_what_was_not_answered() -> Iterator[None]:
    """A proposal of unknown fate is made again, until a new version ends it."""
    propose, refused = InSyncSet.propose, InSyncSet.refused

    def again(self: Any, *situation: Any) -> frozenset[int] | None:
        if self._doubtful:
            doubtful: frozenset[int] = self._doubtful
            self.proposed = doubtful
            return doubtful
        return propose(self, *situation)

    def keeps(self: Any) -> None:
        self._doubtful = self.proposed or frozenset()

    with (
        patch.object(InSyncSet, "propose", again),
        patch.object(InSyncSet, "unanswered", keeps),
        patch.object(InSyncSet, "refused", lambda self: refused(self) if not self._doubtful else None),
        patch.object(decisions, "_objection", _refuses_the_present_set),
    ):
        yield


def _counts_those_that_it_waits_for() -> AbstractContextManager[Any]:
    """As if the number of members were the number of awaited ones."""

    class Counted(frozenset[int]):
        awaited = 0

        def __len__(self) -> int:
            return self.awaited

    tell, look = InSyncMaster._tell_durability, InSyncMaster.look

    def counting(inner: Callable[[Any], None]) -> Callable[[Any], None]:
        def outer(self: Any) -> None:
            if self.in_sync is None:
                inner(self)
                return
            members = self.in_sync.members
            self.in_sync.members = Counted(members)
            self.in_sync.members.awaited = len(self.in_sync.awaited)
            try:
                inner(self)
            finally:
                self.in_sync.members = members

        return outer

    return patch.multiple(InSyncMaster, _tell_durability=counting(tell), look=counting(look))


class Undone(NamedTuple):
    mend: Callable[[], AbstractContextManager[Any]]
    in_sync: int
    """How many are in sync at the start."""
    budget: Budget
    """Faults that are enough to see it."""
    finds: str
    """What the violation says."""


UNDONE: Final = {
    "a start outside of the set keeps its version": Undone(
        lambda: patch.object(decisions, "_started", _keeps_the_version),
        2,
        Budget(sends=0, crashes=1, losses=1),
        "lacks an acknowledged record",
    ),
    "a proposal of unknown fate is repeated": Undone(
        _repeats_what_was_not_answered,
        3,
        Budget(sends=0, crashes=1, losses=0, blips=1, silences=1),
        "no message is acknowledged any more",
    ),
    "a broker that has kept everything leaves the set": Undone(
        lambda: patch.object(decisions, "_started", _believes_no_broker),
        3,
        Budget(sends=0, crashes=0, losses=0, stops=3),
        "no message is acknowledged any more",
    ),
    "minInSyncReplicas counts those that are waited for": Undone(
        _counts_those_that_it_waits_for,
        1,
        Budget(sends=1, crashes=0, losses=0),
        "acknowledges a record that only",
    ),
}
