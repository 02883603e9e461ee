"""Transactions against what their producers decided: kills, power losses, late and repeated ends."""

import asyncio
import shutil
import tempfile
from collections.abc import Coroutine
from contextlib import AsyncExitStack
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from tests.support.chance import examples
from tests.support.faulty_files import FaultyFiles
from tests.support.scratch import IN_MEMORY
from tests.support.transactions import (
    COMMIT,
    HALF,
    ROLLBACK,
    UNKNOWN,
    Half,
    TransactionBench,
    transaction_bench,
)

from pyromq.clock import ManualClock
from pyromq.errors import Refused
from pyromq.protocol.codes import ResponseCode
from pyromq.protocol.requests.pushes import CheckTransactionState

pytestmark = pytest.mark.timeout(600)

CHECK_MAX = 4
ROUND_S = 10.0


class TransactionMachine(RuleBasedStateMachine):
    """A transaction has one decision, which its producer always gives when it gives one."""

    def __init__(self) -> None:
        super().__init__()
        self.root = Path(tempfile.mkdtemp(prefix="transaction-machine-", dir=IN_MEMORY))
        self.clock = ManualClock()
        self.runner = asyncio.Runner()
        self.decided: dict[str, int] = {}
        self.halves: dict[str, list[Half]] = {}
        """Every place of a half message that a producer has heard of."""
        self.acknowledged: set[str] = set()
        self.safe: set[str] = set()
        """Transactions whose half messages were flushed."""

    @initialize()
    def begin(self) -> None:
        self.run(self.open())

    def run(self, work: Coroutine[Any, Any, None]) -> None:
        self.runner.run(work)

    async def open(self) -> None:
        self.files = FaultyFiles(self.root)
        self.life = AsyncExitStack()
        self.bench: TransactionBench = await self.life.enter_async_context(
            transaction_bench(
                self.root,
                self.clock,
                files=self.files,
                transaction_check_max=CHECK_MAX,
                transaction_op_max_bytes=12,
            )
        )

    def teardown(self) -> None:
        try:
            if self.decided:
                self.run(self.settle())
        finally:
            self.run(self.stop(crash=True))
            self.runner.close()
            shutil.rmtree(self.root)

    async def stop(self, *, crash: bool) -> None:
        if crash:
            self.bench.parts.store.abandon()
            self.bench.open._ready = False
        await self.life.aclose()

    # What happens

    @rule(is_commit=st.booleans(), immunity_s=st.sampled_from([None, None, 15]))
    def prepare(self, is_commit: bool, immunity_s: int | None) -> None:
        name = f"T{len(self.decided)}"
        self.decided[name] = COMMIT if is_commit else ROLLBACK
        own = {} if immunity_s is None else {"CHECK_IMMUNITY_TIME_IN_SECONDS": str(immunity_s)}

        async def work() -> None:
            self.halves[name] = [self.bench.prepare(name, **own)]

        self.run(work())

    @precondition(lambda self: self.halves)
    @rule(choice=st.integers(0, 1 << 16), oneway=st.booleans(), is_check=st.booleans())
    def end(self, choice: int, oneway: bool, is_check: bool) -> None:
        name = sorted(self.halves)[choice % len(self.halves)]
        places = self.halves[name]
        half = places[choice % len(places)]

        async def work() -> None:
            try:
                self.bench.end(half, self.decided[name], oneway=oneway, from_transaction_check=is_check)
            except Refused as refused:
                if refused.code not in (ResponseCode.SYSTEM_ERROR, ResponseCode.ILLEGAL_OPERATION):
                    raise
            else:
                if not oneway:
                    self.acknowledged.add(name)

        self.run(work())

    @rule(seconds=st.sampled_from([0.0, ROUND_S]), answers=st.lists(st.booleans(), max_size=6))
    def check(self, seconds: float, answers: list[bool]) -> None:
        self.run(self.check_and_answer(seconds, answers))

    async def check_and_answer(self, seconds: float, answers: list[bool]) -> None:
        """Questions without an answer are answered later, or never."""
        await self.bench.check(seconds)
        for number, question in enumerate(self.bench.asked()):
            self.remember(question)
            if number < len(answers):
                decided = self.decided[question.msg_id or ""]
                self.bench.answer(question, decided if answers[number] else UNKNOWN)

    def remember(self, question: CheckTransactionState) -> None:
        name = question.msg_id or ""
        self.halves.setdefault(name, []).append(
            Half(name, question.commit_log_offset, question.tran_state_table_offset)
        )

    @rule()
    def record(self) -> None:
        async def work() -> None:
            self.bench.checks.record()

        self.run(work())

    @rule(with_offsets=st.booleans())
    def flush(self, with_offsets: bool) -> None:
        async def work() -> None:
            self.bench.parts.store.flushes.flush()
            self.safe |= self.halves.keys()
            self.bench.checks.record()
            if with_offsets:
                self.bench.parts.offsets.persist()

        self.run(work())

    @rule()
    def stop_and_start(self) -> None:
        async def work() -> None:
            await self.stop(crash=False)
            await self.open()

        self.run(work())
        self.safe |= self.halves.keys()

    @rule()
    def kill(self) -> None:
        """The system keeps what the process has written."""

        async def work() -> None:
            await self.stop(crash=True)
            await self.open()

        self.run(work())

    @rule(seed=st.integers(0, 1 << 32))
    def lose_power(self, seed: int) -> None:
        async def work() -> None:
            await self.stop(crash=True)
            self.files.crash(Random(seed))
            await self.open()
            self.forget_the_lost()

        self.run(work())

    def forget_the_lost(self) -> None:
        """Nothing was promised about what was not flushed, except that it is not delivered twice."""
        stored = {half.body.decode() for half in self.bench.messages(HALF, 0)} | set(self.bench.delivered())
        lost = self.decided.keys() - stored
        assert not lost & self.safe
        for name in lost:
            del self.decided[name]
            self.halves.pop(name, None)
        self.acknowledged &= self.safe  # the flush was asynchronous

    # What must be true

    @invariant()
    def one_commit_is_one_message(self) -> None:
        if not self.halves:
            return

        async def work() -> None:
            delivered = self.bench.delivered()
            assert len(set(delivered)) == len(delivered)
            assert not {name for name in delivered if self.decided.get(name) == ROLLBACK}

        self.run(work())

    async def settle(self) -> None:
        """In the end everything is delivered, rolled back, or kept for operators."""
        for _ in range(CHECK_MAX + 4):
            await self.check_and_answer(ROUND_S, [True] * 1000)
        assert len(self.bench.open.halves) == 0
        delivered = set(self.bench.delivered())
        given_up = {message.body.decode() for message in self.bench.given_up()}
        for name, decision in self.decided.items():
            if decision == ROLLBACK:
                assert name not in delivered
            elif name in self.acknowledged:
                assert name in delivered
            else:
                assert name in delivered | given_up
        assert sum(self.bench.parts.tables.transaction_counts.open.values()) == 0


TestTransactionMachine: Any = TransactionMachine.TestCase
TestTransactionMachine.settings = settings(
    max_examples=examples(25),
    stateful_step_count=30,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
