"""A server in a process of its own, which is told what to do through a pipe.

The servers are the shipped ones. Their clock and their disk are ours: `clock MS` moves the wall clock,
`disk MS` lets every sync take longer, `sync 1` lets every sync fail. `stop`, or the end of the pipe, stops
the server as an operator would. It says so when it is up.
"""

import asyncio
import logging
import os
import sys
import threading
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from tests.campaign.disks import BreakableFiles
from tests.support.broker_cluster import configuration
from tests.support.controlled_brokers import controller
from tests.support.loop import FASTEST_LOOP
from tests.support.name_servers import name_server

from pyromq.broker.broker import Broker
from pyromq.clock import SystemClock
from pyromq.remoting.program import Program

READY = "ready"


class MovedClock(SystemClock):
    """The machine's clocks; its wall clock has been set wrong."""

    def __init__(self) -> None:
        self.moved_ms = 0

    def now_ms(self) -> int:
        return super().now_ms() + self.moved_ms


def _server(kind: str, settings: dict[str, Any], clock: MovedClock, files: BreakableFiles) -> Program:
    directory = Path(settings.pop("directory"))
    directory.mkdir(parents=True, exist_ok=True)
    if kind == "namesrv":
        return name_server(directory, clock=clock, **settings)
    if kind == "controller":
        return controller(directory, clock=clock, **settings)
    return Broker(configuration(directory / "store", **settings), clock=clock, files=files)


async def _main(kind: str, settings: dict[str, Any], pipe: Connection) -> None:
    clock, files = MovedClock(), BreakableFiles(Path(settings["directory"]))
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()

    def listen() -> None:
        with suppress(EOFError):
            while (command := pipe.recv()) != "stop":
                word, _, number = command.partition(" ")
                if word == "clock":
                    clock.moved_ms = int(number)
                elif word == "disk":
                    files.delay_s = int(number) / 1000
                elif word == "sync":
                    files.fails = bool(int(number))
        loop.call_soon_threadsafe(stopping.set)

    threading.Thread(target=listen, daemon=True).start()
    async with _server(kind, settings, clock, files) as server:
        pipe.send(READY)
        failed = asyncio.create_task(server.run_until_stopped())
        stopped = asyncio.create_task(stopping.wait())
        await asyncio.wait([failed, stopped], return_when=asyncio.FIRST_COMPLETED)
        stopped.cancel()
        if failed.done():
            failed.result()
    await failed


def run(kind: str, settings: dict[str, Any], log: str, pipe: Connection) -> None:
    """The whole life of the process."""
    os.setsid()  # Ctrl-C is for the campaign alone
    output = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    os.dup2(output, sys.stdout.fileno())
    os.dup2(output, sys.stderr.fileno())
    logging.basicConfig(
        stream=sys.stderr, level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s"
    )
    (new_loop,) = FASTEST_LOOP.values()
    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(_main(kind, settings, pipe))
