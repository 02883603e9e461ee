"""What workers get as a whole."""

import ast
import os
import subprocess
import sys
from pathlib import Path

from tests.support.places import ROOT
from tests.support.sharing import put_long_ones_first, unit_of


def test_files_that_use_the_spark_session_stay_together_and_all_others_with_themselves() -> None:
    assert unit_of("tests/spark/test_spark_stream.py") == unit_of("tests/spark/test_spark_sql.py")
    alone = ["tests/spark/test_spark_options.py", "tests/unit/test_metrics.py"]
    assert [unit_of(file) for file in alone] == alone


def test_the_session_is_known_wherever_a_test_uses_it() -> None:
    for path in (ROOT / "tests" / "spark").glob("test_*.py"):
        arguments = [node.arg for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.arg)]
        uses = "spark" in arguments
        file = path.relative_to(ROOT).as_posix()
        assert (unit_of(file) != file) == uses, file


def test_what_takes_long_comes_first() -> None:
    class Item:
        def __init__(self, file: str) -> None:
            self.path = ROOT / file

    files = [
        "tests/unit/test_metrics.py",
        "tests/chaos/test_broker_kills.py",
        "tests/spark/test_spark_demo.py",
        "tests/spark/test_spark_stream.py",
    ]
    items = [Item(file) for file in files]
    put_long_ones_first(items)  # type: ignore[arg-type]
    assert [item.path for item in items] == [ROOT / file for file in reversed(files)]


CONFTEST = """
from tests.support.sharing import WholeFiles, send_only_news, show_where_tests_hang
from tests.support.time_limits import TimeLimits

def pytest_configure(config):
    config.pluginmanager.register(TimeLimits())
    if hasattr(config, "workerinput"):
        show_where_tests_hang()
        send_only_news(config)

def pytest_xdist_make_scheduler(config, log):
    return WholeFiles(config, log)
"""
TESTS = """
import pytest, threading

def test_before(): pass

def test_that_fails(): assert False, "of no use"

@pytest.fixture
def broken(): raise ValueError("it does not start")

def test_that_cannot_start(broken): pass

@pytest.fixture
def unending():
    yield
    raise ValueError("it does not end")

def test_that_cannot_end(unending): pass

@pytest.mark.skip(reason="nobody knows how")
def test_that_is_skipped(): pass

@pytest.mark.timeout(1)
def test_that_hangs(): threading.Event().wait()

def test_after(): pass
"""


def test_what_goes_wrong_is_shown_and_a_test_that_hangs_fails_once_and_all_others_run(
    tmp_path: Path,
) -> None:
    (tmp_path / "pytest.ini").touch()
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "test_it.py").write_text(TESTS)
    done = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-ra", "-p", "xdist.plugin", "-p", "pytest_timeout"),
            *("-p", "no:cacheprovider", "-n", "1", "--dist", "loadfile", "--timeout-method=thread"),
        ],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert "2 failed, 3 passed, 1 skipped, 2 errors" in done.stdout
    for line in (
        "FAILED test_it.py::test_that_fails - AssertionError: of no use",
        "FAILED test_it.py::test_that_hangs - worker 'gw0' crashed",
        "ERROR test_it.py::test_that_cannot_start - ValueError: it does not start",
        "ERROR test_it.py::test_that_cannot_end - ValueError: it does not end",
        "nobody knows how",
    ):
        assert line in done.stdout
    assert "in test_that_hangs" in done.stderr
