"""A name server in a process of its own, to be killed: `python -m tests.support.name_server_process DIR`."""

import asyncio
import sys
from asyncio.subprocess import PIPE, Process
from pathlib import Path

from tests.support.name_servers import name_server

ROOT = Path(__file__).parents[2]


async def start_name_server_process(directory: Path) -> tuple[Process, tuple[str, int]]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.support.name_server_process", str(directory), stdout=PIPE, cwd=ROOT
    )
    assert process.stdout is not None
    port = await process.stdout.readline()
    return process, ("127.0.0.1", int(port))


async def _main(directory: Path) -> None:
    async with name_server(directory) as server:
        sys.stdout.write(f"{server.address[1]}\n")
        sys.stdout.flush()
        await server.run_until_stopped()


if __name__ == "__main__":
    asyncio.run(_main(Path(sys.argv[1])))
