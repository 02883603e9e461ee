"""A process that this one has started is asked to end, and is killed if it does not."""

import asyncio
import signal
from asyncio.subprocess import Process
from typing import Final

STOP_TIMEOUT_S: Final = 30.0


async def end(process: Process) -> None:
    """Returns when it has ended."""
    if process.returncode is not None:
        return
    process.send_signal(signal.SIGTERM)
    try:
        async with asyncio.timeout(STOP_TIMEOUT_S):
            await process.wait()
    except TimeoutError:
        process.kill()
        await process.wait()
