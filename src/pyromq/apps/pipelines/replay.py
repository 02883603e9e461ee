"""`pyromq pipeline replay`: a lake back into topics."""

import click

from pyromq.apps.pipelines.job import SETTINGS, Job, job_options


@click.command(context_settings=SETTINGS)
@click.argument("lake", metavar="DIR")
@job_options
@click.option("--to", metavar="TOPIC", help="Where all messages go.")
@click.option("--same-topics", is_flag=True, help="Each message goes to the topic it was archived from.")
@click.option("-t", "--topic", "topics", multiple=True, help="Only messages of this topic; repeatable.")
@click.option("--since", metavar="TIME", help="Only messages stored then or later: 2030-12-31T23:59.")
@click.option("--until", metavar="TIME", help="Only messages stored before.")
@click.option("--where", metavar="SQL", default="true", help="Only rows for which this holds: tags = 'Paid'.")
@click.option("--rate", type=click.IntRange(min=1), metavar="N", help="No more than N messages a second.")
@click.option("--keep-queues", is_flag=True, help="Into the queue with the same number.")
@click.option("--checkpoint", metavar="DIR", help="Remember here what was sent; run it again to go on.")
def replay(
    lake: str,
    job: Job,
    to: str | None,
    same_topics: bool,
    topics: tuple[str, ...],
    since: str | None,
    until: str | None,
    where: str,
    rate: int | None,
    keep_queues: bool,
    checkpoint: str | None,
) -> None:
    """Send archived messages again, oldest first."""
    if (to is None) == (not same_topics):
        raise click.UsageError("where to? either --to TOPIC or --same-topics")
    target = {"topic": to} if to is not None else {}
    with job.spark("replay") as spark:
        from pyromq.spark.pipelines.display import reported
        from pyromq.spark.pipelines.lake import condition
        from pyromq.spark.pipelines.replay import replay as run

        with reported() as show:
            run(
                spark,
                lake,
                job.options | target,
                where=condition(where, topics=topics, since=since, until=until),
                rows_per_s=rate,
                keeps_queues=keep_queues,
                checkpoint=checkpoint,
                show=show,
            )
