"""Lite topics into tables with a row for each session, each message counted once whatever died."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from tests.spark.conftest import Topics
from tests.spark.test_spark_lakehouse import TABLES, as_others_read_it

from pyromq.apps.pyromq import COMMANDS
from pyromq.errors import ConfigError
from pyromq.protocol.names import lite_queue
from pyromq.spark.pipelines.compact import compact
from pyromq.spark.pipelines.sessions import SessionTable, checked, keep_sessions
from pyromq.testing import cluster

if TYPE_CHECKING:
    from tests.conftest import ErrorLogs


@pytest.fixture
def chats(tmp_path: Path) -> Iterator[Topics]:
    with cluster(tmp_path / "store", light_queues=True, multi_dispatch=True) as running:
        topics = Topics(running)
        topics.create("Chats", queues=2, attributes="+message.type=LITE")
        yield topics
        topics.close()


def say(topics: Topics, session: str, *texts: str | bytes, kind: str | None = None, queue: int = 0) -> None:
    named = f"__LITE_TOPIC\x01{session}\x02" + (f"__LITE_KIND\x01{kind}\x02" if kind else "")
    for text in texts:
        topics.send("Chats", queue, text if isinstance(text, bytes) else text.encode(), named)


def rows(form: str, place: Path, *columns: str) -> list[tuple[Any, ...]]:
    found = as_others_read_it(form, place).select(list(columns)).to_pylist()
    return sorted(tuple(row.values()) for row in found)


@pytest.mark.parametrize("form", TABLES)
def test_a_row_for_each_session_grows_with_its_messages_whatever_died(
    form: str,
    spark: SparkSession,
    chats: Topics,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    error_logs: "ErrorLogs",
) -> None:
    place = tmp_path / "sessions"
    say(chats, "anna", "Hel", "lo")
    say(chats, "ben", "zwölf ", b"\xff", queue=1)
    options = chats.options("Chats")
    table = SessionTable(form=form)
    entered: Callable[..., None] = TABLES[form].apply  # type: ignore[attr-defined]

    def die(*arguments: Any, **named: Any) -> None:
        entered(*arguments, **named)
        raise OSError("killed behind the commit")

    with monkeypatch.context() as patch:
        patch.setattr(TABLES[form], "apply", die)
        with pytest.raises(StreamingQueryException, match="killed behind the commit"):
            keep_sessions(spark, options, str(place), table=table)
    error_logs.expect("exception while executing the Python Proxy")
    monkeypatch.setattr(TABLES[form], "apply", None)  # the repeated batch is not applied again
    keep_sessions(spark, options, str(place), table=table)
    monkeypatch.undo()
    named = ("session", "messages", "next", "ended", "text")
    assert rows(form, place, *named) == [
        ("anna", 2, 2, False, "Hello"),
        ("ben", 2, 2, False, "zwölf \ufffd"),
    ]
    ((began, at),) = {row[1:] for row in rows(form, place, "session", "first", "last") if row[0] == "anna"}
    say(chats, "anna", ", world")
    say(chats, "anna", "claim", kind="claim")
    say(chats, "anna", "end", kind="end")
    say(chats, "carl", "Hi")
    keep_sessions(spark, options, str(place))
    assert rows(form, place, *named) == [
        ("anna", 5, 5, True, "Hello, world"),
        ("ben", 2, 2, False, "zwölf \ufffd"),
        ("carl", 1, 1, False, "Hi"),
    ]
    ((first, last),) = {row[1:] for row in rows(form, place, "session", "first", "last") if row[0] == "anna"}
    assert (first, last >= at) == (began, True)
    say(chats, "anna", "!")
    keep_sessions(spark, options, str(place))
    assert ("anna", 6, 6, False, "Hello, world!") in rows(form, place, *named)


@pytest.mark.parametrize("form", TABLES)
def test_a_session_that_was_deleted_begins_a_new_row_when_it_comes_back(
    form: str, spark: SparkSession, chats: Topics, tmp_path: Path
) -> None:
    place, options = tmp_path / "sessions", chats.options("Chats")
    named = ("session", "offset", "messages", "text")
    say(chats, "anna", "a", "b")
    keep_sessions(spark, options, str(place), table=SessionTable(form=form))
    chats.delete(lite_queue("Chats", "anna"))
    say(chats, "anna", "c")
    chats.delete(lite_queue("Chats", "anna"))
    say(chats, "anna", "d", "e", "f")
    keep_sessions(spark, options, str(place))
    expected = [("anna", 0, 2, "ab"), ("anna", 2, 1, "c"), ("anna", 3, 3, "def")]
    assert rows(form, place, *named) == expected
    assert compact(spark, str(place))[1] == 1
    say(chats, "anna", "g")
    keep_sessions(spark, options, str(place))
    assert rows(form, place, *named) == [*expected[:2], ("anna", 3, 4, "defg")]


@pytest.mark.parametrize("form", TABLES)
def test_small_batches_make_the_same_rows_as_a_large_one(
    form: str, spark: SparkSession, chats: Topics, tmp_path: Path
) -> None:
    for number in range(6):
        say(chats, f"s{number % 2}", f"{number}", queue=number % 2)
    options = chats.options("Chats", maxOffsetsPerTrigger="1")
    keep_sessions(spark, options, str(tmp_path / "sessions"), table=SessionTable(form=form))
    named = ("session", "messages", "text")
    assert rows(form, tmp_path / "sessions", *named) == [("s0", 3, "024"), ("s1", 3, "135")]


@pytest.mark.parametrize("form", TABLES)
def test_the_command_keeps_the_bodies_of_a_session_as_a_list(
    form: str, spark: SparkSession, chats: Topics, tmp_path: Path, error_logs: "ErrorLogs"
) -> None:
    place = tmp_path / "sessions"

    def run(*more: str) -> str:
        command = ["pipeline", "sessions", str(place), "-t", "Chats", "-n", chats.running.namesrv, *more]
        result = CliRunner().invoke(COMMANDS, command)
        assert result.exit_code == 0, result.output
        return result.output

    say(chats, "anna", b"\xff\x00")
    chats.create("Plain")
    run("--format", form, "--content", "bodies", "-t", "Plain")
    say(chats, "anna", "2", kind="tool")
    run()
    ((bodies, count),) = rows(form, place, "bodies", "messages")
    assert [(each["offset"], each["kind"], each["body"]) for each in bodies] == [
        (0, None, b"\xff\x00"),
        (1, "tool", b"2"),
    ]
    assert count == 2
    say(chats, "anna", "3")
    other = SessionTable(content="text", form=form)
    with pytest.raises(StreamingQueryException, match="bodies, which the table in"):
        keep_sessions(spark, chats.options("Chats"), str(place), table=other)
    error_logs.expect("exception while executing the Python Proxy")


def test_messages_without_a_lite_topic_make_no_row_and_wrong_options_end_the_job_before_java(
    spark: SparkSession, chats: Topics, tmp_path: Path
) -> None:
    chats.create("Plain")
    chats.send("Plain", 0, b"nothing to see")
    keep_sessions(spark, chats.options("Plain,Chats"), str(tmp_path / "sessions"))
    assert not (tmp_path / "sessions" / "_delta_log").exists()
    with pytest.raises(ConfigError, match="one of text, bodies, none"):
        checked(chats.options("Chats"), content="all")
    with pytest.raises(ConfigError, match="subscribe"):
        checked(chats.options())
