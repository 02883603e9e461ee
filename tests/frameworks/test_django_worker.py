"""`manage.py pyromq_worker` on a cluster: what it runs, and how often, also if it is killed."""

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.support.task_worker import TIMEOUT_S, TaskWorkers

from pyromq.testing import RunningCluster

pytest.importorskip("django_tasks")
pytestmark = [pytest.mark.frameworks, pytest.mark.filterwarnings("ignore")]

_SETTINGS = """
SECRET_KEY = "tests"
USE_TZ = True
DATABASES = {{"default": {{"ENGINE": "django.db.backends.sqlite3", "NAME": "shop.db"}}}}
INSTALLED_APPS = ["pyromq.django", "django_tasks"]
TASKS = {{
    "default": {{
        "BACKEND": "pyromq.django.tasks.RocketTasks",
        "OPTIONS": {{"namesrv": {url!r}, "invisible_s": 5.0}},
    }}
}}
"""
_TASKS = """
from django_tasks import task
from note_writing import run


@task
def note(path, text, pause_s=0.0):
    run(path, text, pause_s)
"""
_MANAGE = """
import os, sys

os.environ["DJANGO_SETTINGS_MODULE"] = "shop_settings"
from django.core.management import execute_from_command_line

execute_from_command_line(sys.argv)
"""
_SENDING = """
import json, os, sys

os.environ["DJANGO_SETTINGS_MODULE"] = "shop_settings"
import django

django.setup()
from shop_tasks import note

for arguments in json.load(sys.stdin):
    note.enqueue(*arguments)
"""

Sent = Callable[..., None]


@pytest.fixture
def workers(rocketmq: RunningCluster, tmp_path: Path) -> Iterator[TaskWorkers]:
    (tmp_path / "shop_tasks.py").write_text(_TASKS)
    (tmp_path / "manage.py").write_text(_MANAGE)
    settings = _SETTINGS.format(url=f"rocketmq://{rocketmq.namesrv}/tests")
    made = TaskWorkers(tmp_path, "shop_settings", settings, ["manage.py", "pyromq_worker"])
    yield made
    made.stop_all()


@pytest.fixture
def send(workers: TaskWorkers) -> Sent:
    def send(*tasks: tuple[str, float]) -> None:
        given = json.dumps([(str(workers.notes), *each) for each in tasks]).encode()
        place = workers.notes.parent
        subprocess.run([sys.executable, "-c", _SENDING], input=given, cwd=place, check=True)

    return send


def test_tasks_of_a_worker_that_dies_run_elsewhere_soon(workers: TaskWorkers, send: Sent) -> None:
    first = workers.start("first")
    send(*((str(number), 1.0) for number in range(20)))
    workers.wait(lambda: bool(workers.noted()))
    workers.kill(first)
    workers.start("second")
    workers.wait(lambda: set(workers.done()) == set(map(str, range(20))))


def test_a_task_that_outlives_the_invisible_time_runs_once(workers: TaskWorkers, send: Sent) -> None:
    workers.start("one")
    workers.start("two")
    send(("long", 15.0))
    workers.wait(lambda: "long" in workers.noted())
    assert workers.noted() == ["begun long", "long"]


def test_a_worker_that_is_asked_to_stop_loses_and_repeats_nothing(workers: TaskWorkers, send: Sent) -> None:
    first = workers.start("first")
    send(*((str(number), 0.1) for number in range(100)))
    workers.wait(lambda: len(workers.done()) > 5)
    assert workers.stop(first) == 0
    workers.start("second")
    workers.wait(lambda: len(set(workers.done())) == 100)
    assert Counter(workers.done()) == Counter(map(str, range(100)))


def test_tasks_run_after_the_broker_was_killed_and_came_back(
    workers: TaskWorkers, send: Sent, rocketmq: RunningCluster
) -> None:
    worker = workers.start()
    send(*((str(number), 0.05) for number in range(30)))
    workers.wait(lambda: bool(workers.noted()))
    rocketmq.kill_broker()
    rocketmq.start_broker()
    workers.wait(lambda: set(workers.done()) == set(map(str, range(30))))
    worker.terminate()
    assert worker.wait(TIMEOUT_S) == 0
