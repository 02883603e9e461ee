"""Signals end a server: the first in good order, the second at once. Real processes, real signals."""

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

SERVER = """
import asyncio, sys
from pyromq.apps.serving import serve

class Told:
    def __init__(self, behaviour):
        self.stopped = asyncio.Event()
        self.behaviour = behaviour
    async def start(self):
        tell("started")
    async def run_until_stopped(self):
        if self.behaviour == "breaks":
            raise RuntimeError("broke down")
        await self.stopped.wait()
    async def stop(self):
        tell("stopping")
        if self.behaviour == "hangs":
            await asyncio.Event().wait()
        self.stopped.set()

def tell(word):
    print(word, flush=True)

serve(Told(sys.argv[1]), lambda: tell("announced"))
tell("returned")
"""


@contextmanager
def server(behaviour: str, *launcher: str) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [*launcher, sys.executable, "-c", SERVER, behaviour],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # The tests themselves may run under nohup.
        preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_DFL),
    )
    with process:
        try:
            yield process
        finally:
            process.kill()


def next_line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


@pytest.mark.parametrize("received", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_the_first_signal_stops_in_good_order(received: signal.Signals) -> None:
    with server("obeys") as process:
        assert [next_line(process), next_line(process)] == ["started", "announced"]
        process.send_signal(received)
        output, errors = process.communicate(timeout=60)
        assert output.splitlines() == ["stopping", "returned"]
        assert process.returncode == 0, errors


def test_a_server_under_nohup_outlives_its_terminal() -> None:
    with server("obeys", "nohup") as process:
        assert [next_line(process), next_line(process)] == ["started", "announced"]
        process.send_signal(signal.SIGHUP)
        process.send_signal(signal.SIGTERM)
        output, errors = process.communicate(timeout=60)
        assert output.splitlines() == ["stopping", "returned"]
        assert process.returncode == 0, errors


def test_the_second_signal_ends_a_server_that_hangs_while_stopping() -> None:
    with server("hangs") as process:
        assert [next_line(process), next_line(process)] == ["started", "announced"]
        process.send_signal(signal.SIGTERM)
        assert next_line(process) == "stopping"
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)
        assert process.returncode == 128 + signal.SIGINT


def test_a_server_that_breaks_down_is_stopped_told_about_and_a_failure() -> None:
    with server("breaks") as process:
        output, errors = process.communicate(timeout=60)
        assert output.splitlines() == ["started", "announced", "stopping"]
        assert "broke down" in errors
        assert process.returncode == 1
