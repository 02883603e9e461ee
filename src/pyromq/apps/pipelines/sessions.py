"""`pyromq pipeline sessions`: lite topics into a table with a row for each."""

from typing import TYPE_CHECKING

import click

from pyromq.apps.pipelines.job import (
    CATALOG,
    EVERY,
    FOLLOW,
    PATTERN,
    RESTART,
    SETTINGS,
    TABLE_FORMAT,
    TOPIC,
    PipelineJob,
    job_options,
    topics_options,
    trigger,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from pyromq.spark.pipelines.tallies import Show


@click.command(context_settings=SETTINGS)
@click.argument("place", metavar="DIR")
@job_options
@TOPIC
@PATTERN
@FOLLOW
@EVERY
@RESTART
@TABLE_FORMAT
@CATALOG
@click.option(
    "--content",
    type=click.Choice(["text", "bodies", "none"]),
    help="The messages in a new table: their joined text, a list of their bodies, or neither.",
    show_default="text",
)
def sessions(
    place: str,
    job: PipelineJob,
    topics: tuple[str, ...],
    pattern: str | None,
    follow: bool,
    every: str,
    restart: bool,
    form: str | None,
    catalog: str | None,
    content: str | None,
) -> None:
    """Keep a row for each lite topic of a topic in the Delta or Iceberg table in DIR; the next run continues.

    Each message counts exactly once, also after a crash: DIR holds the checkpoint as well.
    """
    options = topics_options(topics, pattern) | job.options

    def check() -> object:
        from pyromq.spark.pipelines.sessions import checked

        return checked(options, content=content)

    def work(spark: "SparkSession", show: "Show") -> None:
        from pyromq.spark.pipelines.sessions import SessionTable, keep_sessions

        table = SessionTable(form=form, catalog=catalog, content=content)
        keep_sessions(spark, options, place, table=table, trigger=trigger(follow, every), show=show)

    job.run("sessions", place, work, check=check, restart=restart)
