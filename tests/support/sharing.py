"""How tests are shared out between workers: a file stays together, and what takes long comes first.

Tests of one file may share a cluster. The files that use the `spark` fixture share a session, which takes
longer to start than most tests to run. If the long ones come first, the short ones fill the gaps at the end.
"""

import re
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
import pytest_timeout
from tests.support.places import ROOT
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling
from xdist.workermanage import WorkerController

_SPARK_SESSION = "the files that share a Spark session"
_USE_OF_SESSION = re.compile(r"\bspark: \"?SparkSession\b")
_LONG_FIRST = ("spark", "chaos", "property", "integration", "cli", "harness", "unit", "architecture")


class WholeFiles(LoadScopeScheduling):  # type: ignore[misc]
    def __init__(self, config: pytest.Config, log: Producer) -> None:
        super().__init__(config, log)
        config.option.loadscopereorder = False

    def _split_scope(self, nodeid: str) -> str:
        return unit_of(nodeid.partition("::")[0])

    def _reschedule(self, node: WorkerController) -> None:
        # One that replaces another has first to say what it found.
        if node in self.registered_collections:
            super()._reschedule(node)

    def remove_node(self, node: WorkerController) -> str | None:
        """A test that took its worker with it, as one that hangs does, is not tried again; all others are."""
        units: dict[str, dict[str, bool]] = self.assigned_work.pop(node)
        waiting = [(unit, test) for unit in units.values() for test, is_done in unit.items() if not is_done]
        if not waiting:
            return None
        unit, fatal = waiting[0]
        unit[fatal] = True
        self.workqueue.update({name: unit for name, unit in units.items() if not all(unit.values())})
        for other in self.assigned_work:
            self._reschedule(other)
        return fatal


@cache
def unit_of(file: str) -> str:
    """What goes to one worker as a whole; `file` as in the id of a test."""
    path = ROOT / file
    if path.parent.name == "spark" and _USE_OF_SESSION.search(path.read_text("utf-8")):
        return _SPARK_SESSION
    return file


def show_where_tests_hang() -> None:
    """Nobody sees what a worker writes to its terminal. Let it use stderr for its last words."""
    end_process = pytest_timeout.timeout_timer

    def show_and_end(item: pytest.Item, settings: object) -> None:
        item.config.get_terminal_writer()._file = sys.__stderr__
        end_process(item, settings)

    vars(pytest_timeout)["timeout_timer"] = show_and_end


def send_only_news(config: pytest.Config) -> None:
    """Let a worker tell how its tests ended, and not that each starts and that its fixtures did their work.

    xdist sends six messages for each test, all of them packed and unpacked in Python; two are enough.
    """
    shown = config.option
    if shown.verbose <= 0 and shown.durations is None and not shown.xmlpath:
        _tell_only(config, "pytest_runtest_logreport", _says_something)
        for hook in ("pytest_runtest_logstart", "pytest_runtest_logfinish"):
            _tell_only(config, hook, lambda *_: False)


def _says_something(report: pytest.TestReport) -> bool:
    return report.when == "call" or not report.passed


def _tell_only(config: pytest.Config, hook: str, is_news: Callable[..., bool]) -> None:
    (listener,) = (
        each
        for each in getattr(config.hook, hook).get_hookimpls()
        if type(each.plugin).__name__ == "WorkerInteractor"
    )
    tell = listener.function
    listener.function = lambda *what: tell(*what) if is_news(*what) else None


def put_long_ones_first(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: _place(item.path))


@cache
def _place(path: Path) -> tuple[bool, int]:
    file = path.relative_to(ROOT)
    folder = file.parts[1]
    is_alone = unit_of(file.as_posix()) != _SPARK_SESSION
    return is_alone, _LONG_FIRST.index(folder) if folder in _LONG_FIRST else len(_LONG_FIRST)
