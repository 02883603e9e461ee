"""A master that acknowledges alone stops before another one can begin, whatever is late or suspended."""

from tests.model.lease import explore_lease


def test_a_replaced_master_holds_no_lease() -> None:
    found = explore_lease(ticks=3)
    assert found.is_complete, str(found)
    assert not found.violation
    assert found.states > 10_000


def test_a_clock_that_stands_still_in_a_suspended_machine_is_found() -> None:
    found = explore_lease(counts_sleep=False)
    assert found.violation == "a master acknowledges messages alone after it has been replaced", str(found)
    assert "the master's machine is suspended" in found.trace
