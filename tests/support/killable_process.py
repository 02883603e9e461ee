"""Programs of ours in processes of their own, to be killed: `python -m MODULE ARGUMENTS`.

Such a program says with one line that it is up.
"""

import asyncio
import sys
from asyncio.subprocess import PIPE, Process

from tests.support.places import ROOT


async def launch(module: str, *arguments: str) -> Process:
    return await asyncio.create_subprocess_exec(
        sys.executable, "-m", module, *arguments, stdout=PIPE, cwd=ROOT
    )


async def start(module: str, *arguments: str) -> tuple[Process, str]:
    """The process, and the line; RuntimeError if it has ended before."""
    process = await launch(module, *arguments)
    assert process.stdout is not None
    line = (await process.stdout.readline()).decode().strip()
    if not line:
        raise RuntimeError(f"{module} ended before it was up: exit status {await process.wait()}")
    return process, line


async def end(process: Process) -> None:
    """Kill it, if it still lives."""
    if process.returncode is None:
        process.kill()
    await process.wait()


def is_up(line: object) -> None:
    """The program says that it is up."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()
