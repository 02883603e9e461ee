"""A Celery application in a file, and its workers as processes: real ones, with the defaults of Celery."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

TIMEOUT_S = 90.0

_APPLICATION = """
import os, time
from celery import Celery
from celery.exceptions import SoftTimeLimitExceeded

app = Celery("tasks_of_tests", broker={broker!r}, backend={backend!r})
app.conf.update(
    task_acks_late=True,
    task_reject_on_worker_lost=True,
    broker_transport_options={options!r},
    result_extended=True,
    beat_schedule={{"often": {{"task": f"{{__name__}}.tick", "schedule": 1.0, "args": ({notes!r},)}}}},
)


@app.task
def note(path, text, pause_s=0.0):
    time.sleep(pause_s)
    with open(path, "a") as file:
        file.write(f"{{text}}\\n")
    return text


@app.task
def begin(path, text, pause_s):
    with open(path, "a") as file:
        file.write(f"begun {{text}}\\n")
    time.sleep(pause_s)
    with open(path, "a") as file:
        file.write(f"{{text}}\\n")


@app.task(acks_late=False)
def begin_early(path, text, pause_s):
    begin(path, text, pause_s)


@app.task
def begin_and_tidy(path, text, pause_s):
    try:
        begin(path, text, pause_s)
    except SoftTimeLimitExceeded:
        note(path, f"tidied {{text}}")


@app.task(bind=True)
def tick(self, path):
    note(path, self.request.id)


@app.task
def add(x, y):
    return x + y


@app.task
def total(numbers):
    return sum(numbers)


@app.task
def pid():
    return os.getpid()


@app.task
def pass_on(path, text):
    note.delay(path, text)


@app.task(bind=True, max_retries=3)
def third_time(self):
    if self.request.retries < 2:
        raise self.retry(countdown=0.5)
    return self.request.retries


@app.task
def fails():
    raise ValueError("on purpose")
"""


class Workers:
    """The application, for the test as for its workers."""

    def __init__(self, place: Path, broker: str, backend: str, **options: Any) -> None:
        self._place = place
        self._started: list[subprocess.Popen[bytes]] = []
        name = f"tasks_{place.name.replace('-', '_')}_{id(self)}"
        path = place / f"{name}.py"
        self.notes = place / "notes"
        path.write_text(
            _APPLICATION.format(broker=broker, backend=backend, options=options, notes=str(self.notes))
        )
        self._name = name
        sys.path.insert(0, str(place))
        try:
            self.tasks = __import__(name)
        finally:
            sys.path.remove(str(place))
        self.app = self.tasks.app

    def start(self, *arguments: str, name: str = "w") -> subprocess.Popen[bytes]:
        """Returns when the worker answers."""
        command = [sys.executable, "-m", "celery", "-A", self._name, "worker", "-n", f"{name}@tests"]
        with (self._place / f"{name}.log").open("wb") as log:
            worker = subprocess.Popen(
                [*command, "-c", "2", "-l", "INFO", *arguments],
                cwd=self._place,
                stdout=log,
                stderr=log,
                env=os.environ | {"PYTHONPATH": f"{self._place}{os.pathsep}{os.getenv('PYTHONPATH', '')}"},
                start_new_session=True,
            )
        self._started.append(worker)
        self.wait(lambda: self._answers(worker, f"{name}@tests"), name=name)
        return worker

    def _answers(self, worker: "subprocess.Popen[bytes]", name: str) -> bool:
        assert worker.poll() is None, self.log(name.partition("@")[0])
        return bool(self.app.control.ping(destination=[name], timeout=1.0))

    def log(self, name: str = "w") -> str:
        return (self._place / f"{name}.log").read_text()

    def wait(self, wanted: Callable[[], bool], timeout_s: float = TIMEOUT_S, *, name: str = "w") -> None:
        until = time.monotonic() + timeout_s
        while not wanted():
            assert time.monotonic() < until, f"{self.noted()}\n{self.log(name)}"
            time.sleep(0.05)

    def noted(self) -> list[str]:
        return self.notes.read_text().split("\n")[:-1] if self.notes.exists() else []

    def kill(self, worker: "subprocess.Popen[bytes]") -> None:
        """The worker and its children, as a machine that loses power."""
        os.killpg(worker.pid, signal.SIGKILL)
        worker.wait()

    def stop_all(self) -> None:
        for worker in self._started:
            if worker.poll() is None:
                self.kill(worker)
        self.app.pool.force_close_all()
        self.app.close()
