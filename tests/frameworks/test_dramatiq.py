"""Dramatiq's own workers on a cluster: what they run, and how often, also if they are killed."""

import importlib
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.task_worker import TaskWorkers

from pyromq.testing import RunningCluster

pytest.importorskip("dramatiq")
pytestmark = [pytest.mark.frameworks, pytest.mark.filterwarnings("ignore")]

_APPLICATION = """
import dramatiq
from note_writing import run, write
from pyromq.dramatiq import DramatiqBroker

broker = DramatiqBroker({url!r}, invisible_s=5.0)
dramatiq.set_broker(broker)


@dramatiq.actor
def note(path, text, pause_s=0.0):
    run(path, text, pause_s)


@dramatiq.actor
def pass_on(path, text):
    note.send(path, text)


@dramatiq.actor(max_retries=3, min_backoff=100, max_backoff=200)
def third_time(path):
    with open(path) as file:
        tries = len(file.readlines())
    write(path, "tried")
    if tries < 3:
        raise ValueError("on purpose")
    write(path, "done")
"""

New = Callable[[], tuple[TaskWorkers, Any]]


@pytest.fixture
def new(rocketmq: RunningCluster, tmp_path: Path) -> Iterator[New]:
    made: list[tuple[TaskWorkers, Any]] = []
    name = f"dramatiq_{tmp_path.name}".replace("-", "_")

    def application() -> tuple[TaskWorkers, Any]:
        text = _APPLICATION.format(url=f"rocketmq://{rocketmq.namesrv}/tests")
        command = ["-m", "dramatiq", name, "--processes", "2", "--threads", "4"]
        workers = TaskWorkers(tmp_path, name, text, command)
        sys.path.insert(0, str(tmp_path))
        try:
            made.append((workers, importlib.import_module(name)))
        finally:
            sys.path.remove(str(tmp_path))
            sys.modules.pop("note_writing", None)
        return made[-1]

    yield application
    for workers, module in made:
        workers.stop_all()
        module.broker.close()


def test_each_message_is_processed_once_also_those_that_workers_send(new: New) -> None:
    workers, module = new()
    workers.start("one")
    workers.start("two")
    for number in range(100):
        module.pass_on.send(str(workers.notes), str(number))
    workers.wait(lambda: len(workers.done()) >= 100)
    assert Counter(workers.done()) == Counter(map(str, range(100)))


def test_a_delayed_message_comes_at_its_time_and_a_failed_one_again(new: New) -> None:
    workers, module = new()
    workers.start()
    module.note.send(str(workers.notes), "now")
    workers.wait(lambda: workers.done() == ["now"])
    until = time.time() + 3
    module.note.send_with_options(args=(str(workers.notes), "later"), delay=3000)
    workers.wait(lambda: workers.done() == ["now", "later"])
    assert time.time() >= until
    other = workers.notes.with_name("tries")
    other.write_text("")
    module.third_time.send(str(other))
    workers.wait(lambda: other.read_text() == "tried\n" * 4 + "done\n")


def test_messages_of_a_worker_that_dies_are_processed_elsewhere_soon(new: New) -> None:
    workers, module = new()
    first = workers.start("first")
    for number in range(30):
        module.note.send(str(workers.notes), str(number), 1.0)
    workers.wait(lambda: bool(workers.noted()))
    workers.kill(first)
    workers.start("second")
    workers.wait(lambda: set(workers.done()) == set(map(str, range(30))))


def test_a_message_that_outlives_the_invisible_time_is_processed_once(new: New) -> None:
    workers, module = new()
    workers.start("one")
    workers.start("two")
    module.note.send(str(workers.notes), "long", 15.0)
    workers.wait(lambda: "long" in workers.noted())
    assert workers.noted() == ["begun long", "long"]


def test_a_worker_that_is_asked_to_stop_loses_and_repeats_nothing(new: New) -> None:
    workers, module = new()
    first = workers.start("first")
    for number in range(100):
        module.note.send(str(workers.notes), str(number), 0.2)
    workers.wait(lambda: len(workers.done()) > 5)
    assert workers.stop(first) == 0
    workers.start("second")
    workers.wait(lambda: len(set(workers.done())) == 100)
    assert Counter(workers.done()) == Counter(map(str, range(100)))


def test_messages_are_processed_after_the_broker_was_killed_and_came_back(
    new: New, rocketmq: RunningCluster
) -> None:
    workers, module = new()
    workers.start()
    for number in range(20):
        module.note.send(str(workers.notes), str(number), 0.05)
    module.note.send_with_options(args=(str(workers.notes), "timed"), delay=5000)
    rocketmq.kill_broker()
    rocketmq.start_broker()
    workers.wait(lambda: {*map(str, range(20)), "timed"} <= set(workers.done()))
