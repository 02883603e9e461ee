"""Which replicas a master waits for, and which it proposes to the controller."""

import pytest

from pyromq.broker.replication.in_sync_set import InSyncSet

MAX_BEHIND_S = 15.0


@pytest.fixture
def pair() -> InSyncSet:
    """Master 1 and replica 2 in sync, both with 100 bytes."""
    found = InSyncSet(1, frozenset({1, 2}), 7, epoch_start=50)
    found.reported(2, 100, 100, now=0.0)
    return found


def is_proposing(found: InSyncSet) -> bool:
    return found.proposed is not None


def test_a_master_alone_in_sync_waits_for_nobody() -> None:
    assert InSyncSet(1, frozenset({1}), 1, 0).confirm(100) == 100


def test_a_record_is_confirmed_when_every_member_has_it(pair: InSyncSet) -> None:
    assert pair.confirm(150) == 100
    pair.reported(2, 150, 150, now=1.0)
    assert pair.confirm(150) == 150


def test_what_was_confirmed_stays_it(pair: InSyncSet) -> None:
    pair.confirm(100)
    pair.lost(2)
    assert pair.confirm(150) == 100
    pair.reported(2, 60, 150, now=1.0)
    assert pair.confirm(150) == 100


def test_a_replica_that_caught_up_is_proposed_and_waited_for_at_once(pair: InSyncSet) -> None:
    pair.reported(3, 99, 100, now=0.0)
    assert pair.propose(100, 0.0, MAX_BEHIND_S) is None
    pair.reported(3, 100, 100, now=1.0)
    assert pair.propose(100, 1.0, MAX_BEHIND_S) == frozenset({1, 2, 3})
    assert pair.awaited == {1, 2, 3}
    pair.reported(2, 200, 200, now=2.0)
    assert pair.confirm(200) == 100


def test_a_replica_that_has_not_reached_the_epoch_of_its_master_is_not_proposed() -> None:
    fresh = InSyncSet(1, frozenset({1}), 1, epoch_start=100)
    fresh.reported(2, 90, 90, now=0.0)
    assert fresh.propose(90, 0.0, MAX_BEHIND_S) is None


def test_members_have_a_moment_to_come_to_a_new_master() -> None:
    """If all left the set at once, the master would be alone with what was acknowledged."""
    found = InSyncSet(1, frozenset({1, 2, 3}), 7, epoch_start=100, now=10.0)
    assert found.propose(100, 10.0, MAX_BEHIND_S) is None
    found.reported(2, 100, 100, now=11.0)
    assert found.confirm(100) == 0
    assert found.propose(100, 11.0, MAX_BEHIND_S) is None
    assert found.propose(100, 13.0, MAX_BEHIND_S) == frozenset({1, 2})


def test_a_member_that_came_to_a_new_master_and_left_is_not_expected() -> None:
    found = InSyncSet(1, frozenset({1, 2}), 7, epoch_start=100, now=10.0)
    found.reported(2, 90, 100, now=10.5)
    assert found.propose(100, 10.5, MAX_BEHIND_S) is None
    found.lost(2)
    assert found.propose(100, 11.0, MAX_BEHIND_S) == frozenset({1})


def test_a_member_without_a_connection_is_left_out_but_waited_for_until_that_is_confirmed(
    pair: InSyncSet,
) -> None:
    pair.lost(2)
    assert pair.propose(150, 1.0, MAX_BEHIND_S) == frozenset({1})
    assert pair.confirm(150) == 0
    pair.confirmed_by_controller(frozenset({1}), 8)
    assert pair.confirm(150) == 150


def test_a_slow_member_is_left_out_after_a_while(pair: InSyncSet) -> None:
    for now in range(1, 40):
        pair.reported(2, 100 + now, 1000 + 10 * now, now=float(now))
        if pair.propose(1000 + 10 * now, float(now), MAX_BEHIND_S) is not None:
            break
    assert now == 16


def test_a_member_that_fell_silent_joins_again_when_it_has_reported(pair: InSyncSet) -> None:
    """By its last report it has everything: it would leave and join without end."""
    assert pair.propose(100, 16.0, MAX_BEHIND_S) == frozenset({1})
    pair.confirmed_by_controller(frozenset({1}), 8, is_answer=True)
    assert pair.propose(100, 16.0, MAX_BEHIND_S) is None
    pair.reported(2, 100, 100, now=17.0)
    assert pair.propose(100, 17.0, MAX_BEHIND_S) == frozenset({1, 2})


def test_a_member_that_follows_a_moment_behind_stays(pair: InSyncSet) -> None:
    for now in range(1, 40):
        pair.reported(2, 100 * now, 100 * (now + 1), now=float(now))
        assert pair.propose(100 * (now + 1), float(now), MAX_BEHIND_S) is None


def test_a_refused_proposal_is_dropped(pair: InSyncSet) -> None:
    pair.lost(2)
    pair.propose(150, 1.0, MAX_BEHIND_S)
    pair.refused()
    assert pair.awaited == {1, 2}


def test_a_proposal_whose_fate_is_not_known_counts_until_the_next_version(pair: InSyncSet) -> None:
    pair.reported(3, 100, 100, now=1.0)
    pair.propose(100, 1.0, MAX_BEHIND_S)
    pair.unanswered()
    assert pair.propose(100, 1.0, MAX_BEHIND_S) == frozenset({1, 2, 3})
    pair.refused()  # the second attempt; the first may still be on its way
    pair.confirmed_by_controller(frozenset({1, 2}), 7)
    assert pair.awaited == {1, 2, 3}
    assert pair.propose(100, 2.0, MAX_BEHIND_S) == frozenset({1, 2, 3})
    pair.confirmed_by_controller(frozenset({1, 2, 3}), 8)
    assert pair.members == frozenset({1, 2, 3})
    assert not is_proposing(pair)
    assert pair.propose(100, 2.0, MAX_BEHIND_S) is None


def test_what_became_of_the_brokers_since_decides_what_is_proposed_next(pair: InSyncSet) -> None:
    """The controller was away while one link blipped and then another broker died."""
    pair.confirmed_by_controller(frozenset({1, 2, 3}), 8, is_answer=True)
    pair.reported(3, 100, 100, now=1.0)
    pair.lost(2)
    assert pair.propose(100, 1.0, MAX_BEHIND_S) == frozenset({1, 3})
    pair.unanswered()
    pair.reported(2, 100, 100, now=2.0)
    pair.lost(3)
    assert pair.propose(100, 2.0, MAX_BEHIND_S) == frozenset({1, 2})
    assert pair.awaited == {1, 2, 3}  # until the controller says so
    pair.confirmed_by_controller(frozenset({1, 2}), 9, is_answer=True)
    assert pair.confirm(100) == 100


def test_a_broker_that_died_while_it_was_proposed_is_not_waited_for_after_the_next_version(
    pair: InSyncSet,
) -> None:
    pair.reported(3, 100, 100, now=1.0)
    pair.propose(100, 1.0, MAX_BEHIND_S)
    pair.unanswered()
    pair.lost(3)
    pair.reported(2, 150, 150, now=2.0)
    assert pair.confirm(150) == 0
    assert pair.propose(150, 2.0, MAX_BEHIND_S) == frozenset({1, 2})  # a new version, and nothing else
    pair.confirmed_by_controller(frozenset({1, 2}), 8, is_answer=True)
    assert pair.confirm(150) == 150
    assert pair.propose(150, 2.0, MAX_BEHIND_S) is None


def test_a_member_that_may_have_left_is_waited_for_and_not_certain(pair: InSyncSet) -> None:
    pair.confirmed_by_controller(frozenset({1, 2, 3}), 8, is_answer=True)
    pair.lost(2)
    pair.reported(3, 100, 100, now=1.0)
    assert pair.propose(100, 1.0, MAX_BEHIND_S) == frozenset({1, 3})
    assert pair.certain == {1, 3}
    pair.unanswered()
    pair.reported(2, 100, 100, now=2.0)
    assert pair.awaited == {1, 2, 3}
    assert pair.certain == {1, 3}
    # All are in sync again, but the controller may have the other set: a new version ends the doubt.
    assert pair.propose(100, 2.0, MAX_BEHIND_S) == frozenset({1, 2, 3})
    assert pair.certain == {1, 3}
    pair.confirmed_by_controller(frozenset({1, 2, 3}), 9, is_answer=True)
    assert pair.certain == {1, 2, 3}
    assert pair.propose(100, 2.0, MAX_BEHIND_S) is None


def test_a_replica_that_the_controller_refuses_keeps_no_other_from_joining_or_leaving(
    pair: InSyncSet,
) -> None:
    """It copies the log, but the controller hears nothing of it."""
    for each in (3, 4):
        pair.reported(each, 100, 100, now=1.0)
    assert pair.propose(100, 1.0, MAX_BEHIND_S) == frozenset({1, 2, 3})
    assert pair.awaited == {1, 2, 3, 4}
    pair.refused()
    assert pair.propose(100, 1.0, MAX_BEHIND_S) == frozenset({1, 2, 4})
    pair.confirmed_by_controller(frozenset({1, 2, 4}), 8, is_answer=True)
    assert pair.propose(100, 1.0, MAX_BEHIND_S) == frozenset({1, 2, 3, 4})
    pair.refused()
    pair.lost(2)
    assert pair.propose(100, 1.0, MAX_BEHIND_S) == frozenset({1, 4})
    pair.refused()
    assert pair.propose(100, 1.0, MAX_BEHIND_S) == frozenset({1, 3, 4})


def test_a_proposal_that_was_never_sent_is_waited_for_no_longer(pair: InSyncSet) -> None:
    pair.reported(3, 100, 100, now=1.0)
    pair.propose(100, 1.0, MAX_BEHIND_S)
    pair.refused()
    pair.lost(3)
    assert pair.awaited == {1, 2}
    assert pair.propose(100, 2.0, MAX_BEHIND_S) is None


def test_what_a_broker_reported_before_another_registered_counts_only_for_members(pair: InSyncSet) -> None:
    """It may be the one that registered: it has restarted, and its old connection has not been missed yet."""
    pair.reported(3, 100, 100, now=1.0)
    pair.confirmed_by_controller(frozenset({1, 2}), 8)
    assert pair.propose(100, 1.0, MAX_BEHIND_S) is None
    assert pair.confirm(100) == 100


def test_an_older_answer_of_the_controller_is_passed_over(pair: InSyncSet) -> None:
    pair.confirmed_by_controller(frozenset({1}), 7)
    assert pair.members == {1, 2}


def test_a_replica_that_is_nearly_there_is_waited_for_so_that_it_can_catch_up() -> None:
    """Under load it never has all of the log: what is confirmed alone is always a little ahead of it."""
    found = InSyncSet(1, frozenset({1}), 1, epoch_start=0)
    assert found.confirm(100) == 100
    found.reported(2, 100, 100, now=0.0)
    assert found.confirm(150) == 150
    found.reported(2, 120, 200, now=0.1)  # it had everything a moment ago
    assert found.propose(200, 0.1, MAX_BEHIND_S) is None
    assert found.awaited == {1, 2}
    assert found.confirm(200) == 150
    found.reported(2, 160, 250, now=0.2)
    assert found.propose(250, 0.2, MAX_BEHIND_S) == frozenset({1, 2})
    assert found.confirm(250) == 160


def test_nobody_waits_for_long_for_a_replica_that_came_near_and_then_stopped() -> None:
    found = InSyncSet(1, frozenset({1}), 1, epoch_start=0)
    found.confirm(100)
    found.reported(2, 100, 100, now=0.0)
    found.confirm(150)
    found.propose(150, 0.1, MAX_BEHIND_S)
    assert found.awaited == {1, 2}
    assert found.propose(150, 3.0, MAX_BEHIND_S) is None
    assert found.awaited == {1}
    found.propose(150, 0.1, MAX_BEHIND_S)
    found.lost(2)
    assert found.awaited == {1}


def test_a_replica_without_the_tables_is_neither_in_sync_nor_waited_for(pair: InSyncSet) -> None:
    pair.reported(2, 100, 100, 1.0)
    pair.reported(3, 100, 100, 1.0)
    assert pair.propose(100, 1.0, MAX_BEHIND_S, lambda each: each != 3) is None
    assert pair.awaited == frozenset({1, 2})
    assert pair.propose(100, 1.0, MAX_BEHIND_S) == frozenset({1, 2, 3})
