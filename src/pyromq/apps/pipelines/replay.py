"""`pyromq pipeline replay` sends archived messages to topics again."""

import click

from pyromq.apps.pipelines.job import SETTINGS, PipelineJob, can_write, job_options


@click.command(context_settings=SETTINGS)
@click.argument("lake", metavar="DIR")
@job_options
@click.option("--to", metavar="TOPIC", help="Send all messages to this topic.")
@click.option("--same-topics", is_flag=True, help="Send each message to the topic it was archived from.")
@click.option("-t", "--topic", "topics", multiple=True, help="Only messages of this topic; repeatable.")
@click.option("--since", metavar="TIME", help="Only messages stored at this time or later: 2030-12-31T23:59.")
@click.option("--until", metavar="TIME", help="Only messages stored before this time.")
@click.option(
    "--where",
    metavar="SQL",
    default="true",
    help="Only messages that match this SQL condition: tags = 'Paid'.",
)
@click.option("--rate", type=click.IntRange(min=1), metavar="N", help="Send at most N messages per second.")
@click.option(
    "--keep-queues",
    is_flag=True,
    help="Send each message to the queue with the same number, on the same broker if the cluster has it.",
)
@click.option(
    "--checkpoint", metavar="DIR", help="The directory that records what was sent; the next run continues."
)
def replay(
    lake: str,
    job: PipelineJob,
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
        raise click.UsageError("give either --to TOPIC or --same-topics")
    target = {"topic": to} if to is not None else {}
    with job.spark("replay", lake, check=can_write(job.options | target)) as spark:
        from pyromq.spark.pipelines.lake import condition
        from pyromq.spark.pipelines.replay import replay as run

        with job.reported("replay", lake) as show:
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
