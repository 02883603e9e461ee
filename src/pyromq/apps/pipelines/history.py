"""`pyromq pipeline history` shows or exports archived and live messages as one table."""

from pathlib import PurePath

import click

from pyromq.apps.pipelines.job import PATTERN, SETTINGS, TOPIC, PipelineJob, job_options, topics_options

_FORMATS = {".parquet": "parquet", ".json": "json", ".csv": "csv"}


@click.command(context_settings=SETTINGS)
@click.argument("lake", metavar="DIR")
@job_options
@TOPIC
@PATTERN
@click.option("--since", metavar="TIME", help="Only messages stored at this time or later: 2030-12-31T23:59.")
@click.option("--until", metavar="TIME", help="Only messages stored before this time.")
@click.option("--where", metavar="SQL", default="true", help="Only rows that match this SQL condition.")
@click.option(
    "--sql", metavar="QUERY", help="Show the result of this query: select tags, count(*) from history …"
)
@click.option(
    "--limit",
    type=click.IntRange(min=1),
    default=20,
    help="The maximum number of rows to show, newest first.",
)
@click.option(
    "--out",
    metavar="PATH",
    help="Write all rows to this directory, whose name ends in .parquet, .json or .csv.",
)
def history(
    lake: str,
    job: PipelineJob,
    topics: tuple[str, ...],
    pattern: str | None,
    since: str | None,
    until: str | None,
    where: str,
    sql: str | None,
    limit: int,
    out: str | None,
) -> None:
    """Show the archive in DIR and newer messages as one table, without gaps or duplicates.

    In --sql the table is called history. CSV has the value as text, and no properties.
    """
    if out is not None and PurePath(out).suffix not in _FORMATS:
        raise click.UsageError(f"--out {out}: expected a name that ends in {', '.join(_FORMATS)}")
    with job.spark("history", lake or "") as spark:
        from pyromq.spark.pipelines.history import history as frame_of
        from pyromq.spark.pipelines.lake import condition
        from pyromq.spark.pipelines.tables import flat, show_frame, write_counted

        frame = frame_of(spark, job.options | topics_options(topics, pattern), lake)
        frame = frame.where(condition(where, since=since, until=until))
        if sql is not None:
            frame.createOrReplaceTempView("history")
            frame = spark.sql(sql)
        if out is not None:
            form = _FORMATS[PurePath(out).suffix]
            rows = write_counted(flat(frame) if form == "csv" else frame, out, form)
            click.echo(f"{rows:,} rows in {out}")
            return
        if sql is None:
            frame = frame.orderBy("timestamp", "offset", ascending=False)
            frame = frame.select("topic", "queueId", "offset", "timestamp", "tags", "key", "value")
        show_frame(frame, "History", limit)
