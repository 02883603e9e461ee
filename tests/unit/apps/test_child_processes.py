"""Child processes end with their parent, in whatever state they are."""

import asyncio
import signal
from asyncio.subprocess import PIPE

import pytest

from pyromq.apps import child_processes


async def _status(script: str, *, ends_alone: bool = False) -> int | None:
    """Of a shell that is ended after its first line."""
    process = await asyncio.create_subprocess_exec("sh", "-c", script, stdin=PIPE, stdout=PIPE)
    assert process.stdout is not None
    await process.stdout.readline()
    if ends_alone:
        await process.wait()
    await child_processes.end(process)
    await process.communicate()  # closes the pipes
    return process.returncode


async def test_a_process_is_asked_to_end() -> None:
    assert await _status("trap 'exit 7' TERM; echo; read line") == 7


async def test_one_that_does_not_end_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(child_processes, "STOP_TIMEOUT_S", 0.0)
    assert await _status("trap '' TERM; echo; read line") == -signal.SIGKILL


async def test_one_that_has_ended_is_left_alone() -> None:
    assert await _status("echo; exit 3", ends_alone=True) == 3
