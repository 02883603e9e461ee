"""Brokers and name servers die by SIGKILL while workers of frameworks have tasks.

Each task runs, and again only if the worker that ran it could not say so."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.killable_servers import BROKERS, NAME_SERVER, KillableServers, killable_servers
from tests.support.task_worker import TIMEOUT_S, TaskWorkers

pytestmark = pytest.mark.frameworks

TASKS = 240
UNSETTLED = 16
"""What a worker may have been working on, or have had no answer about, when a broker died."""

_CELERY = """
import time
from celery import Celery
from note_writing import write

app = Celery("app", broker={url!r})
app.conf.update(task_acks_late=True, task_ignore_result=True, broker_transport_options={{"invisible_s": 5}})


@app.task
def note(text):
    time.sleep(0.05)
    write({path!r}, text)


def send(text):
    note.delay(text)
"""
_TASKIQ = """
import asyncio
from note_writing import write
from pyromq.taskiq import TaskiqBroker

broker = TaskiqBroker({url!r}, invisible_s=5.0, prefetch=8)


@broker.task
async def note(text: str) -> None:
    await asyncio.sleep(0.05)
    write({path!r}, text)


sending = asyncio.Runner()


def send(text):
    sending.run(sent(text))


async def sent(text):
    if broker._link is None:
        await broker.startup()
    await note.kiq(text)
"""
_DRAMATIQ = """
import dramatiq, time
from note_writing import write
from pyromq.dramatiq import DramatiqBroker

broker = DramatiqBroker({url!r}, invisible_s=5.0)
dramatiq.set_broker(broker)


@dramatiq.actor
def note(text):
    time.sleep(0.05)
    write({path!r}, text)


def send(text):
    note.send(text)
"""
_SENDER = """
import time
from app import send

for number in range({tasks}):
    send(str(number))
    time.sleep(0.03)
"""
APPLICATIONS = {
    "celery": (_CELERY, ["-m", "celery", "-A", "app", "worker", "-c", "2", "-l", "INFO"]),
    "taskiq": (_TASKIQ, ["-m", "taskiq", "worker", "app:broker", "--workers", "1", "--max-async-tasks", "4"]),
    "dramatiq": (_DRAMATIQ, ["-m", "dramatiq", "app", "--processes", "1", "--threads", "4"]),
}


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[KillableServers]:
    with killable_servers(tmp_path) as running:
        yield running


@pytest.mark.parametrize("framework", APPLICATIONS)
def test_each_task_runs_although_servers_are_killed_under_load(
    framework: str, servers: KillableServers, tmp_path: Path
) -> None:
    pytest.importorskip(framework)
    application, command = APPLICATIONS[framework]
    text = application.format(url=f"rocketmq://{servers.namesrv}/tests", path=str(tmp_path / "notes"))
    workers = TaskWorkers(tmp_path, "app", text, command)
    sender = TaskWorkers(tmp_path, "sender", _SENDER.format(tasks=TASKS), ["sender.py"])
    try:
        workers.wait(servers.are_up)
        workers.start()
        sending = sender.start("sender")
        for step, name in enumerate((BROKERS[0], NAME_SERVER, BROKERS[1], BROKERS[0]), 1):
            seen = step * TASKS // 8
            workers.wait(lambda seen=seen: len(workers.done()) >= seen)  # type: ignore[misc]
            servers.kill(name)
            servers.start(name)
            workers.wait(servers.are_up)
        assert sending.wait(TIMEOUT_S) == 0, sender.logs()
        workers.wait(lambda: set(workers.done()) == set(map(str, range(TASKS))))
        runs = Counter(workers.done())
        assert max(runs.values()) <= 1 + 3, "at most once more for each broker that died"
        assert runs.total() <= TASKS + 3 * UNSETTLED
    finally:
        sender.stop_all()
        workers.stop_all()
