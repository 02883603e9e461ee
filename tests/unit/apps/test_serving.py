"""How a server's process is set up."""

import gc
import sys
from collections.abc import Iterator
from unittest.mock import Mock

import pytest

from pyromq.apps import serving


class Recorder:
    """A server that stops as soon as it runs."""

    switch_interval_s = 0.0

    async def start(self) -> None:
        self.switch_interval_s = sys.getswitchinterval()

    async def run_until_stopped(self) -> None: ...

    async def stop(self) -> None: ...


@pytest.fixture
def switch_interval() -> Iterator[None]:
    before = sys.getswitchinterval()
    yield
    sys.setswitchinterval(before)


@pytest.mark.usefixtures("switch_interval")
def test_threads_hand_the_interpreter_to_the_loop_within_a_millisecond(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for setup in ("report_faults", "_raise_file_limit", "_settle_memory"):
        monkeypatch.setattr(serving, setup, lambda *_: None)
    server = Recorder()
    serving.serve(server, lambda: None)
    assert server.switch_interval_s == pytest.approx(0.001)


@pytest.mark.usefixtures("switch_interval")
def test_a_collection_looks_at_few_new_objects_at_once_and_seldom_at_old_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for setup in ("report_faults", "_raise_file_limit"):
        monkeypatch.setattr(serving, setup, lambda *_: None)
    collector = Mock(spec=gc)
    monkeypatch.setattr(serving, "gc", collector)
    serving.serve(Recorder(), lambda: None)
    # What is there after the start is left alone first.
    assert [each[0] for each in collector.method_calls] == ["collect", "freeze", "set_threshold"]
    new, collections, _ = collector.set_threshold.call_args.args
    assert new <= 5_000
    assert new * collections >= 1_000_000
