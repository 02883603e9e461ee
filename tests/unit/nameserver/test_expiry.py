from pyromq.nameserver.expiry import Deadlines


def test_keys_are_due_after_their_deadline_oldest_first() -> None:
    deadlines = Deadlines[str]()
    deadlines.set("late", 20)
    deadlines.set("early", 10)
    assert deadlines.pop_due(10) == []
    assert deadlines.pop_due(21) == ["early", "late"]
    assert deadlines.pop_due(100) == []
    assert len(deadlines) == 0


def test_a_moved_deadline_counts_and_not_the_old_one() -> None:
    deadlines = Deadlines[str]()
    deadlines.set("a", 10)
    deadlines.set("a", 50)
    assert deadlines.pop_due(40) == []
    assert deadlines.pop_due(51) == ["a"]


def test_an_earlier_deadline_counts_at_once() -> None:
    deadlines = Deadlines[str]()
    deadlines.set("a", 50)
    deadlines.set("a", 10)
    assert deadlines.pop_due(11) == ["a"]
    assert deadlines.pop_due(100) == []


def test_many_signs_of_life_leave_one_entry_in_the_heap() -> None:
    deadlines = Deadlines[str]()
    for now in range(1000):
        deadlines.set("a", now + 100)
    assert repr(deadlines) == "<Deadlines keys=1 heap=1>"


def test_a_forgotten_key_is_never_due() -> None:
    deadlines = Deadlines[str]()
    deadlines.set("a", 10)
    deadlines.forget("a")
    assert deadlines.next_check() is None
    assert deadlines.pop_due(100) == []


def test_a_key_that_returns_after_being_forgotten_is_due_once() -> None:
    deadlines = Deadlines[str]()
    deadlines.set("a", 10)
    deadlines.forget("a")
    deadlines.set("a", 20)
    assert deadlines.pop_due(15) == []
    assert deadlines.pop_due(21) == ["a"]
    assert deadlines.pop_due(100) == []


def test_a_key_set_again_after_it_was_due_is_due_again() -> None:
    deadlines = Deadlines[str]()
    deadlines.set("a", 10)
    assert deadlines.pop_due(11) == ["a"]
    deadlines.set("a", 20)
    assert deadlines.pop_due(21) == ["a"]
