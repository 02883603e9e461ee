"""Tests that failed beside the others are tried once more, alone; `make test` says which."""

from __future__ import annotations

from pathlib import Path

import pytest
from tools import second_try

_FAILS_THE_FIRST_TIME = """
from pathlib import Path
def test_that_had_a_bad_moment():
    before = Path(__file__).with_name("before")
    had_one = before.exists()
    before.touch()
    assert had_one
def test_that_passes():
    with Path(__file__).with_name("runs").open("a") as runs:
        runs.write("x")
"""


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")


def _run(text: str) -> int:
    Path("test_sample.py").write_text(text)
    return second_try.main(["-q", "test_sample.py"])


def test_a_test_that_fails_once_is_tried_again_alone_and_named(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert _run(_FAILS_THE_FIRST_TIME) == 0
    told = capfd.readouterr().out
    assert "FAILED ONCE, and passed alone:" in told
    assert told.rstrip().endswith("test_sample.py::test_that_had_a_bad_moment")
    assert (tmp_path / "runs").read_text() == "x", "what passed is not run again"


def test_a_test_that_fails_twice_fails_the_run(capfd: pytest.CaptureFixture[str]) -> None:
    assert _run("def test_that_never_passes():\n    assert False\n") == second_try.SOME_FAILED
    assert "FAILED ONCE" not in capfd.readouterr().out


def test_many_failures_are_no_bad_moment(capfd: pytest.CaptureFixture[str]) -> None:
    many = "\n".join(f"def test_{number}():\n    assert False\n" for number in range(second_try.MOST + 1))
    assert _run(many) == second_try.SOME_FAILED
    assert "tried once more" not in capfd.readouterr().out


def test_a_file_that_cannot_be_read_is_not_tried_again(capfd: pytest.CaptureFixture[str]) -> None:
    assert _run("import nothing_of_this_name\n") not in (0, second_try.SOME_FAILED)
    assert "tried once more" not in capfd.readouterr().out
