"""A process that registers as a broker and then does nothing: `python -m tests.support.broker_process …`."""

import socket
import sys
from asyncio import StreamReader, create_subprocess_exec
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from tests.support.name_servers import register_broker

from pyromq.protocol.catalogue import encode_request
from pyromq.protocol.framing import FrameReader, encode_frame

ROOT = Path(__file__).parents[2]


@asynccontextmanager
async def broker_process(
    address: tuple[str, int], name: str, topics: list[str], timeout_ms: int | None = None
) -> AsyncIterator[Process]:
    """The process, registered; it is killed at the end if it still lives."""
    host, port = address
    arguments = [host, str(port), name, ",".join(topics), str(timeout_ms or "")]
    process = await create_subprocess_exec(
        sys.executable, "-m", "tests.support.broker_process", *arguments, stdout=PIPE, cwd=ROOT
    )
    try:
        assert isinstance(process.stdout, StreamReader)
        assert await process.stdout.readline() == b"registered\n"
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


def _main(host: str, port: str, name: str, topics: str, timeout_ms: str) -> None:
    request = register_broker(
        name, 0, topics.split(","), heartbeat_timeout_millis=int(timeout_ms) if timeout_ms else None
    )
    with socket.create_connection((host, int(port))) as connection:
        connection.sendall(encode_frame(encode_request(request, 1)))
        answers = FrameReader()
        while not answers.feed(connection.recv(65536)):
            pass
        sys.stdout.write("registered\n")
        sys.stdout.flush()
        connection.recv(1)


if __name__ == "__main__":
    _main(*sys.argv[1:])
