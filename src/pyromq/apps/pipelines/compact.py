"""`pyromq pipeline compact`: few large files instead of many small ones."""

import click

from pyromq.apps.pipelines.job import SETTINGS, PipelineJob, job_options


@click.command(context_settings=SETTINGS)
@click.argument("lake", metavar="DIR")
@job_options
@click.option(
    "--file-size", type=click.IntRange(min=1), default=128, metavar="MB", help="The target size of a file."
)
def compact(lake: str, job: PipelineJob, file_size: int) -> None:
    """Join small files of the Delta or Iceberg table in DIR; `archive` may run meanwhile."""
    with job.spark("compact", lake) as spark:
        from pyromq.spark.pipelines.compact import compact as run

        done = run(spark, lake, file_size * 1024 * 1024)
        click.echo(f"{done.replaced:,} files became {done.made:,}")
