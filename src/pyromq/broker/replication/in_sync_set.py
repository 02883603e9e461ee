"""Which replicas a master waits for, in one epoch under a controller. Pure: reports, answers, times come in.

Every replica that the controller may make master must have what the master acknowledges. So the master waits
for the members that the controller has confirmed and for all that it has proposed since, until it is certain
which of these sets counts; in sync for certain are only those that all of these sets have. A new version of
the set ends every older proposal, and the doubt.
"""

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

_NEARLY_S: Final = 0.5
"""A replica that had everything so shortly ago is waited for, until it is in sync."""
_PATIENCE_S: Final = 2.0
"""For so long: others do not wait for a replica that came near and then stopped. So long members have to come
to a new master."""


class ReplicaReport(NamedTuple):
    """How far a replica has the log, on its present connection."""

    offset: int
    caught_up_at: float
    """The last time at which it had everything that the master had a moment before."""
    at: float
    log_end: int
    """Where the master's log ended at the time of this report."""


class InSyncSet:
    def __init__(
        self,
        own_id: int,
        members: frozenset[int],
        version: int,
        epoch_start: int,
        now: float = float("-inf"),
    ) -> None:
        """`members` and `version` are the controller's; the master's log ended at `epoch_start`, and it leads
        since `now`."""
        self._own_id = own_id
        self._began_at = now
        self._expected = members
        """Members that have not come and gone since then."""
        self.members = members
        self.version = version
        self.proposed: frozenset[int] | None = None
        """The set that the controller is asked for now."""
        self._doubtful: frozenset[frozenset[int]] = frozenset()
        """Proposals of this version that were not answered and may still be accepted."""
        self.joining: frozenset[int] = frozenset()
        """Replicas that are nearly there: the master waits for them, so that they can catch up."""
        self._turn = own_id
        """The broker that was last proposed to join."""
        self.epoch_start = epoch_start
        self._confirmed = 0
        self._reports: dict[int, ReplicaReport] = {}

    def __repr__(self) -> str:
        return f"<InSyncSet {sorted(self.members)} version={self.version} proposed={self.proposed}>"

    @property
    def _possible(self) -> list[frozenset[int]]:
        """The sets of which the controller has one."""
        under_way = [] if self.proposed is None else [self.proposed]
        return [self.members, *under_way, *self._doubtful]

    @property
    def awaited(self) -> frozenset[int]:
        """The brokers that must have a record before it is acknowledged."""
        return self.joining.union(*self._possible)

    @property
    def certain(self) -> frozenset[int]:
        """The brokers that are in sync, whatever became of the proposals."""
        return self.members.intersection(*self._possible)

    @property
    def expected(self) -> frozenset[int]:
        """The other members that have not come to this master yet."""
        return (self.members & self._expected) - self._reports.keys() - {self._own_id}

    @property
    def reports(self) -> Mapping[int, ReplicaReport]:
        return self._reports

    def reported(self, broker_id: int, offset: int, log_end: int, now: float) -> None:
        """A replica has the log up to `offset`; the master's ends at `log_end`."""
        last = self._reports.get(broker_id)
        if offset >= log_end:
            caught_up_at = now
        elif last is not None and offset >= last.log_end:
            caught_up_at = last.at
        else:
            caught_up_at = last.caught_up_at if last is not None else float("-inf")
        reached = max(offset, last.offset) if last is not None else offset
        self._reports[broker_id] = ReplicaReport(reached, caught_up_at, now, log_end)

    def lost(self, broker_id: int) -> None:
        """The connection to a replica has closed."""
        if self._reports.pop(broker_id, None) is not None:
            self._expected -= {broker_id}
        self.joining -= {broker_id}

    def confirm(self, log_end: int) -> int:
        """Up to where everyone who is awaited has the log; it never goes back."""
        have = [
            log_end if each == self._own_id else self._reports[each].offset if each in self._reports else 0
            for each in self.awaited
        ]
        self._confirmed = max(self._confirmed, min(have, default=0))
        return self._confirmed

    # Changing the set

    def propose(
        self,
        log_end: int,
        now: float,
        max_behind_s: float,
        has_tables: Callable[[int], bool] = lambda _: True,
    ) -> frozenset[int] | None:
        """The set that the controller should confirm; None if the present one is right. A replica joins with
        the log and the tables.

        Replicas join one at a time, each in its turn: the controller may refuse one that it does not hear of.
        It is the present one if a proposal was not answered: the next version ends that proposal, the waiting
        for those that it adds, and the doubt about those that it leaves out.
        """
        self.unanswered()
        self.joining = frozenset(each for each in self.joining if self._is_near(each, now, _PATIENCE_S))
        waited_for = self.joining.union(*self._doubtful)
        wanted, ready, joining = {self._own_id}, set(), set()
        if now - self._began_at <= _PATIENCE_S:
            wanted |= self.members & self._expected  # they are about to connect
        for each, report in self._reports.items():
            if now - report.caught_up_at > max_behind_s:
                continue  # a member leaves, and comes back when it has reported again
            if each in self.members:
                wanted.add(each)
            elif not has_tables(each):
                continue
            elif report.offset >= max(self._confirmed, self.epoch_start) and (
                each in waited_for or report.offset >= log_end
            ):
                ready.add(each)
            elif self._is_near(each, now, _NEARLY_S):
                joining.add(each)
        turns = ready if wanted == self.members else ready | {self._own_id}  # in which none joins
        self._turn = min(turns, key=lambda each: (each <= self._turn, each), default=self._own_id)
        wanted.add(self._turn)
        self.joining = frozenset(joining | ready - wanted)
        if wanted == self.members and not self._doubtful:
            return None
        self.proposed = frozenset(wanted)
        return self.proposed

    def _is_near(self, broker_id: int, now: float, max_behind_s: float) -> bool:
        report = self._reports.get(broker_id)
        return report is not None and now - report.caught_up_at <= max_behind_s

    def confirmed_by_controller(
        self, members: frozenset[int], version: int, *, is_answer: bool = False
    ) -> None:
        """The controller has said which set counts; older proposals can never come true any more.

        Unless it answers our own proposal, a broker may have registered: one that is not a member may have
        less than it has reported, so what it reported does not count.
        """
        if version <= self.version:
            return
        self.members, self.version = members, version
        self.proposed, self._doubtful = None, frozenset()
        self._turn = self._own_id
        if not is_answer:
            for each in self._reports.keys() - members:
                self.lost(each)

    def refused(self) -> None:
        """The proposal never comes true: the controller has refused it, or it was never sent."""
        self.proposed = None

    def unanswered(self) -> None:
        """The controller may have the proposal that is under way, or may still get it."""
        if self.proposed is not None:
            self._doubtful |= {self.proposed}
            self.proposed = None
