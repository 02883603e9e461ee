"""Elects the master: the present one while it may be alive, else the replica in sync that has most."""

from collections.abc import Collection

from pyromq.controller.groups import GroupRecord
from pyromq.controller.liveness import Heard


def choose_master(
    group: GroupRecord, heard: Heard, *, designated: int | None, elects_unclean: bool
) -> int | None:
    """The id of the next master, which may be the present one; None if there is no candidate.

    Only replicas in sync are candidates. `elects_unclean` adds all others after them: messages may be lost.
    """
    winner = _among(group.sync_set, group.master_id, heard, designated)
    if winner is None and elects_unclean:
        winner = _among(group.candidates, group.master_id, heard, designated)
    return winner


def _among(
    candidates: Collection[int], master_id: int | None, heard: Heard, designated: int | None
) -> int | None:
    if (
        master_id is not None
        and master_id in candidates
        and designated in (None, master_id)
        and not heard.is_gone(master_id)
    ):
        return master_id
    alive = [each for each in candidates if each in heard.alive]
    if designated is not None:
        return designated if designated in alive else None
    return min(alive, key=lambda each: _rank(each, heard), default=None)


def _rank(broker_id: int, heard: Heard) -> tuple[int, int, int, int]:
    vitals = heard.alive[broker_id]
    return -vitals.epoch, -vitals.max_offset, vitals.priority, broker_id


def needs_election(group: GroupRecord, heard: Heard) -> bool:
    """Whether the master is gone and somebody who could follow it may be there."""
    return (
        group.master_id is not None
        and heard.is_gone(group.master_id)
        and any(each in heard.alive for each in group.replicas)
    )
