"""How a server's process is set up."""

import sys
from collections.abc import Iterator

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
