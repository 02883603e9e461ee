"""Runs of async handlers: compiled and interpreted, they call the same handlers and end in the same way."""

import asyncio
from collections.abc import Awaitable, Generator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.held_messages import held_queue

from pyromq.client.consumer.handling.runs import (
    InterpretedLot,
    Lot,
    _run_handlers,
    rest_of,
    run_handlers,
)
from pyromq.client.consumer.reading.stats import Counts
from pyromq.compiled import WHY, twin

native: Any = twin("client.twin_runs")


class Waiting:
    """What a handler waits for."""

    def __await__(self) -> Generator[Any, Any, None]:
        yield "waiting"


class Application:
    """A handler that does with each message what the message says."""

    def __init__(self, said: list[str], start: int, kind: type[InterpretedLot] = Lot) -> None:
        self.handled: list[int] = []
        self.time = 0.0
        messages: Any = list(enumerate(said))
        self.lot = kind(held_queue(), messages, None, Counts(), start)

    def monotonic(self) -> float:
        self.time += 1
        return self.time

    def handle(self, message: tuple[int, str]) -> Awaitable[None]:
        if message[1] == "refuse":
            raise ValueError(message)
        return self.answer(message) if message[1] == "answer" else self.work(message)

    def answer(self, message: tuple[int, str]) -> Awaitable[None]:
        """Something to be awaited that is no coroutine."""
        self.handled.append(message[0])
        return Waiting()

    async def work(self, message: tuple[int, str]) -> None:
        self.handled.append(message[0])
        match message[1]:
            case "wait":
                await Waiting()
            case "fail":
                raise ValueError(message)
            case "exit":
                raise SystemExit(3)
            case "close":
                self.lot.held.is_closing = True
            case "cut":
                self.lot.cut()


def ended(run: Any, kind: Any, said: list[str], start: int, turn_s: float) -> tuple[object, ...]:
    application = Application(said, start, kind)
    lot = application.lot
    waiting, has_begun, waits_for, problem, *times = run(
        application.handle, lot, application.monotonic, turn_s
    )
    if has_begun:
        waiting.close()
    awaited = type(waiting)
    took = lot.take(2)
    return (
        application.handled,
        took,
        lot.next,
        lot.waiting,
        awaited,
        has_begun,
        waits_for,
        repr(problem),
        times,
    )


said_to_handlers = st.lists(
    st.sampled_from(["", "", "", "", "wait", "fail", "exit", "close", "cut", "answer", "refuse"]), max_size=8
)


@pytest.mark.skipif(native is None, reason=f"no compiled runs: {WHY}")
@given(said_to_handlers, st.integers(0, 2), st.integers(0, 9))
def test_both_run_the_same_handlers_and_end_alike(said: list[str], start: int, turn_s: int) -> None:
    start = min(start, len(said))
    told = said, start, turn_s
    interpreted = ended(_run_handlers, InterpretedLot, *told)
    assert ended(native.run_handlers, native.Lot, *told) == interpreted


async def test_the_rest_of_a_handler_goes_on_where_it_waits() -> None:
    seen: list[object] = []

    async def handle(message: object) -> None:
        try:
            seen.append(await asyncio.sleep(0, "slept"))
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            seen.append("cancelled")
            await asyncio.sleep(0)
            seen.append("cleaned up")
            raise

    application = Application([""], 0)
    waiting, has_begun, waits_for, *_ = run_handlers(handle, application.lot, application.monotonic, 9.0)
    assert has_begun

    async def finish() -> None:
        await rest_of(waiting, waits_for)

    task = asyncio.create_task(finish())
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert seen == ["slept", "cancelled", "cleaned up"]
