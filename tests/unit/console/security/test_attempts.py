from pyromq.clock import ManualClock
from pyromq.console.security import attempts
from pyromq.console.security.attempts import Attempts


def test_five_failures_are_free_and_then_the_wait_doubles_up_to_five_minutes() -> None:
    clock = ManualClock()
    counted = Attempts(clock)
    waits = []
    for _ in range(20):
        waits.append(counted.wait_s("ada", "10.0.0.1"))
        clock.advance(waits[-1])
        counted.failed("ada", "10.0.0.1")
    assert waits[:9] == [0, 0, 0, 0, 0, 1, 2, 4, 8]
    assert waits[-1] == attempts.LONGEST_WAIT_S


def test_a_name_is_limited_from_every_address_and_an_address_for_every_name() -> None:
    counted = Attempts(ManualClock())
    for _ in range(6):
        counted.failed("ada", "10.0.0.1")
    assert counted.wait_s("ada", "10.0.0.2") > 0
    assert counted.wait_s("bob", "10.0.0.1") > 0
    assert counted.wait_s("bob", "10.0.0.2") == 0


def test_a_success_forgets_the_failures() -> None:
    counted = Attempts(ManualClock())
    for _ in range(9):
        counted.failed("ada", "10.0.0.1")
    counted.succeeded("ada", "10.0.0.1")
    assert counted.wait_s("ada", "10.0.0.1") == 0


def test_the_table_is_bounded() -> None:
    counted = Attempts(ManualClock())
    for number in range(12_000):
        counted.failed(f"name{number}", "10.0.0.1")
    assert len(counted._failures) <= 10_000
    assert counted.wait_s("anyone", "10.0.0.1") > 0
