"""Spark's daemon tells of real failures, and not of workers whose rows were not needed any more."""

from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

import pytest

from pyromq.spark.settling import quieten


@pytest.fixture
def daemon() -> Any:
    module = ModuleType("__main__")
    module.__spec__ = ModuleSpec("pyspark.daemon", None)
    quieten(module)
    return module


@pytest.mark.parametrize(
    ("problem", "is_told"),
    [(BrokenPipeError(), False), (ConnectionResetError(), False), (ValueError(), True)],
)
def test_only_real_failures_are_printed(
    daemon: Any, problem: Exception, is_told: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        raise problem
    except Exception:
        daemon.traceback.print_exc()
    assert ("Traceback" in capsys.readouterr().err) == is_told


def test_other_programs_are_left_alone() -> None:
    module = ModuleType("__main__")
    quieten(module)
    assert not hasattr(module, "traceback")
