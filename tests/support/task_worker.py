"""Workers of task frameworks as processes, and the file in which their tasks note what they do."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

TIMEOUT_S = 90.0

NOTES = """
import time


def write(path, text):
    with open(path, "a") as file:
        file.write(f"{text}\\n")


def run(path, text, pause_s):
    write(path, f"begun {text}")
    time.sleep(pause_s)
    write(path, text)
"""


class TaskWorkers:
    """An application in a file, and the command that starts a worker for it."""

    def __init__(self, place: Path, name: str, application: str, command: list[str]) -> None:
        self._place = place
        self._command = command
        self._started: list[subprocess.Popen[bytes]] = []
        self.notes = place / "notes"
        (place / "note_writing.py").write_text(NOTES)
        (place / f"{name}.py").write_text(application)

    def start(self, name: str = "worker", *arguments: str) -> "subprocess.Popen[bytes]":
        with (self._place / f"{name}.log").open("wb") as log:
            worker = subprocess.Popen(
                [sys.executable, *self._command, *arguments],
                cwd=self._place,
                stdout=log,
                stderr=log,
                env=os.environ | {"PYTHONPATH": f"{self._place}{os.pathsep}{os.getenv('PYTHONPATH', '')}"},
                start_new_session=True,
            )
        self._started.append(worker)
        return worker

    def logs(self) -> str:
        return "\n".join(f"{each.name}:\n{each.read_text()}" for each in self._place.glob("*.log"))

    def wait(self, wanted: Callable[[], bool]) -> None:
        until = time.monotonic() + TIMEOUT_S
        while not wanted():
            assert time.monotonic() < until, f"{self.noted()}\n{self.logs()}"
            time.sleep(0.05)

    def noted(self) -> list[str]:
        return self.notes.read_text().split("\n")[:-1] if self.notes.exists() else []

    def done(self) -> list[str]:
        """Without what was only begun."""
        return [each for each in self.noted() if not each.startswith("begun ")]

    def kill(self, worker: "subprocess.Popen[bytes]") -> None:
        """The worker and its children, as a machine that loses power."""
        os.killpg(worker.pid, signal.SIGKILL)
        worker.wait()

    def stop(self, worker: "subprocess.Popen[bytes]") -> int:
        worker.send_signal(signal.SIGTERM)
        return worker.wait(TIMEOUT_S)

    def stop_all(self) -> None:
        for worker in self._started:
            if worker.poll() is None:
                self.kill(worker)
