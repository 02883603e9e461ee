"""`pyromq consume` writes messages, and nothing else, to stdout."""

import sys
from typing import IO, Protocol

import click

from pyromq.cli.cluster_options import ClusterOptions, cluster_options
from pyromq.cli.message_formats import Render, renderer
from pyromq.cli.queue_scan import QueueScan, ScanRange
from pyromq.cli.rate_line import RateLine
from pyromq.cli.signals import exit_on_signals
from pyromq.cli.starting_points import Start, StartKind, parse_start
from pyromq.client.blocking import LoopThread
from pyromq.client.consumer.reading.subscriptions import Expression, Sql
from pyromq.client.values import ReceivedMessage
from pyromq.clock import SystemClock
from pyromq.errors import ConfigError


class MessageSource(Protocol):
    async def open(self) -> None: ...
    async def next(self, most: int | None) -> list[ReceivedMessage]: ...
    async def close(self, *, is_failed: bool) -> None: ...


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("topic")
@cluster_options
@click.option(
    "-f",
    "--format",
    "form",
    default="value",
    show_default=True,
    help="value, json, hex, or a format string. Fields: %s body, %k keys, %g tags, %t topic, %b broker,"
    " %p queue, %o offset. Also %T time stored (ms), %i id, %h properties, %S and %K sizes, \\n, \\t, \\xHH.",
)
@click.option(
    "-o",
    "--from",
    "start",
    metavar="WHERE",
    help="earliest, latest, stored, an offset, -N for the last N of each queue, -10m (s, m, h, d) for ten"
    " minutes ago, a time such as 2030-12-31T23:59, or @MILLISECONDS. Default: earliest; with a group:"
    " stored, or earliest for a queue without a stored offset.",
)
@click.option("--follow", is_flag=True, help="Wait for new messages instead of stopping at the end.")
@click.option("-c", "--count", type=click.IntRange(min=1), help="Stop after this many messages.")
@click.option(
    "-p", "--queue", "queues", multiple=True, metavar="[BROKER:]ID", help="Only this queue; repeatable."
)
@click.option("--tags", help="Only messages with these tags, as in 'Created || Paid'.")
@click.option("--sql", metavar="EXPRESSION", help="Only messages whose properties match, as in 'a > 5'.")
@click.option(
    "-g",
    "--group",
    help="Read as a member of this group and commit offsets. Without it nothing is committed.",
)
@click.option(
    "--broadcast",
    is_flag=True,
    help="With a group: read all queues and keep the offsets on this machine.",
)
@click.option("-q", "--quiet", is_flag=True, help="Print nothing on stderr unless something fails.")
def consume(
    topic: str,
    cluster: ClusterOptions,
    form: str,
    start: str | None,
    follow: bool,
    count: int | None,
    queues: tuple[str, ...],
    tags: str | None,
    sql: str | None,
    group: str | None,
    broadcast: bool,
    quiet: bool,
) -> None:
    """Write the messages of TOPIC to stdout, to the end of its queues or, with --follow, until interrupted.

    \b
    Examples:
      pyromq consume Orders -n 127.0.0.1:9876
      pyromq consume Orders --from -10 --follow -f '%p:%o %k %s\\n'
      pyromq consume Orders --tags 'Created || Paid' --from -1h --format json | jq .body
      pyromq consume Orders --group audit > orders.txt
    """
    if tags is not None and sql is not None:
        raise click.UsageError("give --tags or --sql, not both")
    if broadcast and group is None:
        raise click.UsageError("--broadcast needs --group: the offsets are kept under its name")
    out = sys.stdout.buffer
    try:
        render = renderer(form, is_terminal=out.isatty())
        chosen = _chosen_start(start, is_member=group is not None, is_following=follow)
    except ConfigError as problem:
        raise click.UsageError(str(problem)) from problem
    expression: Expression = Sql(sql) if sql is not None else tags or "*"
    wanted = ScanRange(topic, expression, chosen, queues, follow, _tell)
    with exit_on_signals(), cluster.explained():
        source: MessageSource
        if group is None:
            source = QueueScan(cluster.settings(), wanted)
        else:
            from pyromq.cli.group_reading import GroupReading

            source = GroupReading(cluster, group, wanted, is_broadcast=broadcast)
        # No progress line on a terminal that shows the messages.
        _write_all(source, out, render, count, RateLine("read", is_live=not out.isatty(), is_quiet=quiet))


def _tell(text: str) -> None:
    click.echo(text, err=True)


def _chosen_start(text: str | None, *, is_member: bool, is_following: bool) -> Start:
    start = parse_start(text or ("stored" if is_member else "earliest"), SystemClock().now_ms())
    if start.kind is StartKind.STORED and not is_member:
        raise click.UsageError("--from stored needs --group: it starts at the offsets of that group")
    if start.kind is StartKind.LATEST and not is_following:
        raise click.UsageError(
            "--from latest starts at the end of the queues: add --follow to wait for new messages"
        )
    return start


def _write_all(
    source: MessageSource, out: IO[bytes], render: Render, count: int | None, rate: RateLine
) -> None:
    """Writing may block this thread: the client runs on its own."""
    thread = LoopThread.shared()
    is_failed = True
    try:
        thread.run(source.open)
        left = count
        while left != 0 and (messages := thread.run(source.next, left)):
            data = b"".join(map(render, messages))
            # Count first: a reader of the messages may interrupt us at once.
            rate.add(len(messages), len(data))
            out.write(data)
            out.flush()
            left = None if left is None else left - len(messages)
        is_failed = False
    finally:
        thread.run(source.close, is_failed=is_failed)
        if rate.messages or not is_failed:
            rate.end()
