"""Mends of the decisions, undone one at a time: the model must find what each of them was made for."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Final, NamedTuple
from unittest.mock import patch

from msgspec.structs import replace
from tests.model.world import Budget

from pyromq.broker.replication.in_sync_master import InSyncMaster
from pyromq.broker.replication.in_sync_set import InSyncSet
from pyromq.controller import decisions, returning
from pyromq.controller.etcd_store import EtcdStore
from pyromq.controller.groups import GroupRecord

_started: Callable[..., GroupRecord] = decisions._started
_objection = decisions._objection
_elected = decisions._elected
_elect_returning = decisions._elect_returning


def _keeps_the_version(group: GroupRecord, broker_id: int, *more: Any) -> GroupRecord:
    after = _started(group, broker_id, *more)
    if broker_id in group.sync_set:
        return after
    return replace(after, sync_set_epoch=group.sync_set_epoch)


def _believes_no_broker(*start: Any) -> GroupRecord:
    return _started(*start[:-1], None)


def _refuses_the_present_set(group: GroupRecord | None, request: Any, heard: Any) -> tuple[int, str]:
    if group is not None and request.body.sync_state_set == group.sync_set:
        return 2013, "these are in sync already"
    return _objection(group, request, heard)


@contextmanager
def _repeats_what_was_not_answered() -> Iterator[None]:
    """A proposal of unknown fate is made again, until a new version ends it."""
    propose, refused = InSyncSet.propose, InSyncSet.refused

    def again(self: Any, *situation: Any) -> frozenset[int] | None:
        if self._doubtful:
            (doubtful,) = self._doubtful
            self.proposed = doubtful
            return frozenset(doubtful)
        return propose(self, *situation)

    def keeps(self: Any) -> None:
        self._doubtful = frozenset() if self.proposed is None else frozenset({self.proposed})

    with (
        patch.object(InSyncSet, "propose", again),
        patch.object(InSyncSet, "unanswered", keeps),
        patch.object(InSyncSet, "refused", lambda self: refused(self) if not self._doubtful else None),
        patch.object(decisions, "_objection", _refuses_the_present_set),
    ):
        yield


def _counts(name: str) -> AbstractContextManager[Any]:
    """As if these brokers were in sync for certain."""
    return patch.object(InSyncSet, "certain", property(lambda self: getattr(self, name)))


@contextmanager
def _leaves_doubt_about_members() -> Iterator[None]:
    """Only an unanswered proposal that adds a broker asks for a new version."""
    propose = InSyncSet.propose

    def seldom(self: Any, *situation: Any) -> frozenset[int] | None:
        wanted = propose(self, *situation)
        if wanted == self.members and self.awaited <= self.members:
            self.proposed = None
            return None
        return wanted

    with patch.object(InSyncSet, "propose", seldom):
        yield


def _keeps_offers(group: GroupRecord, *start: Any) -> GroupRecord:
    return replace(_started(group, *start), offers=group.offers)


def _elects_whoever_has_most(group: GroupRecord, asker: int | None, request: Any, situation: Any) -> Any:
    """As soon as the last one has offered its log, whether or not the winner is still there."""
    decision = _elect_returning(group, asker, request, situation)
    after = decision.group
    if after is None or not decision.answer.code or returning.uncertainty(after.offers):
        return decision
    return _elect_returning(
        after, returning.best_of(after.offers), replace(request, log_epoch=None), situation
    )


@contextmanager
def _counts_learners() -> Iterator[None]:
    acknowledged = InSyncMaster.acknowledged

    def counts(self: Any, link: Any) -> None:
        link.is_learner = False
        acknowledged(self, link)

    with patch.object(InSyncMaster, "acknowledged", counts):
        yield


@contextmanager
def _compares_no_revision() -> Iterator[None]:
    transact = EtcdStore._transact

    async def less(self: Any, compare: list[Any], *rest: Any) -> Any:
        return await transact(self, [each for each in compare if each["target"] != "MOD"], *rest)

    with patch.object(EtcdStore, "_transact", less):
        yield


class Undone(NamedTuple):
    mend: Callable[[], AbstractContextManager[Any]]
    in_sync: int
    """How many are in sync at the start."""
    budget: Budget
    """Faults that are enough to see it."""
    finds: str
    """What the violation says."""
    learners: int = 0


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
        lambda: _counts("awaited"),
        1,
        Budget(sends=1, crashes=0, losses=0),
        "acknowledges a record that only",
    ),
    "minInSyncReplicas counts those that may have left": Undone(
        lambda: _counts("members"),
        3,
        Budget(sends=1, crashes=0, losses=0, silences=1),
        "acknowledges a record that only",
    ),
    "doubt about those that may have left stays": Undone(
        _leaves_doubt_about_members,
        3,
        Budget(sends=1, crashes=0, losses=0, silences=1),
        "no message is acknowledged any more",
    ),
    "a log that was offered before its broker restarted still counts": Undone(
        lambda: patch.object(decisions, "_started", _keeps_offers),
        2,
        Budget(sends=1, crashes=1, losses=1, oblivions=1),
        "lacks an acknowledged record",
    ),
    "after a lost store the first to come leads": Undone(
        lambda: patch.object(returning, "known_to", frozenset),
        2,
        Budget(sends=0, crashes=1, losses=0, oblivions=1),
        "lacks an acknowledged record",
    ),
    "after a lost store all wait for a learner": Undone(
        lambda: patch.object(GroupRecord, "candidates", property(lambda group: frozenset(group.replicas))),
        2,
        Budget(sends=0, crashes=0, losses=0, stops=1, oblivions=1),
        "no message is acknowledged any more",
        learners=1,
    ),
    "an election leaves the winner alone in sync": Undone(
        lambda: patch.object(
            decisions, "_elected", lambda group, winner, epoch, _=None: _elected(group, winner, epoch)
        ),
        3,
        Budget(sends=0, crashes=2, losses=1),
        "lacks an acknowledged record",
    ),
    "after a lost store the one that has most leads without asking": Undone(
        lambda: patch.object(decisions, "_elect_returning", _elects_whoever_has_most),
        2,
        Budget(sends=0, crashes=1, losses=1, oblivions=1),
        "lacks an acknowledged record",
    ),
    "a learner counts": Undone(
        _counts_learners,
        2,
        Budget(sends=0, crashes=0, losses=0),
        "lacks an acknowledged record",
        learners=1,
    ),
    "a controller overwrites what was decided after it has read": Undone(
        _compares_no_revision,
        2,
        Budget(sends=0, crashes=1, losses=0, pauses=1),
        "no message is acknowledged any more",
    ),
}
