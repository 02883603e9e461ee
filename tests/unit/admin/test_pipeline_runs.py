from pathlib import Path

from msgspec import structs

from pyromq.admin.pipeline_runs import (
    SILENT_AFTER_MS,
    PipelineRun,
    QueryRun,
    TopicRun,
    forget_old,
    keep,
    runs,
    without_secrets,
)

RUN = PipelineRun("archive-1-7", "archive", "h:9876;i:9876", "host", 7, started_ms=1000, at_ms=2000)
WEEK_MS = 7 * 24 * 3_600_000


def test_runs_are_kept_and_read_newest_first(tmp_path: Path) -> None:
    queries = {"q": QueryRun(5, 4, topics={"t": TopicRun(5, 2)})}
    newer = structs.replace(RUN, id="sql-3-8", started_ms=3000, queries=queries)
    keep(tmp_path / "runs", RUN)
    keep(tmp_path / "runs", newer)
    keep(tmp_path / "runs", structs.replace(RUN, at_ms=2500))
    (tmp_path / "runs" / "broken.json").write_text("{")
    assert runs(tmp_path / "runs") == [newer, structs.replace(RUN, at_ms=2500)]
    assert runs(tmp_path / "nothing") == []


def test_a_run_that_tells_nothing_any_more_is_silent_unless_it_ended() -> None:
    assert RUN.state(2000 + SILENT_AFTER_MS) == "running"
    assert RUN.state(2001 + SILENT_AFTER_MS) == "silent"
    assert structs.replace(RUN, ending="failed").state(10**12) == "failed"


def test_a_run_belongs_to_the_cluster_of_its_name_servers() -> None:
    assert RUN.is_at(["i:9876"])
    assert not RUN.is_at(["j:9876"])


def test_a_query_without_topics_has_no_lag() -> None:
    assert QueryRun().lag is None
    assert QueryRun(topics={"t": TopicRun(1, 2), "u": TopicRun(1, 3)}).lag == 5


def test_old_runs_are_deleted(tmp_path: Path) -> None:
    keep(tmp_path, RUN)
    forget_old(tmp_path, RUN.at_ms + WEEK_MS)
    assert runs(tmp_path) == [RUN]
    forget_old(tmp_path, RUN.at_ms + WEEK_MS + 1)
    assert runs(tmp_path) == []


def test_a_place_has_no_password() -> None:
    assert without_secrets("s3a://key:secret@bucket/lake") == "s3a://bucket/lake"
    assert without_secrets("/home/me@work/lake") == "/home/me@work/lake"
