"""`pyromq pipeline maintain`: large files, no old versions, and nothing of those who ask to be forgotten."""

from datetime import timedelta

import click

from pyromq.apps.pipelines.job import SETTINGS, PipelineJob, job_options


@click.command(context_settings=SETTINGS)
@click.argument("lake", metavar="DIR")
@job_options
@click.option(
    "--file-size", type=click.IntRange(min=1), default=128, metavar="MB", help="The target size of a file."
)
@click.option(
    "--keep",
    "keep_days",
    type=click.IntRange(min=0),
    default=7,
    metavar="DAYS",
    help="Keep older versions of the table for so long, for readers that use them.",
)
@click.option(
    "--forget",
    "forgotten",
    multiple=True,
    metavar="COLUMN=VALUE",
    help="Delete the rows with this value; repeatable. COLUMN may be a field, as in value.customer.",
)
def maintain(lake: str, job: PipelineJob, file_size: int, keep_days: int, forgotten: tuple[str, ...]) -> None:
    """Delete rows, join small files, and remove old versions and orphaned files of the table in DIR.

    Other jobs and engines may read and write meanwhile.
    """
    forget: dict[str, list[str]] = {}
    for pair in forgotten:
        column, equals, value = pair.partition("=")
        if not equals or not column:
            raise click.UsageError("--forget: expected COLUMN=VALUE")
        forget.setdefault(column, []).append(value)
    with job.spark("maintain", lake) as spark:
        from pyromq.spark.pipelines.maintain import maintain as run

        keep = timedelta(days=keep_days)
        done = run(spark, lake, target_bytes=file_size * 1024 * 1024, keep=keep, forget=forget)
        if forget:
            click.echo(f"rows deleted: {done.forgotten:,}")
        click.echo(f"{done.replaced:,} files became {done.made:,}")
        click.echo(f"files removed: {done.expired:,} of old versions, {done.orphans:,} orphans")
