"""`pyromq recall` takes back timed messages, by the handles that `pyromq produce --handles` printed."""

import sys

import click

from pyromq.cli.cluster_options import ClusterOptions, cluster_options
from pyromq.cli.signals import exit_on_signals
from pyromq.client.blocking import Producer
from pyromq.errors import PyroError

GROUP = "pyromq-recall"


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("handles", metavar="[HANDLE]...", nargs=-1)
@cluster_options
@click.option("-q", "--quiet", is_flag=True, help="Print nothing unless something fails.")
def recall(handles: tuple[str, ...], cluster: ClusterOptions, quiet: bool) -> None:
    """Recall timed messages before their delivery, by HANDLE or by the handles on stdin.

    Prints the id of each recalled message. If a broker refuses one, the command continues with the others
    and exits with 1.

    \b
    Examples:
      echo hello | pyromq produce Reminders --delay 2h --handles > handles.txt
      pyromq recall < handles.txt
    """
    failures: list[str] = []
    with (
        exit_on_signals(),
        cluster.explained(),
        Producer(GROUP, cluster.namesrv, **cluster.options) as producer,
    ):
        for handle in handles or filter(None, map(str.strip, sys.stdin)):
            try:
                message_id = producer.recall(handle)
            except PyroError as problem:
                failures.append(f"{handle}: {cluster.explanation(problem)}")
            else:
                if not quiet:
                    click.echo(message_id)
    if failures:
        raise click.ClickException("not taken back; " + "; ".join(failures))
