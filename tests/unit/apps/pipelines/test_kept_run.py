from pathlib import Path

import pytest

from pyromq.admin import pipeline_runs
from pyromq.apps.pipelines.kept_run import kept_run
from pyromq.spark.pipelines.tallies import Tally, TopicTally

OPTIONS = {"namesrv": "h:9876", "commitoffsets": "true", "consumerGroup": "lake"}


def test_a_run_tells_its_tally_and_how_it_ended(tmp_path: Path) -> None:
    with kept_run(tmp_path, "archive", "s3a://k:s@b/lake", OPTIONS, str) as run:
        assert run is not None
        run.show({"archive": Tally(rows_in=5, rows_out=4, batches=1, topics={"t": TopicTally(5, 2)})})
    (kept,) = pipeline_runs.runs(tmp_path)
    assert (kept.job, kept.place, kept.ending, kept.problem) == ("archive", "s3a://b/lake", "ended", "")
    assert (kept.namesrv, kept.group) == ("h:9876", "lake")
    assert (kept.queries["archive"].rows_in, kept.queries["archive"].lag) == (5, 2)


def test_a_run_that_fails_says_why(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no"), kept_run(tmp_path, "sql", "", OPTIONS, str.upper):
        raise ValueError("no such view")
    (kept,) = pipeline_runs.runs(tmp_path)
    assert (kept.ending, kept.problem) == ("failed", "NO SUCH VIEW")


def test_a_run_that_is_interrupted_has_ended(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt), kept_run(tmp_path, "sql", "", OPTIONS, str):
        raise KeyboardInterrupt
    assert [run.ending for run in pipeline_runs.runs(tmp_path)] == ["ended"]


def test_a_directory_that_cannot_be_written_is_told_once_and_ends_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("")
    with kept_run(tmp_path / "file" / "runs", "sql", "", OPTIONS, str) as run:
        assert run is not None
    assert capsys.readouterr().err.count("the console will not see this run") == 1


def test_without_a_directory_nothing_is_kept() -> None:
    with kept_run(None, "sql", "", OPTIONS, str) as run:
        assert run is None
