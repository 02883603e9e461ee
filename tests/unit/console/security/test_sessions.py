import pytest

from pyromq.clock import ManualClock
from pyromq.console.security.roles import Person, UserRole
from pyromq.console.security.sessions import Sessions, TooMany

ADA = Person("ada", UserRole.VIEWER)


def test_a_session_is_found_by_its_id_until_it_is_idle_for_too_long() -> None:
    clock = ManualClock()
    sessions = Sessions(clock, 60.0)
    session_id, session = sessions.open(ADA)
    clock.advance(50)
    assert sessions.find(session_id) is session
    clock.advance(50)
    assert sessions.find(session_id) is session
    clock.advance(61)
    assert sessions.find(session_id) is None
    assert len(sessions) == 0


def test_ids_and_tokens_are_long_and_never_the_same() -> None:
    sessions = Sessions(ManualClock(), 60.0)
    opened = [sessions.open(ADA) for _ in range(50)]
    assert len({session_id for session_id, _ in opened} | {session.token for _, session in opened}) == 100
    assert min(len(session_id) for session_id, _ in opened) >= 43


def test_sessions_can_be_revoked() -> None:
    sessions = Sessions(ManualClock(), 60.0)
    first, second = sessions.open(ADA)[0], sessions.open(ADA)[0]
    sessions.close(first)
    assert sessions.find(first) is None
    assert sessions.close_all_of("ada") == 1
    assert sessions.find(second) is None
    assert sessions.find(None) is None
    assert sessions.find("") is None


def test_a_session_runs_only_so_many_queries_at_once() -> None:
    _, session = Sessions(ManualClock(), 60.0).open(ADA)
    with (
        session.one_more("tails", 2),
        session.one_more("tails", 2),
        session.one_more("scans", 8),
        pytest.raises(TooMany),
        session.one_more("tails", 2),
    ):
        pass
    with session.one_more("tails", 2):
        assert session.running == {"tails": 1, "scans": 0}
