"""The life of a server: what is opened is closed in the reverse order, whatever happens."""

import asyncio
from contextlib import AsyncExitStack

import pytest

from pyromq.clock import ManualClock
from pyromq.errors import StateError
from pyromq.metrics import Measured, Metrics
from pyromq.remoting.exporters import exporters
from pyromq.remoting.program import Program, Together, Work
from pyromq.remoting.settings import ServerSettings


class TalkingExporter:
    address = None

    def __init__(self, told: list[str]) -> None:
        self._told = told

    async def start(self) -> None:
        self._told.append("exporter starts")

    def show(self, _: Measured) -> None:
        self._told.append("exporter shows")

    async def finish(self) -> None:
        self._told.append("exporter finishes")

    async def stop(self) -> None:
        self._told.append("exporter stops")


class TalkingProgram(Program):
    NAME = "test server"

    def __init__(self, told: list[str], fails: str = "") -> None:
        super().__init__([TalkingExporter(told)])
        self.told = told
        self._fails = fails

    def _tell(self, what: str) -> None:
        self.told.append(what)
        if what == self._fails:
            raise OSError(what)

    async def _open(self, opened: AsyncExitStack) -> None:
        for part in ("store", "port"):
            self._tell(f"open {part}")
            opened.callback(self.told.append, f"close {part}")

    def _work(self) -> Work:
        return {"work": self._works()}

    async def _works(self) -> None:
        try:
            self._tell("work")
            await asyncio.Event().wait()
        finally:
            self.told.append("end of work")

    async def _settle(self) -> None:
        await asyncio.sleep(0)
        self._tell("settle")

    async def _drain(self) -> None:
        self.told.append("drain")

    def _measured(self) -> Measured:
        return Metrics()


OPENED = ["exporter starts", "open store", "open port", "work", "settle"]
CLOSED = ["drain", "end of work", "exporter finishes", "close port", "close store", "exporter stops"]


async def test_a_server_drains_ends_its_work_and_closes_its_parts_in_the_reverse_order() -> None:
    async with TalkingProgram([]) as program:
        assert program.told == [*OPENED, "exporter shows"]
        program.told.clear()
        with pytest.raises(StateError, match="the test server has been started already"):
            await program.start()
    assert program.told == CLOSED
    await program.stop()
    await program.run_until_stopped()
    assert program.told == CLOSED


async def test_a_start_that_fails_closes_what_was_opened() -> None:
    program = TalkingProgram([], fails="open port")
    with pytest.raises(OSError, match="open port"):
        await program.start()
    assert program.told == [*OPENED[:3], "close store", "exporter stops"]


async def test_a_server_that_works_already_is_stopped_if_its_start_fails() -> None:
    program = TalkingProgram([], fails="settle")
    with pytest.raises(OSError, match="settle"):
        await program.start()
    assert program.told == [*OPENED, *CLOSED]


async def test_a_failure_of_the_work_ends_the_run() -> None:
    program = TalkingProgram([], fails="work")
    await program.start()
    with pytest.raises(OSError, match="work"):
        await program.run_until_stopped()
    await program.stop()


async def test_programs_together_stop_in_the_reverse_order_also_if_the_last_one_fails() -> None:
    told: list[str] = []
    both = Together(lambda: TalkingProgram(told), lambda: TalkingProgram(told, fails="open store"))
    with pytest.raises(OSError, match="open store"):
        await both.start()
    second = ["exporter starts", "open store", "exporter stops"]
    assert told == [*OPENED, "exporter shows", *second, *CLOSED]


def test_without_an_exporter_nothing_is_served() -> None:
    assert exporters(ServerSettings(), "test", ("127.0.0.1", 0), {}, ManualClock()) == []
