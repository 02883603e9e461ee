"""`pyromq bench` runs a load against a cluster and says how fast it was."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from pyromq.admin.facade import Admin
from pyromq.cli.bench import report
from pyromq.cli.bench.loads import CONSUMERS, DUE, LOADS, READS, LoadPlan, LoadResult
from pyromq.cli.cluster_options import ClusterOptions, cluster_options
from pyromq.cli.rate_line import RateLine
from pyromq.cli.signals import exit_on_signals
from pyromq.client.blocking import LoopThread
from pyromq.client.declaring import TopicType

TOPIC = "pyromq-bench"
_SHOWN_TOPICS = 5
_DEFAULT_LATENCY_RATE = 1000.0


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("load", type=click.Choice(list(LOADS)))
@cluster_options
@click.option(
    "-t",
    "--topic",
    default=TOPIC,
    show_default=True,
    help="The topic. It is created, and deleted at the end.",
)
@click.option(
    "--queues",
    default=8,
    show_default=True,
    type=click.IntRange(min=1),
    help="Queues of the topic on each broker.",
)
@click.option(
    "-s",
    "--size",
    default=1024,
    show_default=True,
    type=click.IntRange(0, 4 << 20),
    help="Size of a message in bytes.",
)
@click.option(
    "-r",
    "--rate",
    type=click.FloatRange(min=0, min_open=True),
    help="Messages a second, due at fixed moments whether or not earlier ones were answered. Latency runs"
    " from the moment a message was due. Keeps a core busy. Default: as many as --in-flight allows; for"
    " latency, 1000.",
)
@click.option(
    "-w",
    "--in-flight",
    default=64,
    show_default=True,
    type=click.IntRange(min=1),
    help="Without --rate: messages in flight at any time.",
)
@click.option(
    "-c",
    "--connections",
    default=1,
    show_default=True,
    type=click.IntRange(1, 1000),
    help="Producers or consumers, each with its own connections.",
)
@click.option(
    "-d",
    "--duration",
    default=10.0,
    show_default=True,
    type=click.FloatRange(min=0.1),
    help="Seconds to measure. Does not apply to consume, pull and pop.",
)
@click.option(
    "--warm-up",
    default=2.0,
    show_default=True,
    type=click.FloatRange(min=0),
    help="Seconds before that, which do not count.",
)
@click.option(
    "-m",
    "--messages",
    default=100_000,
    show_default=True,
    type=click.IntRange(min=1),
    help="Messages that consume, pull and pop send first and then read.",
)
@click.option(
    "--json", "kept", type=click.Path(dir_okay=False, path_type=Path), help="Write the figures to this file."
)
@click.option(
    "--compare",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Compare with the figures in this file, written by --json.",
)
@click.option(
    "--picture",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Draw the latencies into this file (SVG).",
)
@click.option("--keep", is_flag=True, help="Do not delete the topic and its messages.")
@click.option("-y", "--yes", is_flag=True, help="Run even if the cluster has other topics.")
@click.option("-q", "--quiet", is_flag=True, help="Print no progress on stderr.")
def bench(
    load: str,
    cluster: ClusterOptions,
    topic: str,
    queues: int,
    size: int,
    rate: float | None,
    in_flight: int,
    connections: int,
    duration: float,
    warm_up: float,
    messages: int,
    kept: Path | None,
    compare: Path | None,
    picture: Path | None,
    keep: bool,
    yes: bool,
    quiet: bool,
) -> None:
    """Measure a cluster, PyroMQ's or Apache's.

    \b
    LOAD is one of
      send         producers
      transaction  half messages, each committed at once
      latency      from a producer to a push consumer
      consume      push consumers, which read messages sent first
      pull         pull consumers, the same
      pop          simple consumers, which acknowledge

    \b
    Examples:
      pyromq bench send -n 127.0.0.1:9876 --size 100
      pyromq bench latency --rate 5000 --json monday.json
      pyromq bench latency --rate 5000 --compare monday.json
    """
    if load == "latency":
        rate = rate or _DEFAULT_LATENCY_RATE
        size = max(size, DUE.size)
    if rate is not None and load in READS:
        raise click.UsageError(f"--rate does not apply to {load}: it reads as fast as it can")
    if picture is not None and load in READS:
        raise click.UsageError(f"--picture does not apply to {load}: it measures no latency")
    earlier = _earlier(compare)
    plan = LoadPlan(topic, size, rate, in_flight, connections, duration, warm_up, messages)
    with exit_on_signals(), cluster.explained():
        verb = "read" if load in READS else "measured"
        result = LoadResult(RateLine(verb, is_live=True, is_quiet=quiet))
        run = BenchRun(load, cluster, plan, result, queues=queues, keeps_topic=keep, may_disturb=yes)
        try:
            LoopThread.shared().run(run.run)
        finally:
            result.rate_line.clear()
    found = report.figures(load, plan, result)
    for line in report.lines(found, result.times):
        click.echo(line)
    if earlier is not None:
        for line in report.comparison(earlier, found):
            click.echo(line)
    if kept is not None:
        kept.write_text(json.dumps(found, indent=2) + "\n")
    if picture is not None and result.times.count:
        picture.write_text(report.picture(found, result.times))
    if result.failed:
        raise click.ClickException(f"{result.failed:,} messages failed; the first: {result.first_failure}")


def _earlier(path: Path | None) -> dict[str, Any] | None:
    if path is None:
        return None
    try:
        found = json.loads(path.read_text())
    except ValueError as problem:
        raise click.UsageError(f"--compare {path}: {problem}") from None
    if not isinstance(found, dict) or "messagesPerSecond" not in found:
        raise click.UsageError(f"--compare {path}: expected a file that --json wrote")
    return found


@dataclass(frozen=True)
class BenchRun:
    """The topic around a load: made before it, deleted after it, and never somebody else's."""

    load: str
    cluster: ClusterOptions
    plan: LoadPlan
    result: LoadResult
    queues: int
    keeps_topic: bool
    may_disturb: bool

    async def run(self) -> None:
        topic = self.plan.topic
        async with Admin(self.cluster.namesrv, **self.cluster.options) as admin:
            there = await admin.topics()
            if topic in there and topic != TOPIC:
                raise click.UsageError(
                    f"topic {topic} exists: choose one that does not, as it is deleted at the end"
                )
            others = [each for each in there if each != topic and not each.startswith("%")]
            if others and not self.may_disturb:
                named = ", ".join(others[:_SHOWN_TOPICS]) + (" …" if len(others) > _SHOWN_TOPICS else "")
                raise click.UsageError(
                    f"the cluster has other topics ({named}), and a benchmark slows them down;"
                    " --yes runs it anyway"
                )
            if topic in there:
                await admin.delete_topic(topic)
            kind: TopicType = "TRANSACTION" if self.load == "transaction" else "NORMAL"
            await admin.create_topic(topic, queues=self.queues, message_type=kind)
            try:
                await LOADS[self.load](self.cluster, self.plan, self.result)
            except ExceptionGroup as several:
                raise several.exceptions[0] from None  # one line says why
            finally:
                if self.load in CONSUMERS:
                    await admin.delete_group(self.plan.group)
                if not self.keeps_topic:
                    await admin.delete_topic(topic)
