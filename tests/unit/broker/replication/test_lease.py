"""A master stops before a controller may have given its place away."""

from pyromq.broker.replication.lease import Lease
from pyromq.clock import ManualClock


def is_held(lease: Lease) -> bool:
    return lease.is_held


def test_a_master_reckons_from_when_it_sent_the_heartbeat_not_from_the_answer() -> None:
    clock = ManualClock()
    lease = Lease(clock, 10.0)
    assert not is_held(lease)
    sent_at = clock.monotonic()
    clock.advance(4.0)
    lease.renew(sent_at)
    assert is_held(lease)
    clock.advance(5.4)
    assert is_held(lease)
    clock.advance(0.2)
    assert not is_held(lease)  # the controller waits until 10.0


def test_an_answer_to_an_older_heartbeat_does_not_shorten_it() -> None:
    clock = ManualClock()
    lease = Lease(clock, 10.0)
    lease.renew(clock.monotonic())
    lease.renew(clock.monotonic() - 5)
    clock.advance(9)
    assert is_held(lease)


def test_a_lost_connection_suspends_it_until_a_heartbeat_is_answered() -> None:
    """The controller may have taken the lost connection for the end of this broker."""
    clock = ManualClock()
    lease = Lease(clock, 10.0)
    lease.renew(clock.monotonic())
    lease.suspend()
    assert not is_held(lease)
    lease.renew(clock.monotonic())
    assert is_held(lease)


def test_a_controller_that_is_gone_has_not_noticed_anything() -> None:
    clock = ManualClock()
    lease = Lease(clock, 10.0)
    lease.renew(clock.monotonic())
    lease.suspend()
    lease.resume()
    assert is_held(lease)
    clock.advance(9.6)
    lease.resume()
    assert not is_held(lease)
