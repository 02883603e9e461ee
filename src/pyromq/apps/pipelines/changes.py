"""`pyromq pipeline changes`: Debezium's change events into a table."""

from typing import TYPE_CHECKING, Any

import click

from pyromq.apps.pipelines.job import (
    EVERY,
    RESTART,
    SETTINGS,
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
@click.option("--follow", is_flag=True, help="Wait for new events, until Ctrl-C.")
@EVERY
@RESTART
@click.option(
    "--format",
    "form",
    type=click.Choice(["delta", "iceberg"]),
    help="Format of a new table. An existing table keeps its format.",
    show_default="delta",
)
@click.option(
    "--key",
    "keys",
    multiple=True,
    metavar="COLUMN",
    help="A column that identifies a row; repeatable. Default: the columns in the keys of the messages.",
)
@click.option(
    "--schema", metavar="DDL", help="The columns, for events without schemas: 'id bigint, note string'."
)
@click.option(
    "--merge-topics",
    is_flag=True,
    help="Treat several topics as one table: events with the same key concern the same row.",
)
@click.option(
    "--placeholder",
    metavar="TEXT",
    help="Debezium's unavailable.value.placeholder: a column with this value stays as it is.",
    show_default="__debezium_unavailable_value",
)
@click.option(
    "--on-error",
    type=click.Choice(["stop", "skip", "dead-letter"]),
    default="stop",
    help="Whether a message that is not an event stops the job, is skipped, or goes to _dead_letters in DIR.",
)
@click.option(
    "--flattened",
    is_flag=True,
    help="The events are rows, as Debezium's ExtractNewRecordState leaves them.",
)
@click.option(
    "--as-text",
    "texts",
    multiple=True,
    metavar="COLUMN",
    help="Keep a column as text: for more than 38 digits, infinity, and years after 9999; repeatable.",
)
def changes(
    place: str,
    job: PipelineJob,
    topics: tuple[str, ...],
    follow: bool,
    every: str,
    restart: bool,
    form: str | None,
    keys: tuple[str, ...],
    schema: str | None,
    merge_topics: bool,
    placeholder: str | None,
    on_error: str,
    flattened: bool,
    texts: tuple[str, ...],
) -> None:
    """Apply Debezium's change events to the Delta or Iceberg table in DIR, by key; the next run continues.

    Each event is applied exactly once, also after a crash: DIR holds the checkpoint as well.
    """
    options = topics_options(topics, None) | job.options
    more: dict[str, Any] = {"schema": schema, "merge_topics": merge_topics}
    if placeholder is not None:
        more["placeholder"] = placeholder

    def check() -> object:
        from pyromq.spark.pipelines.changes import checked

        return checked(options, **more)

    def work(spark: "SparkSession", show: "Show") -> None:
        from pyromq.spark.pipelines.changes import apply_changes

        start = trigger(follow, every)
        read = more | {"flattened": flattened, "texts": texts, "on_error": on_error}
        apply_changes(spark, options, place, form=form, keys=keys, trigger=start, show=show, **read)

    job.run("changes", place, work, check=check, restart=restart)
