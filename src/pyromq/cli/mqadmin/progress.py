"""Commands about progress: the lag of groups, and the rates of topics."""

from typing import Any

import click

from pyromq.admin import groups, progress, throughput
from pyromq.admin.cluster import Cluster
from pyromq.admin.progress import Progress, ProgressRates, QueueProgress
from pyromq.admin.rates import Histories
from pyromq.cli.mqadmin.output import Output
from pyromq.cli.mqadmin.report import Column, Fact, Facts, Report, Table
from pyromq.cli.mqadmin.running import TEXT, address_of, admin_command
from pyromq.cli.mqadmin.times import to_seconds
from pyromq.cli.mqadmin.watching import rate_text, sparkline, watch, watch_options
from pyromq.protocol.bodies.heartbeat import ConsumeType
from pyromq.protocol.codes import version_name

_UNKNOWN = "N/A"


@admin_command("consumerProgress")
@click.option("-g", "--groupName", "group", type=TEXT, help="This group, queue by queue.")
@click.option("-t", "--topicName", "topic", type=TEXT, help="Only this topic.")
@click.option(
    "-s",
    "--showClientIP",
    "with_clients",
    type=bool,
    default=False,
    help="Show which machine reads each queue.",
)
@click.option("-c", "--cluster", "ignored", type=TEXT, help="Ignored; accepted for existing scripts.")
@watch_options
async def consumer_progress(
    cluster: Cluster,
    out: Output,
    group: str | None,
    topic: str | None,
    with_clients: bool,
    every_s: float | None,
    rounds: int | None,
    **_: Any,
) -> None:
    """Show the lag of groups; with --watch, also how fast they catch up."""
    if group is None:
        await _watch_all(cluster, out, every_s, rounds)
    else:
        await _watch_one(cluster, out, group, topic, with_clients, every_s, rounds)


async def _watch_one(
    cluster: Cluster,
    out: Output,
    group: str,
    topic: str | None,
    with_clients: bool,
    every_s: float | None,
    rounds: int | None,
) -> None:
    rates = None if every_s is None else ProgressRates()

    async def look() -> Report:
        found = await progress.of_group(cluster, group, topic, with_clients=with_clients)
        if rates is not None:
            rates.read(found, cluster.clock.monotonic())
        totals = Facts(
            [
                Fact("Consume TPS", "consumeTps", found.consume_tps, "{:.2f}".format),
                Fact("Consume Diff Total", "diffTotal", found.diff_total),
                Fact("Consume Inflight Total", "inflightTotal", found.inflight_total),
            ]
        )
        return Report.of(_queues(found, with_clients, rates), totals)

    await watch(out, look, every_s, rounds)


def _queues(found: Progress, with_clients: bool, rates: ProgressRates | None) -> Table:
    columns = [
        Column("#Topic", "topic"),
        Column("#Broker Name", "brokerName"),
        Column("#QID", "queueId"),
        Column("#Broker Offset", "brokerOffset"),
        Column("#Consumer Offset", "consumerOffset"),
        *([Column("#Client IP", "clientIp", lambda client: client or _UNKNOWN)] if with_clients else []),
        Column("#Diff", "diff"),
        Column("#Inflight", "inflight"),
        Column("#LastTime", "lastTime", _last_time),
    ]
    if rates is not None:
        columns += [
            Column("#In/s", "inPerSecond", rate_text),
            Column("#Out/s", "outPerSecond", rate_text),
            Column("#Trend", "trend", sparkline),
        ]

    def row(each: QueueProgress) -> list[Any]:
        queue = each.queue
        moved = [] if rates is None else [rates.arriving(queue), rates.leaving(queue)]
        trend = [] if rates is None else [rates.leaving_history(queue)]
        return [
            queue.topic,
            queue.broker_name,
            queue.queue_id,
            each.broker_offset,
            each.consumer_offset,
            *([each.client_host] if with_clients else []),
            each.diff,
            each.inflight,
            each.last_timestamp,
            *moved,
            *trend,
        ]

    return Table("queues", columns, list(map(row, found.queues)))


def _last_time(timestamp_ms: int) -> str:
    return to_seconds(timestamp_ms) if timestamp_ms else _UNKNOWN


async def _watch_all(cluster: Cluster, out: Output, every_s: float | None, rounds: int | None) -> None:
    histories: Histories[str] = Histories()

    async def look() -> Report:
        found = await groups.summaries(cluster)
        columns = [
            Column("#Group", "group"),
            Column("#Count", "count"),
            Column("#Version", "version", _version),
            Column("#Type", "type", _type),
            Column("#Model", "model"),
            Column("#TPS", "tps", lambda tps: str(int(tps))),
            Column("#Diff Total", "diffTotal"),
        ]
        rows: list[list[Any]] = [
            [
                each.group,
                each.count,
                each.version,
                each.consume_type,
                each.message_model if each.consume_type is ConsumeType.CONSUME_PASSIVELY else None,
                each.consume_tps,
                each.diff_total,
            ]
            for each in found
        ]
        if every_s is not None:
            columns.append(Column("#Lag", "lag", sparkline))
            histories.read({each.group: float(each.diff_total) for each in found})
            for row, each in zip(rows, found, strict=True):
                row.append(histories.history(each.group))
        return Report.of(Table("groups", columns, rows))

    await watch(out, look, every_s, rounds)


def _type(consume_type: ConsumeType | None) -> str:
    if consume_type is None:
        return ""
    return "PULL" if consume_type is ConsumeType.CONSUME_ACTIVELY else "PUSH"


def _version(number: int | None) -> str:
    return "OFFLINE" if number is None else version_name(number)


@admin_command("brokerConsumeStats")
@click.option(
    "-b", "--brokerAddr", "broker", type=TEXT, required=True, help="The broker, by address or name."
)
@click.option(
    "-t",
    "--timeoutMillis",
    "timeout_ms",
    type=click.IntRange(min=1),
    default=50_000,
    show_default=True,
    help="The timeout in milliseconds.",
)
@click.option(
    "-l", "--level", type=int, default=0, help="Only queues with at least this many messages behind."
)
@click.option("-o", "--order", "ordered_only", type=bool, default=False, help="Only ordered topics.")
async def broker_consume_stats(
    cluster: Cluster, out: Output, broker: str, timeout_ms: int, level: int, ordered_only: bool
) -> None:
    """Show the lag of all groups of a broker."""
    address = await address_of(cluster, broker)
    found = await progress.of_broker(
        cluster, address, min_diff=level, ordered_only=ordered_only, timeout_s=timeout_ms / 1000
    )
    columns = (
        Column("#Topic", "topic"),
        Column("#Group", "group"),
        Column("#Broker Name", "brokerName"),
        Column("#QID", "queueId"),
        Column("#Broker Offset", "brokerOffset"),
        Column("#Consumer Offset", "consumerOffset"),
        Column("#Diff", "diff"),
        Column("#LastTime", "lastTime", _last_time),
    )
    rows = [
        (
            each.queue.topic,
            each.group,
            each.queue.broker_name,
            each.queue.queue_id,
            each.broker_offset,
            each.consumer_offset,
            each.diff,
            each.last_timestamp,
        )
        for each in found.queues
    ]
    total = Fact("Diff Total", "diffTotal", found.diff_total)
    out.show(Report.of(Table("queues", columns, rows), Facts([total])))


@admin_command("statsAll")
@click.option("-a", "--activeTopic", "active_only", is_flag=True, help="Only topics used within a day.")
@click.option("-t", "--topic", type=TEXT, help="Only this topic.")
async def stats_all(cluster: Cluster, out: Output, active_only: bool, topic: str | None) -> None:
    """Show rates and lag of every topic and the groups that read it."""
    found = await throughput.of_cluster(cluster, topic, active_only=active_only)
    columns = (
        Column("#Topic", "topic"),
        Column("#Consumer Group", "group"),
        Column("#Accumulation", "accumulation", is_number=True),
        Column("#InTPS", "inTps", "{:.2f}".format, is_number=True),
        Column("#OutTPS", "outTps", lambda tps: "" if tps is None else f"{tps:.2f}", is_number=True),
        Column("#InMsg24Hour", "inLastDay", is_number=True),
        Column(
            "#OutMsg24Hour", "outLastDay", lambda n: "NO_CONSUMER" if n is None else str(n), is_number=True
        ),
    )
    rows = [
        (
            each.topic,
            each.group,
            each.accumulation,
            each.in_tps,
            each.out_tps if each.group else None,
            each.in_last_day,
            each.out_last_day if each.group else None,
        )
        for each in found
    ]
    out.show(Report.of(Table("topics", columns, rows)))
