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
from tests.support.sharing import WholeFiles, show_where_tests_hang

def pytest_configure(config):
    if hasattr(config, "workerinput"):
        show_where_tests_hang()

def pytest_xdist_make_scheduler(config, log):
    return WholeFiles(config, log)
"""
HANGS = """
import pytest, threading

def test_before(): pass

@pytest.mark.timeout(1)
def test_that_hangs(): threading.Event().wait()

def test_after(): pass
"""


def test_a_test_that_hangs_is_shown_and_fails_once_and_all_others_run(tmp_path: Path) -> None:
    (tmp_path / "pytest.ini").touch()
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "test_it.py").write_text(HANGS)
    done = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-v", "-p", "xdist.plugin", "-p", "pytest_timeout"),
            *("-p", "no:cacheprovider", "-n", "1", "--dist", "loadfile", "--timeout-method=thread"),
        ],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert "1 failed, 2 passed" in done.stdout
    assert "FAILED test_it.py::test_that_hangs - worker 'gw0' crashed" in done.stdout
    assert "in test_that_hangs" in done.stderr
