"""Streaming SQL: a script of statements becomes streaming queries, each with its own checkpoint."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as fn

from pyromq.errors import ConfigError
from pyromq.spark.encode import COLUMNS
from pyromq.spark.options import for_readers, for_writers, write_options
from pyromq.spark.pipelines.sql_script import Insert, PlainStatement, Select, Statement, View, parse
from pyromq.spark.pipelines.tables import show_frame
from pyromq.spark.pipelines.tallies import OUT, Show, Tally, unseen, watch_all
from pyromq.spark.topic_views import register_topics

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

ROCKETMQ = "rocketmq"
CONSOLE = "console"

_PATTERN = "subscribepattern"
_OWN_OPTIONS = ("outputmode", "partitionby")


@dataclass(frozen=True, slots=True)
class Sink:
    """Where a query writes. Of the options `outputMode` and `partitionBy` are for the query itself."""

    name: str
    format: str = CONSOLE
    options: Mapping[str, str] = field(default_factory=dict)

    def own(self, name: str, default: str) -> str:
        return next((value for key, value in self.options.items() if key.lower() == name), default)

    @property
    def sinks_options(self) -> dict[str, str]:
        return {name: value for name, value in self.options.items() if name.lower() not in _OWN_OPTIONS}


@dataclass(frozen=True, slots=True)
class QueryPlan:
    """A query that has been understood and not been started."""

    sink: Sink
    frame: "DataFrame"


def run_sql(
    spark: "SparkSession",
    script: str,
    options: Mapping[str, str],
    *,
    sink: Sink | None = None,
    checkpoint: str | None = None,
    trigger: Mapping[str, Any] | None = None,
    show: Show = unseen,
) -> dict[str, Tally]:
    """Run a script to its end.

    `options` of the connector hold for all topics in it, `sink` is where queries without INSERT go. With the
    option `subscribePattern`, each topic that matches is a stream with its own name; the checkpoint keeps its
    schema.
    """
    # Its own session: the views of a script are private.
    session = spark.newSession()
    given = {name: value for name, value in options.items() if name.lower() != _PATTERN}
    if (pattern := next((options[name] for name in options if name.lower() == _PATTERN), None)) is not None:
        schemas = None if checkpoint is None else f"{checkpoint.rstrip('/')}/_schemas"
        register_topics(session, for_readers(given), pattern, streaming=True, schemas=schemas)
    plans = planned(session, script, given, sink or Sink(CONSOLE))
    with _checkpoints(checkpoint, plans) as directory:
        queries: dict[str, StreamingQuery] = {}
        try:
            for plan in plans:
                queries[plan.sink.name] = _started(plan, f"{directory}/{plan.sink.name}", trigger or {})
        except BaseException:
            for query in queries.values():
                query.stop()
            raise
        return watch_all(queries, show)


def planned(spark: "SparkSession", script: str, options: Mapping[str, str], default: Sink) -> list[QueryPlan]:
    """Create the views of the script, and plan its queries."""
    statements = parse(script)
    sinks = _sinks(statements, options)
    plans: list[QueryPlan] = []
    for statement in statements:
        match statement:
            case View() if statement.name in sinks:
                continue
            case View(format="rocketmq"):
                _stream(spark, statement, options)
            case View() | PlainStatement():
                spark.sql(statement.statement)
            case Insert():
                if statement.sink not in sinks:
                    expected = "a name made by CREATE TEMPORARY VIEW … USING … in this script"
                    raise ConfigError("INSERT INTO", statement.sink, expected)
                plans.append(QueryPlan(sinks[statement.sink], _checked(spark, statement.query)))
            case Select():
                plans.append(QueryPlan(default, _checked(spark, statement.query)))
    _check_plans(plans)
    return plans


def _sinks(statements: list[Statement], options: Mapping[str, str]) -> dict[str, Sink]:
    written = {statement.sink for statement in statements if isinstance(statement, Insert)}
    return {
        view.name: Sink(view.name, view.format, _connected(view, for_writers(options)))
        for view in statements
        if isinstance(view, View) and view.name in written
    }


def _connected(view: View, options: Mapping[str, str]) -> dict[str, str]:
    return {**options, **view.options} if view.format == ROCKETMQ else dict(view.options)


def _stream(spark: "SparkSession", view: View, options: Mapping[str, str]) -> None:
    reader = spark.readStream.format(ROCKETMQ).options(**_connected(view, for_readers(options)))
    if view.columns is not None:
        reader = reader.schema(view.columns)
    reader.load().createOrReplaceTempView(view.name)


def _checked(spark: "SparkSession", query: str) -> "DataFrame":
    frame = spark.sql(query)
    if not frame.isStreaming:
        raise ConfigError(
            "query", query, "at least one view USING rocketmq: no part of the query is a stream"
        )
    return frame


def _check_plans(plans: list[QueryPlan]) -> None:
    if not plans:
        raise ConfigError("script", "", "a query: INSERT INTO … SELECT, or SELECT")
    names = [plan.sink.name for plan in plans]
    if twice := [name for name in names if names.count(name) > 1]:
        raise ConfigError("sink", twice[0], "one query for each sink; UNION ALL makes one of two")


@contextmanager
def _checkpoints(given: str | None, plans: list[QueryPlan]) -> Iterator[str]:
    if given is not None:
        yield given.rstrip("/")
        return
    if lasting := [plan.sink.name for plan in plans if plan.sink.format != CONSOLE]:
        raise ConfigError("checkpoint", None, f"a directory for the progress of {lasting[0]}")
    with TemporaryDirectory(prefix="pyromq-sql-", ignore_cleanup_errors=True) as directory:
        yield directory


def _started(plan: QueryPlan, checkpoint: str, trigger: Mapping[str, Any]) -> "StreamingQuery":
    sink = plan.sink
    frame = as_messages(plan.frame) if sink.format == ROCKETMQ else plan.frame
    writer = frame.observe(OUT, fn.count(fn.lit(1)).alias("rows")).writeStream
    mode = sink.own("outputmode", "update" if sink.format == CONSOLE else "append").lower()
    writer = writer.outputMode(mode)
    writer = writer.option("checkpointLocation", checkpoint)
    if columns := sink.own("partitionby", ""):
        writer = writer.partitionBy(*[column.strip() for column in columns.split(",")])
    if sink.format == CONSOLE:
        writer = writer.foreachBatch(partial(_print_batch, title=sink.name))
    elif (sink.format, mode) == (ROCKETMQ, "update"):
        send = partial(_send_batch, options=sink.sinks_options, checkpoint=checkpoint)
        writer = writer.foreachBatch(send)
    else:
        writer = writer.format(sink.format).options(**sink.sinks_options)
    return writer.trigger(**trigger).start() if trigger else writer.start()


def _print_batch(frame: "DataFrame", batch: int, title: str, limit: int = 20) -> None:
    if not frame.isEmpty():
        show_frame(frame, f"{title}, batch {batch}", limit)


def _send_batch(frame: "DataFrame", batch: int, options: Mapping[str, str], checkpoint: str) -> None:
    """For the mode update, which Spark does not offer to sinks in Python; with ids like any stream's."""
    query = frame.sparkSession.sparkContext.getLocalProperty("sql.streaming.queryId")
    given = {"idPrefix": f"{query}:{batch}"} | dict(options)
    if write_options(given).mode == "transactional":
        given = {"journal": checkpoint} | given | {"batchId": str(batch)}
    frame.write.format(ROCKETMQ).options(**given).mode("append").save()


def as_messages(frame: "DataFrame") -> "DataFrame":
    """Rows without a value get one: their columns as JSON, except those that a message has anyway."""
    if "value" in frame.columns:
        return frame
    body = [name for name in frame.columns if name not in COLUMNS]
    rest = [name for name in frame.columns if name in COLUMNS]
    return frame.select(fn.to_json(fn.struct(*body)).alias("value"), *rest)
