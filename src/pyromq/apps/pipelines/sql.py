"""`pyromq pipeline sql` runs streaming SQL from topics to topics, Parquet or the terminal."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from pyromq.apps.pipelines.job import (
    EVERY,
    SETTINGS,
    PipelineJob,
    assignments,
    job_options,
    topics_options,
    trigger,
)

if TYPE_CHECKING:
    from pyromq.spark.pipelines.sql import Sink


@click.command(context_settings=SETTINGS)
@click.argument(
    "script", required=False, metavar="FILE", type=click.Path(exists=True, dir_okay=False, path_type=Path)
)
@job_options
@click.option("-e", "--execute", metavar="SQL", help="The SQL statements, instead of FILE.")
@click.option(
    "--topics",
    "pattern",
    metavar="REGEX",
    help="Create a stream for each topic whose name matches, with the columns of its messages.",
)
@click.option(
    "--sink",
    default="console",
    metavar="WHERE",
    help="The target of a SELECT without INSERT: console, topic=NAME or parquet=DIR.",
)
@click.option(
    "--sink-option",
    "pairs_of_sink",
    multiple=True,
    metavar="NAME=VALUE",
    help="An option of --sink, as in OPTIONS of a view; repeatable.",
)
@click.option(
    "--checkpoint",
    metavar="DIR",
    help="The directory that records progress; required for topics and Parquet.",
)
@click.option("--follow/--once", default=True, help="Run until Ctrl-C, or stop after the current messages.")
@EVERY
def sql(
    script: Path | None,
    job: PipelineJob,
    execute: str | None,
    pattern: str | None,
    sink: str,
    pairs_of_sink: tuple[str, ...],
    checkpoint: str | None,
    follow: bool,
    every: str,
) -> None:
    """Run the streaming queries of FILE.

    Views USING rocketmq are streams; INSERT INTO a view starts a query that writes to it.
    See docs/howto/pipelines.md.

    \b
      CREATE TEMPORARY VIEW orders USING rocketmq OPTIONS (subscribe 'Orders', startingOffsets 'earliest');
      SELECT tags, count(*) FROM orders GROUP BY tags;
    """
    if (script is None) == (execute is None):
        raise click.UsageError("give either FILE or -e SQL")
    text = (
        execute if execute is not None else script.read_text(encoding="utf-8") if script is not None else ""
    )
    with job.spark("sql") as spark:
        from pyromq.spark.pipelines.sql import run_sql

        chosen = _sink(sink, assignments("--sink-option", pairs_of_sink), job.options)
        # No progress line on a terminal that shows the tables.
        with job.reported("sql", checkpoint, is_live=chosen.format != "console") as show:
            run_sql(
                spark,
                text,
                job.options | topics_options((), pattern),
                sink=chosen,
                checkpoint=checkpoint,
                trigger=trigger(follow, every),
                show=show,
            )


def _sink(text: str, options: dict[str, str], connector: dict[str, str]) -> "Sink":
    from pyromq.spark.options import for_writers
    from pyromq.spark.pipelines.sql import Sink

    kind, _, value = text.partition("=")
    match kind, value:
        case "console", "":
            return Sink("console", "console", options)
        case "topic", topic if topic:
            return Sink(topic, "rocketmq", {**for_writers(connector), "topic": topic, **options})
        case "parquet", path if path:
            return Sink("parquet", "parquet", {"path": path, **options})
    raise click.UsageError(f"--sink {text}: expected console, topic=NAME or parquet=DIR")
