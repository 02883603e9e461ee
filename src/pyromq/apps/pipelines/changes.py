"""`pyromq pipeline changes`: Debezium's change events into a table, or into one for each topic."""

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

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

    from pyromq.spark.pipelines.changes import TableSettings
    from pyromq.spark.pipelines.tallies import Show

_OF_TOPIC = re.compile(r"([%|a-zA-Z0-9_-]+)=(.+)", re.DOTALL)
"""A value for the table of one topic."""


@click.command(context_settings=SETTINGS)
@click.argument("place", metavar="DIR")
@job_options
@TOPIC
@PATTERN
@click.option(
    "--table-per-topic",
    is_flag=True,
    help="Keep one table for each topic, in a directory of DIR with its name."
    " Options with a COLUMN or DDL then also accept TOPIC=COLUMN, for one table.",
)
@FOLLOW
@EVERY
@RESTART
@TABLE_FORMAT
@CATALOG
@click.option(
    "--key",
    "keys",
    multiple=True,
    metavar="COLUMN",
    help="A column that identifies a row; repeatable. Default: the columns in the keys of the messages.",
)
@click.option(
    "--schema",
    "schemas",
    multiple=True,
    metavar="DDL",
    help="The columns, for events without schemas: 'id bigint, note string'. At most one for each table.",
)
@click.option(
    "--partition-by",
    "partitions",
    multiple=True,
    metavar="COLUMN",
    help="A column by which a new table is partitioned; repeatable.",
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
    help="The events are rows, as Debezium's ExtractNewRecordState writes them.",
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
    pattern: str | None,
    table_per_topic: bool,
    follow: bool,
    every: str,
    restart: bool,
    form: str | None,
    catalog: str | None,
    keys: tuple[str, ...],
    schemas: tuple[str, ...],
    partitions: tuple[str, ...],
    merge_topics: bool,
    placeholder: str | None,
    on_error: str,
    flattened: bool,
    texts: tuple[str, ...],
) -> None:
    """Apply Debezium's change events to the Delta or Iceberg table in DIR, by key; the next run continues.

    Each event is applied exactly once, also after a crash: DIR holds the checkpoint as well.
    """
    options = topics_options(topics, pattern) | job.options
    given = {"keys": keys, "schema": schemas, "texts": texts, "partition_by": partitions}
    common, by_topic = _settings(given, per_topic=table_per_topic)
    if catalog is not None and table_per_topic:
        raise click.UsageError("--catalog is for one table: leave out --table-per-topic")
    more: dict[str, Any] = {"merge_topics": merge_topics}
    if placeholder is not None:
        more["placeholder"] = placeholder

    def tables() -> "dict[str, TableSettings] | None":
        from pyromq.spark.pipelines.changes import TableSettings

        found = {topic: TableSettings(**common | own) for topic, own in by_topic.items()}
        return found if table_per_topic else None

    def check() -> object:
        from pyromq.spark.pipelines.changes import checked

        return checked(options, schema=common.get("schema"), tables=tables(), **more)

    def work(spark: "SparkSession", show: "Show") -> None:
        from pyromq.spark.pipelines.changes import apply_changes

        read = more | common | {"flattened": flattened, "on_error": on_error, "tables": tables()}
        how: dict[str, Any] = {"form": form, "catalog": catalog, "trigger": trigger(follow, every)}
        apply_changes(spark, options, place, show=show, **how, **read)

    job.run("changes", place, work, check=check, restart=restart)


def _settings(
    given: Mapping[str, Sequence[str]], *, per_topic: bool
) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
    """The settings of all tables, and of single topics' tables."""
    common: dict[str, Any] = {}
    by_topic: dict[str, dict[str, Any]] = {}
    for name, texts in given.items():
        for text in texts:
            found = _OF_TOPIC.fullmatch(text) if per_topic else None
            own = common if found is None else by_topic.setdefault(found[1], {})
            value = text if found is None else found[2]
            if name == "schema" and name in own:
                raise click.UsageError(f"--schema {value}: expected one for each table")
            own[name] = value if name == "schema" else (*own.get(name, ()), value)
    return common, by_topic
