"""Pops against a model: every message is delivered until it is acknowledged, and then never again.

The broker may crash at any moment; what it said before counts.
"""

import asyncio
import shutil
import tempfile
from contextlib import ExitStack
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from tests.support.chance import examples
from tests.support.popped_messages import GROUP, PopBench, Popped, pop_bench

from pyromq.clock import ManualClock
from pyromq.errors import Refused

MAX_INVISIBLE_MS = 6000


class PopsMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.root = Path(tempfile.mkdtemp())
        self.clock = ManualClock()
        self.runner = asyncio.Runner()
        self.stack = ExitStack()
        self.sent = 0
        self.held: dict[bytes, tuple[Popped, int]] = {}
        """What a consumer holds, and until when nobody else may get it."""
        self.delivered: set[bytes] = set()
        self.acked: set[bytes] = set()
        self.late: set[bytes] = set()
        """Acknowledged after their time: they may come again, and then want another acknowledgement."""
        self.bench: PopBench

    @initialize()
    def begin(self) -> None:
        self.open()

    def open(self) -> None:
        self.stack = ExitStack()

        async def opened() -> PopBench:
            return self.stack.enter_context(pop_bench(self.root, self.clock, dice=10))

        self.bench = self.runner.run(opened())
        config = self.bench.parts.groups.get(GROUP)
        assert config is not None
        config.retry_max_times = 1_000_000

    def now_ms(self) -> int:
        return self.bench.store.time.now_ms()

    # What may happen

    @rule(queue_id=st.integers(0, 1))
    def send(self, queue_id: int) -> None:
        self.bench.send(b"m%d" % self.sent, queue_id)
        self.sent += 1

    @rule(limit=st.integers(1, 4), invisible_ms=st.integers(1, MAX_INVISIBLE_MS))
    def pop(self, limit: int, invisible_ms: int) -> None:
        now_ms = self.now_ms()
        for popped in self.bench.pop(max_msg_nums=limit, invisible_time=invisible_ms):
            body = popped.body
            assert body not in self.acked or body in self.late, "delivered after it was acknowledged"
            if body in self.late:  # the acknowledgement was too late for this one
                self.late.remove(body)
                self.acked.remove(body)
            if body in self.held:
                assert now_ms >= self.held[body][1], "delivered although it was hidden"
            self.held[body] = popped, now_ms + invisible_ms
            self.delivered.add(body)

    @rule(data=st.data())
    def ack(self, data: st.DataObject) -> None:
        if self.held:
            body = data.draw(st.sampled_from(sorted(self.held)))
            popped, until_ms = self.held[body]
            until_ms = min(until_ms, end_of(popped))
            self.bench.ack(popped)
            if body not in self.acked and self.now_ms() >= until_ms:
                self.late.add(body)
            if self.now_ms() < until_ms or body in self.late:
                self.acked.add(body)

    @rule(data=st.data(), invisible_ms=st.integers(1, MAX_INVISIBLE_MS))
    def change(self, data: st.DataObject, invisible_ms: int) -> None:
        waiting = sorted(body for body in self.held if body not in self.acked)
        if waiting:
            body = data.draw(st.sampled_from(waiting))
            popped, until_ms = self.held[body]
            try:
                changed = self.bench.change(popped, invisible_ms)
            except Refused:
                assert self.now_ms() >= min(until_ms, end_of(popped)), "a good receipt was refused"
            else:
                # By the old receipt as well: it stands for the new one.
                keeps_old = data.draw(st.booleans())
                until_ms = changed.receipt.pop_time_ms + invisible_ms
                self.held[body] = (popped if keeps_old else changed), until_ms

    @rule(ms=st.integers(1, MAX_INVISIBLE_MS))
    def time_passes(self, ms: int) -> None:
        self.bench.pass_time(ms, step_ms=500)

    @rule()
    def offsets_are_saved(self) -> None:
        self.bench.store.flushes.flush()
        self.bench.tables.offsets._is_dirty = True
        self.bench.tables.offsets.persist()

    @rule(is_clean=st.booleans())
    def restart(self, is_clean: bool) -> None:
        self.bench.work()
        if is_clean:
            self.bench.timers.save_now()
            self.bench.popping.save_now()
            self.bench.tables.offsets.persist()
        else:
            self.bench.store.abandon()
        self.stack.close()
        self.open()

    # What must be

    @invariant()
    def nothing_is_revived_before_its_time(self) -> None:
        if hasattr(self, "bench"):
            self.bench.work()

    def teardown(self) -> None:
        """In the end everything that nobody acknowledged was delivered, and comes again."""
        if hasattr(self, "bench"):
            self.bench.pass_time(MAX_INVISIBLE_MS + 3000, 1000)
            found: list[bytes] = []
            while popped := self.bench.pop(invisible_time=3_600_000):
                found += [each.body for each in popped]
            wanted = {b"m%d" % number for number in range(self.sent)} - self.acked
            assert wanted <= set(found) | self.late, "lost"
            assert not (set(found) & self.acked) - self.late, "came after it was acknowledged"
            assert len(found) == len(set(found)), "twice"
        self.stack.close()
        self.runner.close()
        shutil.rmtree(self.root)


def end_of(popped: Popped) -> int:
    """When a receipt is not good any more, neither for itself nor for its successor."""
    return popped.receipt.pop_time_ms + popped.receipt.invisible_time_ms


PopsMachine.TestCase.settings = settings(max_examples=examples(5), stateful_step_count=16, deadline=None)
test_pops_are_as_the_model_says = PopsMachine.TestCase
