"""A batch of a transactional sink as Spark runs it, and a strike between two steps of its commit."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from tests.support.transactional_rows import rows

from pyromq.errors import ConnectionLost
from pyromq.spark import ending
from pyromq.spark.batch_journal import BatchJournal
from pyromq.spark.ending import Ending
from pyromq.spark.options import WriteOptions
from pyromq.spark.queues import Queue
from pyromq.spark.transactional import TransactionalStreamWriter, prepare

AT_ONCE = 100
STEPS = ("decide", "decided", *(f"{when} {n}" for n in range(3) for when in ("ask", "asked")), "end", "ended")
"""Of 300 rows: before and behind each of them. Behind an `asked` the answer is lost."""


def run_batch(
    options: WriteOptions, checkpoint: str, batch: int, before_abort: Callable[[], None] = lambda: None
) -> None:
    """Tasks, commit, and abort if that fails. An exception that is not an Exception is the driver's death."""
    journal = BatchJournal(checkpoint)
    writer = TransactionalStreamWriter(options, checkpoint)
    messages = [prepare([part], options, journal, batch) for part in rows(batch)]
    try:
        writer.commit(list(messages), batch)
    except Exception:
        before_abort()
        writer.abort(list(messages), batch)
        raise


def strike_at(step: str, strike: Callable[[], None], monkeypatch: pytest.MonkeyPatch) -> None:
    """Call `strike` at a step of the next commits; the first time only."""
    is_struck = False

    def at(name: str) -> bool:
        nonlocal is_struck
        if is_struck or name != step:
            return False
        is_struck = True
        strike()
        return True

    asked = 0
    ask, decide, end = Ending._ask, BatchJournal.decide, BatchJournal.end

    def ask_in_steps(self: Ending, broker: Queue, requests: Sequence[Any]) -> list[Any]:
        nonlocal asked
        number, asked = asked, asked + 1
        at(f"ask {number}")
        answers = ask(self, broker, requests)
        if at(f"asked {number}"):
            raise ConnectionLost("the answer")
        return answers

    def decide_in_steps(self: BatchJournal, *arguments: Any) -> None:
        at("decide")
        decide(self, *arguments)
        at("decided")

    def end_in_steps(self: BatchJournal, batch: int) -> None:
        at("end")
        end(self, batch)
        at("ended")

    monkeypatch.setattr(ending, "_AT_ONCE", AT_ONCE)
    monkeypatch.setattr(Ending, "_ask", ask_in_steps)
    monkeypatch.setattr(BatchJournal, "decide", decide_in_steps)
    monkeypatch.setattr(BatchJournal, "end", end_in_steps)
