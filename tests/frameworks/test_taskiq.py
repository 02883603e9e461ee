"""Taskiq's own workers on a cluster: what they run, and how often, also if they are killed."""

import asyncio
import importlib
import sys
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.support.task_worker import TIMEOUT_S, TaskWorkers

from pyromq.testing import RunningCluster

pytest.importorskip("taskiq")
pytestmark = [pytest.mark.frameworks, pytest.mark.filterwarnings("ignore")]

_APPLICATION = """
import asyncio
from note_writing import run, write
from pyromq.taskiq import TaskiqBroker, TaskiqResults, TaskiqSchedules
from taskiq import SimpleRetryMiddleware, TaskiqScheduler

broker = TaskiqBroker({url!r}, invisible_s=5.0).with_result_backend(TaskiqResults({url!r}))
broker.add_middlewares(SimpleRetryMiddleware(default_retry_count=3))
schedules = TaskiqSchedules(broker)
scheduler = TaskiqScheduler(broker, [schedules])


@broker.task
async def note(path: str, text: str, pause_s: float = 0.0) -> str:
    write(path, f"begun {{text}}")
    await asyncio.sleep(pause_s)
    write(path, text)
    return text


@broker.task
def slow(path: str, text: str, pause_s: float) -> None:
    run(path, text, pause_s)


@broker.task(retry_on_error=True, max_retries=3)
async def third_time(path: str) -> int:
    with open(path) as file:
        tries = len(file.readlines())
    write(path, "tried")
    if tries < 2:
        raise ValueError("on purpose")
    return tries
"""

New = Callable[[], tuple[TaskWorkers, Any]]


@pytest.fixture
def new(rocketmq: RunningCluster, tmp_path: Path) -> Iterator[New]:
    made: list[TaskWorkers] = []
    name = f"taskiq_{tmp_path.name}".replace("-", "_")

    def application() -> tuple[TaskWorkers, Any]:
        text = _APPLICATION.format(url=f"rocketmq://{rocketmq.namesrv}/tests")
        command = ["-m", "taskiq", "worker", f"{name}:broker", "--workers", "1"]
        made.append(TaskWorkers(tmp_path, name, text, command))
        sys.path.insert(0, str(tmp_path))
        try:
            return made[-1], importlib.import_module(name)
        finally:
            sys.path.remove(str(tmp_path))
            sys.modules.pop("note_writing", None)

    yield application
    for each in made:
        each.stop_all()


def sent(module: Any, send: Callable[[], Awaitable[Any]]) -> Any:
    """Runs `send` in a client."""

    async def run() -> Any:
        await module.broker.startup()
        try:
            return await send()
        finally:
            await module.schedules.shutdown()
            await module.broker.shutdown()

    return asyncio.run(run())


def test_each_task_runs_once_and_its_result_comes_back(new: New) -> None:
    workers, module = new()
    workers.start("one")
    workers.start("two")

    async def send() -> list[Any]:
        tasks = [await module.note.kiq(str(workers.notes), str(number)) for number in range(100)]
        return [(await each.wait_result(timeout=TIMEOUT_S)).return_value for each in tasks]

    assert sent(module, send) == list(map(str, range(100)))
    assert Counter(workers.done()) == Counter(map(str, range(100)))


def test_a_task_with_a_delay_or_a_schedule_comes_at_its_time_and_a_failed_one_again(new: New) -> None:
    workers, module = new()
    workers.start()

    async def send() -> datetime:
        await (await module.note.kiq(str(workers.notes), "now")).wait_result(timeout=TIMEOUT_S)
        await module.note.kicker().with_labels(delay=2).kiq(str(workers.notes), "later")
        at = datetime.now(UTC) + timedelta(seconds=4)
        await module.note.schedule_by_time(module.schedules, at, str(workers.notes), "last")
        never = datetime.now(UTC) + timedelta(seconds=3)
        deleted = await module.note.schedule_by_time(module.schedules, never, str(workers.notes), "never")
        await deleted.unschedule()
        return at

    at = sent(module, send)
    workers.wait(lambda: len(workers.done()) == 3)
    assert datetime.now(UTC) >= at
    assert workers.done() == ["now", "later", "last"]
    other = workers.notes.with_name("tries")
    other.write_text("")
    result = sent(module, lambda: _result(module.third_time.kiq(str(other))))
    assert result.return_value == 2


async def _result(sending: Awaitable[Any]) -> Any:
    task = await sending
    until = asyncio.get_running_loop().time() + TIMEOUT_S
    while True:  # each try has a result
        result = await task.wait_result(timeout=TIMEOUT_S)
        if not result.is_err or asyncio.get_running_loop().time() > until:
            return result
        await asyncio.sleep(0.1)


def test_tasks_of_a_worker_that_dies_run_elsewhere_soon(new: New) -> None:
    workers, module = new()
    first = workers.start("first")

    async def send() -> None:
        for number in range(20):
            await module.note.kiq(str(workers.notes), str(number), 1.0)

    sent(module, send)
    workers.wait(lambda: bool(workers.noted()))
    workers.kill(first)
    workers.start("second")
    workers.wait(lambda: set(workers.done()) == set(map(str, range(20))))


def test_a_task_that_outlives_the_invisible_time_runs_once(new: New) -> None:
    workers, module = new()
    workers.start("one")
    workers.start("two")
    sent(module, lambda: module.slow.kiq(str(workers.notes), "long", 15.0))
    workers.wait(lambda: "long" in workers.noted())
    assert workers.noted() == ["begun long", "long"]


def test_a_worker_that_is_asked_to_stop_loses_and_repeats_nothing(new: New) -> None:
    workers, module = new()
    first = workers.start("first")

    async def send() -> None:
        for number in range(150):
            await module.note.kiq(str(workers.notes), str(number), 0.5)

    sent(module, send)
    workers.wait(lambda: len(workers.done()) > 5)
    workers.stop(first)
    workers.start("second")
    workers.wait(lambda: len(set(workers.done())) == 150)
    assert Counter(workers.done()) == Counter(map(str, range(150)))


def test_tasks_run_after_the_broker_was_killed_and_came_back(new: New, rocketmq: RunningCluster) -> None:
    workers, module = new()
    workers.start()

    async def send() -> None:
        for number in range(20):
            await module.note.kiq(str(workers.notes), str(number))
        await module.note.kicker().with_labels(delay=5).kiq(str(workers.notes), "timed")

    sent(module, send)
    rocketmq.kill_broker()
    rocketmq.start_broker()
    workers.wait(lambda: {*map(str, range(20)), "timed"} <= set(workers.done()))
