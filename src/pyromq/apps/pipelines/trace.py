"""`pyromq pipeline trace` shows how long messages take from send to consumption."""

from pathlib import Path

import click

from pyromq.apps.pipelines.job import SETTINGS, PipelineJob, job_options
from pyromq.protocol.names import TRACE_TOPIC

_PLOTS = (".png", ".svg", ".html")


@click.command(context_settings=SETTINGS)
@job_options
@click.option("-t", "--trace-topic", default=TRACE_TOPIC, help="The trace topic of the clients.")
@click.option("--since", metavar="TIME", help="Only traces stored at this time or later: 2030-12-31T23:59.")
@click.option("--until", metavar="TIME", help="Only traces stored before this time.")
@click.option(
    "--lake", metavar="DIR", help="Archive the traces to this directory first, and use all traces in it."
)
@click.option(
    "--plot",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Draw the distributions to this file, whose name ends in .png, .svg or .html.",
)
def trace(
    job: PipelineJob,
    trace_topic: str,
    since: str | None,
    until: str | None,
    lake: str | None,
    plot: Path | None,
) -> None:
    """Show percentiles in ms, from send to first consumption, for each topic and group.

    Clients must trace: PyroMQ's with trace=True, Java's with enableMsgTrace. Delayed messages do not count.
    """
    if plot is not None and plot.suffix not in _PLOTS:
        raise click.UsageError(f"--plot {plot}: expected a name that ends in {', '.join(_PLOTS)}")
    with job.spark("trace") as spark:
        from pyromq.spark.pipelines.archive import archive
        from pyromq.spark.pipelines.display import stdout
        from pyromq.spark.pipelines.lake import condition, read_lake
        from pyromq.spark.pipelines.tables import cell, table_of
        from pyromq.spark.pipelines.trace import latencies, read_messages, records

        options = {"subscribe": trace_topic} | job.options
        if lake is not None:
            with job.reported("trace", lake) as show:
                archive(spark, options, lake, show=show)
            messages = read_lake(spark, lake)
        else:
            messages = read_messages(spark, options)
        wanted = messages.where(condition(since=since, until=until))
        frame = latencies(records(wanted))
        found = frame.collect()
        if not found:
            raise click.ClickException(f"{trace_topic} has no message that was both sent and consumed")
        columns = frame.columns[:-1]
        rows = [[cell(value) for value in row[:-1]] for row in found]
        stdout().print(table_of("Milliseconds from send to consume", columns, rows))
        if plot is not None:
            from pyromq.spark.pipelines.plots import plot_latencies

            plot_latencies({f"{row.topic} → {row.group}": row.grid for row in found}, plot, [columns, *rows])
            click.echo(f"plot in {plot}")
