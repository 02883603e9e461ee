"""`pyromq pipeline dlq` shows dead letters with their reasons, and sends them again."""

from typing import cast

import click

from pyromq.apps.pipelines.job import EVERY, SETTINGS, PipelineJob, job_options, trigger
from pyromq.protocol.names import TRACE_TOPIC


@click.command(context_settings=SETTINGS)
@job_options
@click.option("-g", "--group", "groups", multiple=True, help="Only this group's dead letters; repeatable.")
@click.option(
    "--since", metavar="TIME", help="Only dead letters stored at this time or later: 2030-12-31T23:59."
)
@click.option("--until", metavar="TIME", help="Only dead letters stored before this time.")
@click.option(
    "--where",
    metavar="SQL",
    default="true",
    help="Only dead letters that match this SQL condition: attempts > 3.",
)
@click.option(
    "--samples",
    type=click.IntRange(min=0),
    default=3,
    help="Number of samples for each group, topic and reason.",
)
@click.option(
    "--max-retries",
    type=click.IntRange(min=0),
    default=16,
    help="Number of times that the groups retry a message.",
)
@click.option("--traced", is_flag=True, help=f"Look up the result of the last attempts in {TRACE_TOPIC}.")
@click.option(
    "--redrive",
    type=click.Choice(["origin", "group"]),
    help="Send them to their original topic, for all groups, or to the retry topic of their group.",
)
@click.option(
    "--checkpoint",
    metavar="DIR",
    help="With --redrive: the directory that records what was sent; the next run continues.",
)
@click.option("--follow", is_flag=True, help="With --redrive: wait for new dead letters.")
@EVERY
def dlq(
    job: PipelineJob,
    groups: tuple[str, ...],
    since: str | None,
    until: str | None,
    where: str,
    samples: int,
    max_retries: int,
    traced: bool,
    redrive: str | None,
    checkpoint: str | None,
    follow: bool,
    every: str,
) -> None:
    """Show dead letters by group, topic and reason, with samples.

    Columns for --where: group, origin (the topic), reason, attempts, key, tags, value, timestamp, properties.
    """
    if (redrive is None) != (checkpoint is None):
        raise click.UsageError("--redrive and --checkpoint must be given together")
    with job.spark("dlq") as spark:
        from pyromq.spark.pipelines import dlq as letters_of
        from pyromq.spark.pipelines import redrive as driving
        from pyromq.spark.pipelines.lake import condition
        from pyromq.spark.pipelines.tables import show_frame
        from pyromq.spark.pipelines.trace import read_messages, records

        wanted = condition(where, since=since, until=until)
        if redrive is not None and checkpoint is not None:
            with job.reported("dlq", checkpoint) as show:
                driving.redrive(
                    spark,
                    job.options,
                    cast(driving.Target, redrive),
                    checkpoint,
                    groups=groups,
                    where=wanted,
                    max_retries=max_retries,
                    trigger=trigger(follow, every),
                    show=show,
                )
            return
        letters = letters_of.read_dead_letters(spark, job.options, groups, max_retries)
        if traced:
            traces = read_messages(spark, {"subscribe": TRACE_TOPIC} | job.options)
            letters = letters_of.with_outcomes(letters, records(traces))
        chosen = letters.where(wanted).cache()
        show_frame(letters_of.summarized(chosen), "Dead letters", 1000)
        if samples:
            show_frame(letters_of.samples(chosen, samples), "Samples", 1000)
