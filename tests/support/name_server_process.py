"""A name server in a process of its own, to be killed: `python -m tests.support.name_server_process DIR`."""

import asyncio
import sys
from asyncio.subprocess import Process
from pathlib import Path

from tests.support.killable_process import is_up, start
from tests.support.name_servers import name_server


async def start_name_server_process(directory: Path) -> tuple[Process, tuple[str, int]]:
    process, port = await start("tests.support.name_server_process", str(directory))
    return process, ("127.0.0.1", int(port))


async def _main(directory: Path) -> None:
    async with name_server(directory) as server:
        is_up(server.address[1])
        await server.run_until_stopped()


if __name__ == "__main__":
    asyncio.run(_main(Path(sys.argv[1])))
