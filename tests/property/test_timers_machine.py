"""Timed messages against a model: each is delivered once, at its time, unless it was recalled."""

import asyncio
import shutil
import tempfile
from contextlib import ExitStack
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from tests.support.chance import examples
from tests.support.timed_messages import TimerBench, timer_bench

from pyromq.broker.flow.timing import slot_of
from pyromq.clock import ManualClock

WINDOW = 20
"""Slots until a message is stored anew on its way."""


class TimersMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.root = Path(tempfile.mkdtemp())
        self.clock = ManualClock()
        self.runner = asyncio.Runner()
        self.stack = ExitStack()
        self.due: dict[bytes, int] = {}
        """The time of each message that must be delivered, on the clock of the log."""
        self.recalled: set[bytes] = set()
        self.bench: TimerBench

    @initialize()
    def begin(self) -> None:
        self.open()

    def open(self) -> None:
        self.stack = ExitStack()

        async def opened() -> TimerBench:
            return self.stack.enter_context(
                timer_bench(self.root, self.clock, timer_roll_window_slots=WINDOW, timer_max_delay_seconds=90)
            )

        self.bench = self.runner.run(opened())

    def now_ms(self) -> int:
        return self.bench.store.time.now_ms()

    # What may happen

    @rule(wait_ms=st.one_of(st.integers(-5, 3000), st.integers(3000, 90_000)), relative=st.booleans())
    def send(self, wait_ms: int, relative: bool) -> None:
        body = b"m%d" % len(self.due | dict.fromkeys(self.recalled, 0))
        deliver_ms = self.now_ms() + wait_ms
        name, value = ("TIMER_DELAY_MS", wait_ms) if relative else ("TIMER_DELIVER_MS", deliver_ms)
        assert self.bench.send(body, {name: str(value)}).is_ok
        self.due[body] = deliver_ms

    @rule(data=st.data())
    def recall(self, data: st.DataObject) -> None:
        waiting = [body for body, due_ms in self.due.items() if slot_of(due_ms, 1000) + 1 > self.now_ms()]
        if waiting:
            body = data.draw(st.sampled_from(waiting))
            assert self.bench.recall(body, slot_of(self.due.pop(body), 1000) + 1).is_ok
            self.recalled.add(body)

    @rule(ms=st.one_of(st.integers(1, 3000), st.integers(3000, 40_000)))
    def time_passes(self, ms: int) -> None:
        self.bench.pass_time(ms, step_ms=500)

    @rule(seconds=st.sampled_from([-100, -2, 2, 40, 100]))
    def clock_is_set(self, seconds: int) -> None:
        self.clock.set_ahead(seconds)

    @rule()
    def checkpoint(self) -> None:
        self.bench.save()

    @rule()
    def works(self) -> None:
        self.bench.work()

    @rule(is_clean=st.booleans(), again_after=st.sampled_from([0, 0, 1, 3]))
    def restart(self, is_clean: bool, again_after: int) -> None:
        """`again_after`: it crashes again when it has caught up with so many slots."""
        if is_clean:
            self.bench.timers.save_now()
        else:
            self.bench.store.abandon()
        self.stack.close()
        self.open()
        if again_after:
            for _ in range(again_after):
                self.bench.timers.delivery.step(lambda: True)
            self.bench.save()
            self.bench.store.abandon()
            self.stack.close()
            self.open()

    # What must be

    @invariant()
    def nobody_is_early_late_twice_or_lost(self) -> None:
        if not hasattr(self, "bench"):
            return
        self.bench.work()
        now_ms = self.now_ms()
        delivered = {}
        for message in self.bench.messages():
            assert message.body not in delivered, "twice"
            assert message.body not in self.recalled, "recalled"
            delivered[message.body] = message.store_timestamp
        for body, due_ms in self.due.items():
            # The log's time may be ahead of a clock that was set back; it is never before itself.
            assert (body in delivered) == (due_ms <= now_ms), (body, due_ms - now_ms)
            assert delivered.get(body, due_ms) >= due_ms, "early"

    def teardown(self) -> None:
        self.stack.close()
        self.runner.close()
        shutil.rmtree(self.root)


TimersMachine.TestCase.settings = settings(max_examples=examples(5), stateful_step_count=16, deadline=None)
test_timers_are_as_the_model_says = TimersMachine.TestCase
