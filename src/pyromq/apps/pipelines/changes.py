"""`pyromq pipeline changes`: Debezium's change events into a table."""

import click

from pyromq.apps.pipelines.job import (
    EVERY,
    SETTINGS,
    TOPIC,
    PipelineJob,
    job_options,
    topics_options,
    trigger,
)


@click.command(context_settings=SETTINGS)
@click.argument("place", metavar="DIR")
@job_options
@TOPIC
@click.option("--follow", is_flag=True, help="Wait for new events, until Ctrl-C.")
@EVERY
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
def changes(
    place: str,
    job: PipelineJob,
    topics: tuple[str, ...],
    follow: bool,
    every: str,
    form: str | None,
    keys: tuple[str, ...],
    schema: str | None,
    merge_topics: bool,
    placeholder: str | None,
) -> None:
    """Apply Debezium's change events to the Delta or Iceberg table in DIR, by key; the next run continues.

    Each event is applied exactly once, also after a crash: DIR holds the checkpoint as well.
    """
    with job.spark("changes") as spark:
        from pyromq.spark.pipelines.changes import apply_changes
        from pyromq.spark.pipelines.kept_values import UNAVAILABLE

        with job.reported("changes", place) as show:
            apply_changes(
                spark,
                topics_options(topics, None) | job.options,
                place,
                form=form,
                keys=keys,
                schema=schema,
                merge_topics=merge_topics,
                placeholder=UNAVAILABLE if placeholder is None else placeholder,
                trigger=trigger(follow, every),
                show=show,
            )
