"""A master stops before a controller may have given its place away."""

import pytest

from pyromq.broker.replication.lease import Lease
from pyromq.clock import ManualClock


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def lease(clock: ManualClock) -> Lease:
    """Of a master, held from now on for ten seconds, or a little less."""
    lease = Lease(clock, 10.0)
    lease.renew(clock.since_boot())
    lease.confirm(lease.ask())
    return lease


def test_a_lease_ends_while_the_machine_is_suspended(lease: Lease, clock: ManualClock) -> None:
    """The controller has another master by then, and the first thing to happen is that a sender comes."""
    assert is_held(lease)
    clock.suspend(11.0)
    assert not is_held(lease)


def is_held(lease: Lease) -> bool:
    return lease.is_held


def test_nobody_leads_before_the_controller_has_said_so(clock: ManualClock) -> None:
    lease = Lease(clock, 10.0)
    lease.renew(clock.since_boot())
    assert not is_held(lease)
    lease.confirm(lease.ask())
    assert is_held(lease)


def test_a_master_reckons_from_when_it_sent_the_heartbeat_not_from_the_answer(
    lease: Lease, clock: ManualClock
) -> None:
    sent_at = clock.since_boot()
    clock.advance(4.0)
    lease.renew(sent_at)
    clock.advance(5.4)
    assert is_held(lease)
    clock.advance(0.2)
    assert not is_held(lease)  # the controller waits until 10.0


def test_an_answer_to_an_older_heartbeat_does_not_shorten_it(lease: Lease, clock: ManualClock) -> None:
    lease.renew(clock.since_boot() - 5)
    clock.advance(9)
    assert is_held(lease)


def test_a_heartbeat_after_the_end_proves_nothing(lease: Lease, clock: ManualClock) -> None:
    """A master that was cut off and replaced meanwhile is answered like any other broker."""
    clock.advance(11)
    lease.renew(clock.since_boot())
    assert not is_held(lease)
    asked = lease.ask()
    clock.advance(1)
    lease.confirm(asked)
    assert is_held(lease)


def test_a_word_of_the_controller_counts_with_the_heartbeat_that_it_had_heard(
    lease: Lease, clock: ManualClock
) -> None:
    asked = lease.ask()
    clock.advance(11)
    lease.renew(clock.since_boot())
    lease.confirm(asked)  # said before the end; it may not be true any more
    assert not is_held(lease)


def test_a_new_epoch_is_to_be_confirmed(lease: Lease) -> None:
    lease.doubt()
    assert not is_held(lease)
    lease.confirm(lease.ask())
    assert is_held(lease)


def test_a_lost_connection_ends_it_until_the_controller_has_heard_and_spoken_again(
    lease: Lease, clock: ManualClock
) -> None:
    """The controller may have taken the lost connection for the end of this broker."""
    sent_at = clock.since_boot()
    clock.advance(1.0)
    lease.suspend()
    lease.renew(sent_at)  # answered before the connection was lost
    lease.confirm(lease.ask())
    assert not is_held(lease)
    clock.advance(0.1)
    lease.renew(clock.since_boot())
    assert not is_held(lease)
    lease.confirm(lease.ask())
    assert is_held(lease)


def test_a_controller_that_is_gone_has_not_noticed_anything(lease: Lease, clock: ManualClock) -> None:
    lease.suspend()
    lease.suspend()
    lease.resume()
    assert is_held(lease)
    lease.suspend()
    clock.advance(9.6)
    lease.resume()
    assert not is_held(lease)
