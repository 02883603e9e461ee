"""A process that registers as a broker and then does nothing: `python -m tests.support.broker_process …`."""

import socket
import sys
from asyncio.subprocess import Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tests.support.killable_process import end, is_up, start
from tests.support.name_servers import register_broker

from pyromq.protocol.catalogue import encode_request
from pyromq.protocol.framing import FrameReader, encode_frame


@asynccontextmanager
async def broker_process(
    address: tuple[str, int], name: str, topics: list[str], timeout_ms: int | None = None
) -> AsyncIterator[Process]:
    """The process, registered; it is killed at the end if it still lives."""
    host, port = address
    arguments = [host, str(port), name, ",".join(topics), str(timeout_ms or "")]
    process, _ = await start("tests.support.broker_process", *arguments)
    try:
        yield process
    finally:
        await end(process)


def _main(host: str, port: str, name: str, topics: str, timeout_ms: str) -> None:
    request = register_broker(
        name, 0, topics.split(","), heartbeat_timeout_millis=int(timeout_ms) if timeout_ms else None
    )
    with socket.create_connection((host, int(port))) as connection:
        connection.sendall(encode_frame(encode_request(request, 1)))
        answers = FrameReader()
        while not answers.feed(connection.recv(65536)):
            pass
        is_up("registered")
        connection.recv(1)


if __name__ == "__main__":
    _main(*sys.argv[1:])
