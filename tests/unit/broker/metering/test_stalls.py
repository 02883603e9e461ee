"""Time that held the loop counts once, under the cause that explains it."""

import gc

import pytest

from pyromq.broker.metering.stalls import Stalls
from pyromq.clock import ManualClock
from pyromq.metrics import Metrics, text_of


class World:
    def __init__(self) -> None:
        self.clock = ManualClock()
        self.log_file = 0
        self.metrics = Metrics()
        self.stalls = Stalls(self.metrics, self.clock, lambda: self.log_file)

    def work(self, cause: str, seconds: float) -> None:
        self.stalls.timed(cause, lambda: self.clock.advance(seconds))()

    def collect(self, seconds: float) -> None:
        for phase in ("start", "stop"):
            for watcher in gc.callbacks:
                if getattr(watcher, "__self__", None) is self.stalls:
                    watcher(phase, {})
            if phase == "start":
                self.clock.advance(seconds)

    def sums(self) -> dict[str, float]:
        lines = b"".join(text_of(self.metrics.families())).decode().splitlines()
        found = [line for line in lines if line.startswith("pyromq_broker_stall_seconds_sum{")]
        return {
            line.split('cause="')[1].split('"')[0]: seconds
            for line in found
            if (seconds := float(line.rsplit(" ", 1)[1]))
        }


@pytest.fixture
def world() -> World:
    return World()


def test_causes_without_a_stall_are_there_from_the_start(world: World) -> None:
    text = b"".join(text_of(world.metrics.families())).decode()
    for cause in ("garbage", "log_file", "end_of_turn"):
        assert f'pyromq_broker_stall_seconds_count{{cause="{cause}",request=""}} 0.0' in text


def test_work_of_less_than_a_millisecond_is_no_stall(world: World) -> None:
    world.work("end_of_turn", 0.0009)
    assert world.sums() == {}


def test_long_work_counts_under_its_cause_even_if_it_fails(world: World) -> None:
    def fail() -> None:
        world.clock.advance(0.02)
        raise ValueError("broken")

    world.work("statistics", 0.004)
    with pytest.raises(ValueError, match="broken"):
        world.stalls.timed("statistics", fail)()
    assert world.sums() == {"statistics": pytest.approx(0.024)}


def test_garbage_that_was_collected_in_the_middle_of_work_counts_once(world: World) -> None:
    def work() -> None:
        world.clock.advance(0.002)
        world.collect(0.03)

    with world.stalls.watching_garbage():
        world.collect(0.1)
        world.clock.advance(1)
        world.stalls.timed("end_of_turn", work)()
    assert world.sums() == {"end_of_turn": pytest.approx(0.002), "garbage": pytest.approx(0.13)}
    world.collect(0.5)
    assert world.sums()["garbage"] == pytest.approx(0.13)


def test_a_request_that_had_to_wait_for_the_next_log_file_counts_as_that(world: World) -> None:
    world.log_file = 1
    world.stalls.note("request", 0.2, "send_message_v2")
    world.stalls.note("request", 0.003, "send_message_v2")
    assert world.sums() == {"log_file": pytest.approx(0.2), "request": pytest.approx(0.003)}
