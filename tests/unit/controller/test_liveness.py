"""Which brokers a controller takes for alive."""

from typing import NamedTuple

import pytest

from pyromq.controller.liveness import Liveness, Vitals


class Line(NamedTuple):
    number: int


FIRST, SECOND, OTHER = map(Line, range(3))


def beat(
    liveness: Liveness[Line], broker_id: int, now: float, channel: Line = FIRST, timeout_s: float = 10
) -> bool:
    return liveness.beat("cluster", ("g", broker_id), Vitals(1, 2), timeout_s, channel, now)


def listening(seconds: int) -> Liveness[Line]:
    liveness = Liveness[Line](0.0, max_step_s=5.0)
    for now in range(1, seconds + 1):
        liveness.expire(float(now))
    return liveness


def test_a_broker_is_alive_until_its_timeout() -> None:
    liveness = listening(20)
    assert beat(liveness, 1, 20.0, timeout_s=3)
    assert not beat(liveness, 1, 21.0, timeout_s=3)
    assert liveness.of_group("g", 24.0).alive == {1: Vitals(1, 2)}
    assert liveness.of_group("h", 24.0).alive == {}
    assert liveness.of_group("g", 24.5).is_gone(1)
    assert liveness.expire(24.5) == [("g", 1)]
    assert liveness.counts() == {}


def test_nobody_is_gone_before_the_controller_has_listened_long_enough() -> None:
    liveness = listening(9)
    assert not liveness.of_group("g", 9.0).is_gone(1)
    liveness.expire(10.0)
    assert liveness.of_group("g", 10.0).is_gone(1)


def test_a_broker_whose_connection_closed_is_gone_at_once() -> None:
    liveness = listening(1)
    beat(liveness, 1, 1.0, FIRST)
    beat(liveness, 2, 1.0, OTHER)
    assert liveness.connection_lost(FIRST) == [("g", 1)]
    heard = liveness.of_group("g", 1.0)
    assert heard.is_gone(1)
    assert not heard.is_gone(2)
    beat(liveness, 1, 2.0, SECOND)
    assert not liveness.of_group("g", 2.0).is_gone(1)


def test_an_old_connection_says_nothing_about_a_broker_that_has_a_new_one() -> None:
    liveness = listening(1)
    beat(liveness, 1, 1.0, FIRST)
    beat(liveness, 1, 2.0, SECOND)
    assert liveness.connection_lost(FIRST) == []
    assert liveness.counts() == {("cluster", "g"): 1}


def test_a_heartbeat_that_was_held_up_on_an_old_connection_does_not_bring_it_back() -> None:
    liveness = listening(1)
    beat(liveness, 1, 1.0, FIRST, timeout_s=3)
    beat(liveness, 1, 2.0, SECOND, timeout_s=3)
    assert not beat(liveness, 1, 3.0, FIRST, timeout_s=3)
    assert liveness.connection_lost(FIRST) == []
    assert liveness.expire(5.5) == [("g", 1)]


def test_a_heartbeat_that_was_held_up_until_its_sender_was_replaced_does_not_count() -> None:
    liveness = listening(1)
    beat(liveness, 1, 1.0, FIRST, timeout_s=3)
    assert liveness.expire(4.5) == [("g", 1)]
    beat(liveness, 1, 5.0, SECOND, timeout_s=3)
    beat(liveness, 1, 5.5, FIRST, timeout_s=3)
    assert liveness.connection_lost(FIRST) == []
    assert liveness.connection_lost(SECOND) == [("g", 1)]


def test_a_first_heartbeat_that_comes_after_those_of_a_newer_connection_does_not_count() -> None:
    liveness = listening(1)
    beat(liveness, 1, 1.0, SECOND, timeout_s=3)
    assert not beat(liveness, 1, 2.0, FIRST, timeout_s=3)
    beat(liveness, 1, 3.0, SECOND, timeout_s=3)
    assert liveness.expire(5.5) == []
    assert liveness.connection_lost(FIRST) == []


def test_a_broker_that_was_silent_for_long_comes_back_on_its_connection() -> None:
    liveness = listening(1)
    beat(liveness, 1, 1.0, timeout_s=3)
    assert liveness.expire(4.5) == [("g", 1)]
    assert beat(liveness, 1, 5.0, timeout_s=3)
    assert not liveness.of_group("g", 5.0).is_gone(1)


def test_strangers_cannot_fill_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pyromq.controller.liveness.MAX_MEMBERS", 2)
    liveness = listening(1)
    assert [beat(liveness, each, 1.0) for each in (1, 2, 3)] == [True, True, False]
    assert liveness.of_group("g", 1.0).alive.keys() == {1, 2}
    liveness.connection_lost(FIRST)
    assert [beat(liveness, each, 1.0) for each in (3, 2)] == [False, True]


def test_time_in_which_the_controller_stood_still_does_not_count() -> None:
    liveness = listening(20)
    beat(liveness, 1, 20.0)
    assert liveness.expire(3600.0) == []
    assert not liveness.of_group("g", 3600.0).is_gone(1)
    assert [liveness.expire(3600.0 + each) for each in range(1, 7)][-1] == [("g", 1)]


def test_the_next_broker_that_may_fall_silent_is_known() -> None:
    liveness = listening(20)
    assert liveness.next_expiry_s(20.0) == float("inf")
    beat(liveness, 1, 20.0, timeout_s=10)
    beat(liveness, 2, 21.0, timeout_s=3)
    assert liveness.next_expiry_s(22.0) == 2.0
    assert liveness.expire(24.1) == [("g", 2)]
    assert liveness.next_expiry_s(24.0) == pytest.approx(6.0, abs=0.2)
