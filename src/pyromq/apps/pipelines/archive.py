"""`pyromq pipeline archive`: topics into a lake."""

from typing import TYPE_CHECKING

import click

from pyromq.apps.pipelines.job import (
    CATALOG,
    EVERY,
    FOLLOW,
    PATTERN,
    RESTART,
    SETTINGS,
    TOPIC,
    PipelineJob,
    can_read,
    job_options,
    topics_options,
    trigger,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from pyromq.spark.pipelines.tallies import Show


@click.command(context_settings=SETTINGS)
@click.argument("lake", metavar="DIR")
@job_options
@TOPIC
@PATTERN
@click.option("--from", "start", default="earliest", help="Where the first run starts: earliest or latest.")
@FOLLOW
@EVERY
@RESTART
@click.option(
    "--format",
    "form",
    type=click.Choice(["parquet", "delta", "iceberg"]),
    help="Format of a new lake. An existing lake keeps its format.",
    show_default="parquet",
)
@CATALOG
@click.option(
    "--value-format",
    type=click.Choice(["binary", "string", "json", "avro", "protobuf", "log"]),
    help="How to decode bodies: the option valueFormat. Most formats need -O valueSchema=… with it.",
    show_default="binary",
)
@click.option(
    "--rows-per-batch",
    type=click.IntRange(min=1),
    default=1_000_000,
    help="The maximum number of messages per batch.",
)
def archive(
    lake: str,
    job: PipelineJob,
    topics: tuple[str, ...],
    pattern: str | None,
    start: str,
    follow: bool,
    every: str,
    restart: bool,
    form: str | None,
    catalog: str | None,
    value_format: str | None,
    rows_per_batch: int,
) -> None:
    """Copy topics to DIR, by topic and day, as Parquet, Delta or Iceberg; the next run continues.

    Each message is archived exactly once, also after a crash: DIR holds the checkpoint as well.
    """
    defaults = {"startingOffsets": start, "maxOffsetsPerTrigger": str(rows_per_batch)}
    if value_format is not None:
        defaults["valueFormat"] = value_format
    options = defaults | topics_options(topics, pattern) | job.options

    def work(spark: "SparkSession", show: "Show") -> None:
        from pyromq.spark.pipelines.archive import archive as run

        run(spark, options, lake, form=form, catalog=catalog, trigger=trigger(follow, every), show=show)

    job.run("archive", lake, work, check=can_read(options), restart=restart)
