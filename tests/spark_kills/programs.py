"""`pyromq pipeline` as a program that is killed at a chosen moment, in one of the ways in which programs die.

A session of processes belongs to it: Python, Spark's JVM, and the Python workers that the JVM has started.
"""

import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from typing import ClassVar, Final, Literal

from tests.spark_kills.changes import Changes
from tests.spark_kills.stores import StoreChanges
from tests.support.places import ROOT

from pyromq.clock import SystemClock

How = Literal["kill all", "kill java", "kill python", "terminate all", "terminate python", "interrupt"]

HOWS: Final[tuple[How, ...]] = (
    "kill all",
    "kill java",
    "kill python",
    "terminate all",
    "terminate python",
    "interrupt",
)
"""`terminate all` is what systemd does, `kill all` what it does next; Ctrl-C interrupts."""

_END_S: Final = 1_200.0
"""A hang shows as well after this time, and a busy machine needs it."""
_POLL_S: Final = 0.02
_PAUSE: Final = threading.Event()
_WORDS: Final = 3
"""So many lines a program may say about its death."""
_JAVAS_WORDS: Final = "WARNING: Using incubator modules: jdk.incubator.vector\n"
"""Before anybody can stop it."""
_QUICK: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Djava.io.tmpdir={}"


ANY: Final = "*"
BEGINS: Final = "*/offsets/[0-9]*"
"""The change with which Spark begins a batch."""
Watch = Callable[[], Changes | StoreChanges]


@dataclass(frozen=True, slots=True)
class Moment:
    """When the `count`th change in the job's directory has a path like `path`, and some seconds later.

    With `begins`, changes count once as many batches have begun, each with a path like `BEGINS`.
    """

    path: str = ANY
    count: int = 1
    then_s: float = 0.0
    begins: int = 0


@dataclass(frozen=True, slots=True)
class End:
    code: int
    was_killed: bool
    said: str
    """On its standard error."""
    changes: int = 0
    """How many changes of its files were seen."""


class Pipeline:
    """One command line, run again and again. All its files are in `directory`, unless `watch` sees others."""

    loaded_classes: ClassVar[Path | None] = None
    """Where the first run leaves the classes that it has loaded: later ones start in half the time."""

    def __init__(self, namesrv: str, directory: Path, *arguments: str, watch: "Watch | None" = None) -> None:
        scratch = directory.with_name(f"{directory.name}-scratch")
        for each in (directory, scratch):
            each.mkdir(parents=True, exist_ok=True)
        self._watch = watch if watch is not None else partial(Changes, directory)
        self._log = scratch / "stderr"
        self._command = [
            *(sys.executable, "-c", "from pyromq.apps.pyromq import main; main()", "pipeline"),
            *(arguments[0], "-n", namesrv, *arguments[1:]),
            *("--master", "local[1]", "--memory", "500m", "--conf", "spark.sql.shuffle.partitions=1"),
        ]
        self._java_options = _QUICK.format(scratch)
        places = dict.fromkeys(("SPARK_LOCAL_DIRS", "TMPDIR", "PYROMQ_PIPELINE_RUNS"), str(scratch))
        self._environment = os.environ | {"SPARK_LOCAL_IP": "127.0.0.1"} | places

    def run(self, moment: Moment | None = None, how: How = "kill all") -> End:
        """To its end, or to the moment if that comes first."""
        with self._log.open("wb") as log, self._watch() as changes:
            process = subprocess.Popen(
                [*self._command, "--conf", f"spark.driver.extraJavaOptions={self._options_now()}"],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=log,
                cwd=ROOT,
                env=self._environment,
                start_new_session=True,
            )
            try:
                was_killed = moment is not None and _wait_for(process, changes, moment)
                if was_killed:
                    _strike(process, how)
                code = process.wait(_END_S)
                _wait_until_alone(process.pid)
            except subprocess.TimeoutExpired:
                raise AssertionError("the pipeline did not end") from None
            finally:
                _kill_session(process.pid)
                process.wait()
        said = self._log.read_text(errors="replace").replace(_JAVAS_WORDS, "")
        return End(code, was_killed, said, changes.seen)

    def _options_now(self) -> str:
        classes = self.loaded_classes
        if classes is None:
            return self._java_options
        use = "SharedArchiveFile" if classes.exists() else "ArchiveClassesAtExit"
        return f"{self._java_options} -XX:{use}={classes}"


def check_death(end: End, how: How) -> None:
    """However it is killed, a program says little; it ends as a shell expects it."""
    if not end.was_killed:
        assert end.code == 0, f"{end.code}: {end.said}"
    elif how in ("terminate all", "terminate python"):
        assert end.code in (0, 128 + signal.SIGTERM, -signal.SIGTERM), (end.code, end.said)
    elif how == "interrupt":
        assert end.code in (0, 128 + signal.SIGINT, -signal.SIGINT, 1), (end.code, end.said)
    lines = end.said.splitlines()
    assert len(lines) <= _WORDS, f"{how}: {len(lines)} lines: {end.said[:3000]}"


def _wait_for(process: "subprocess.Popen[bytes]", changes: Changes | StoreChanges, moment: Moment) -> bool:
    begins, left = moment.begins, moment.count
    ends = SystemClock().monotonic() + _END_S
    while process.poll() is None:
        assert SystemClock().monotonic() < ends, "the pipeline did not end"
        for path in changes.next(0.1):
            if begins:
                begins -= fnmatchcase(path, BEGINS)
            else:
                left -= fnmatchcase(path, moment.path)
        if left <= 0:
            _PAUSE.wait(moment.then_s)
            return process.poll() is None
    return False


def _strike(process: "subprocess.Popen[bytes]", how: How) -> None:
    number = {"kill": signal.SIGKILL, "terminate": signal.SIGTERM, "interrupt": signal.SIGINT}[how.split()[0]]
    with contextlib.suppress(ProcessLookupError):
        if how in ("kill python", "terminate python"):
            os.kill(process.pid, number)
        elif how == "kill java":
            for pid in _session(process.pid):
                if _name(pid) == "java":
                    os.kill(pid, number)
        elif how == "interrupt":
            os.killpg(process.pid, number)
        else:
            os.killpg(process.pid, number)
            for pid in _session(process.pid):  # Spark's Python workers have groups of their own
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, number)


def _wait_until_alone(session: int) -> None:
    """None of its processes outlives it: a task that still writes would meet the next run."""
    ends = SystemClock().monotonic() + _END_S
    while left := _session(session):
        assert SystemClock().monotonic() < ends, f"processes outlive their program: {[*map(_name, left)]}"
        _PAUSE.wait(_POLL_S)


def _kill_session(session: int) -> None:
    for pid in _session(session):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def _session(session: int) -> list[int]:
    return [
        int(entry.name)
        for entry in os.scandir("/proc")
        if entry.name.isdecimal()
        and (stat := _stat(entry.name))
        and stat[3] == str(session)
        and stat[0] != "Z"
    ]


def _stat(pid: str) -> list[str]:
    """State, parent, group, session and more."""
    try:
        return Path("/proc", pid, "stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return []


def _name(pid: int) -> str:
    try:
        return Path("/proc", str(pid), "comm").read_text().strip()
    except (FileNotFoundError, ProcessLookupError):
        return ""
