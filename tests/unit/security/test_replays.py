"""Which fully signed requests are accepted, and how little is remembered for that."""

from collections.abc import Callable
from typing import Any

import pytest

from pyromq.security.full_signature import Stamp
from pyromq.security.replays import Replayed, Replays

NOW_MS = 1_700_000_000_000
WINDOW_MS = 60_000


class Line:
    """A connection."""

    def __init__(self) -> None:
        self._callbacks: list[Callable[[Any], None]] = []

    def on_close(self, callback: Callable[[Any], None]) -> None:
        self._callbacks.append(callback)

    def close(self) -> None:
        for callback in self._callbacks:
            callback(self)


def stamp(session: int, number: int, time_ms: int = NOW_MS) -> Stamp:
    return Stamp(time_ms, f"{session:016x}".encode(), number)


def test_numbers_increase_on_the_connection_of_a_session() -> None:
    replays, line = Replays(WINDOW_MS), Line()
    for number in (1, 2, 5):
        replays.accept("alice", stamp(1, number), line, NOW_MS)
    for number in (5, 4, 0):
        with pytest.raises(Replayed, match="sent before"):
            replays.accept("alice", stamp(1, number), line, NOW_MS)
    replays.accept("alice", stamp(1, 6), line, NOW_MS)


def test_a_session_is_worth_nothing_on_another_connection() -> None:
    replays, line = Replays(WINDOW_MS), Line()
    replays.accept("alice", stamp(1, 1), line, NOW_MS)
    with pytest.raises(Replayed, match="another connection"):
        replays.accept("alice", stamp(1, 2), Line(), NOW_MS)
    line.close()
    with pytest.raises(Replayed, match="another connection"):
        replays.accept("alice", stamp(1, 2), Line(), NOW_MS + WINDOW_MS)
    replays.accept("bob", stamp(1, 1), Line(), NOW_MS)


@pytest.mark.parametrize("miss_ms", [-WINDOW_MS - 1, WINDOW_MS + 1])
def test_a_clock_may_be_off_as_far_as_the_window(miss_ms: int) -> None:
    replays = Replays(WINDOW_MS)
    with pytest.raises(Replayed, match="maxRequestAgeMillis"):
        replays.accept("alice", stamp(1, 1, NOW_MS + miss_ms), Line(), NOW_MS)
    at_the_edge = miss_ms - 1 if miss_ms > 0 else miss_ms + 1
    replays.accept("alice", stamp(1, 1, NOW_MS + at_the_edge), Line(), NOW_MS)


def test_ended_sessions_are_remembered_as_long_as_their_requests_are_young_enough() -> None:
    replays, line = Replays(WINDOW_MS), Line()
    replays.accept("alice", stamp(1, 1), line, NOW_MS)
    replays.accept("alice", stamp(1, 2, NOW_MS + 10), line, NOW_MS + 10)
    line.close()
    for later, remembered in ((WINDOW_MS + 10, 2), (WINDOW_MS + 11, 2)):
        other = Line()
        now_ms = NOW_MS + later
        replays.accept("alice", stamp(later, 1, now_ms), other, now_ms)
        assert len(replays) == remembered
    with pytest.raises(Replayed):
        replays.accept("alice", stamp(1, 2, NOW_MS + 10), Line(), NOW_MS + WINDOW_MS + 11)


def test_what_had_to_be_forgotten_cannot_be_sent_again() -> None:
    replays = Replays(WINDOW_MS, max_sessions=2)
    for session in (1, 2, 3):
        line = Line()
        replays.accept("alice", stamp(session, 1, NOW_MS + session), line, NOW_MS + session)
        line.close()
    assert len(replays) == 2
    with pytest.raises(Replayed, match="forgotten"):
        replays.accept("alice", stamp(1, 1, NOW_MS + 1), Line(), NOW_MS + 4)
    replays.accept("alice", stamp(4, 1, NOW_MS + 4), Line(), NOW_MS + 4)


def test_open_sessions_are_never_forgotten() -> None:
    replays, lines = Replays(WINDOW_MS, max_sessions=2), [Line(), Line()]
    for session, line in enumerate(lines):
        replays.accept("alice", stamp(session, 1), line, NOW_MS)
    with pytest.raises(Replayed, match="2 signed connections"):
        replays.accept("alice", stamp(9, 1), Line(), NOW_MS)
    replays.accept("alice", stamp(0, 2), lines[0], NOW_MS)
    lines[1].close()
    replays.accept("alice", stamp(9, 1, NOW_MS + 1), Line(), NOW_MS + 1)
