"""What threads and signal handlers ask of the loop side of a connection of Celery."""

from collections import deque
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("kombu")


def test_an_acknowledgement_that_interrupts_another_leaves_neither_behind(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from pyromq.celery.inflow import Inflow

    called_soon: list[Callable[[], None]] = []
    target: Any = SimpleNamespace(options=SimpleNamespace(invisible_s=30.0))
    thread: Any = SimpleNamespace(is_of_this_process=True, call_soon=called_soon.append)
    inflow = Inflow(target, thread, lambda: None)
    ended: list[int] = []
    monkeypatch.setattr(inflow, "_end", lambda tag, how: ended.append(tag))

    class Interrupted(deque[Any]):
        def append(self, settled: Any) -> None:
            super().append(settled)
            if settled[0] == 1:
                inflow.settle(2, "ack")

    monkeypatch.setattr(inflow, "_settled", Interrupted())
    inflow.settle(1, "ack")
    while called_soon:
        called_soon.pop()()
    assert sorted(ended) == [1, 2]
    inflow.settle(3, "ack")
    assert len(called_soon) == 1
