"""Commands about progress: the lag of groups, and the rates of topics."""

from typing import Any

import click

from pyromq.admin import brokers, connections, groups, offsets, throughput, topics
from pyromq.admin.cluster import Cluster
from pyromq.admin.rates import REMEMBERED, Rates
from pyromq.cli.mqadmin.output import Output
from pyromq.cli.mqadmin.report import Column, Fact, Facts, Report, Table
from pyromq.cli.mqadmin.running import TEXT, address_of, admin_command
from pyromq.cli.mqadmin.times import to_seconds
from pyromq.cli.mqadmin.watching import rate_text, sparkline, watch, watch_options
from pyromq.protocol.bodies.heartbeat import ConsumeType
from pyromq.protocol.bodies.queues import MessageQueue
from pyromq.protocol.bodies.statistics import ConsumeStats
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
    arriving: Rates[MessageQueue] = Rates()
    leaving: Rates[MessageQueue] = Rates()

    async def look() -> Report:
        stats = await offsets.lag(cluster, group, topic)
        clients = await _readers(cluster, group) if with_clients else None
        table = _progress(stats, clients)
        if every_s is not None:
            now_s = cluster.clock.monotonic()
            places = stats.offset_table.items()
            arriving.read({queue: float(place.broker_offset) for queue, place in places}, now_s)
            leaving.read({queue: float(place.consumer_offset) for queue, place in places}, now_s)
            table = Table(
                table.key,
                [
                    *table.columns,
                    Column("#In/s", "inPerSecond", rate_text),
                    Column("#Out/s", "outPerSecond", rate_text),
                    Column("#Trend", "trend", sparkline),
                ],
                [
                    [*row, arriving.rate(queue), leaving.rate(queue), leaving.history(queue)]
                    for row, queue in zip(table.rows, sorted(stats.offset_table), strict=True)
                ],
            )
        totals = Facts(
            [
                Fact("Consume TPS", "consumeTps", stats.consume_tps, "{:.2f}".format),
                Fact("Consume Diff Total", "diffTotal", offsets.total_diff(stats)),
                Fact("Consume Inflight Total", "inflightTotal", offsets.total_inflight(stats)),
            ]
        )
        return Report.of(table, totals)

    await watch(out, look, every_s, rounds)


def _progress(stats: ConsumeStats, clients: dict[MessageQueue, str] | None) -> Table:
    columns = [
        Column("#Topic", "topic"),
        Column("#Broker Name", "brokerName"),
        Column("#QID", "queueId"),
        Column("#Broker Offset", "brokerOffset"),
        Column("#Consumer Offset", "consumerOffset"),
        Column("#Diff", "diff"),
        Column("#Inflight", "inflight"),
        Column("#LastTime", "lastTime", _last_time),
    ]
    rows: list[list[Any]] = [
        [
            queue.topic,
            queue.broker_name,
            queue.queue_id,
            place.broker_offset,
            place.consumer_offset,
            place.broker_offset - place.consumer_offset,
            offsets.inflight(place),
            place.last_timestamp,
        ]
        for queue, place in sorted(stats.offset_table.items())
    ]
    if clients is not None:
        columns.insert(5, Column("#Client IP", "clientIp", lambda client: client or _UNKNOWN))
        for row, queue in zip(rows, sorted(stats.offset_table), strict=True):
            row.insert(5, clients.get(queue))
    return Table("queues", columns, rows)


def _last_time(timestamp_ms: int) -> str:
    return to_seconds(timestamp_ms) if timestamp_ms else _UNKNOWN


async def _readers(cluster: Cluster, group: str) -> dict[MessageQueue, str]:
    """Which machine reads which queue, as far as members tell."""
    (members,) = await cluster.known([connections.status(cluster, group)])
    return {
        queue: member.client_id.partition("@")[0]
        for member in members or []
        if member.running is not None
        for queue in member.running.mq_table
    }


async def _watch_all(cluster: Cluster, out: Output, every_s: float | None, rounds: int | None) -> None:
    histories: dict[str, list[float]] = {}

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
            for row, each in zip(rows, found, strict=True):
                history = histories.setdefault(each.group, [])
                history.append(each.diff_total)
                row.append(history[-REMEMBERED:])
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
    stats = await brokers.consume_stats(
        cluster, address, ordered_only=ordered_only, timeout_s=timeout_ms / 1000
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
            queue.topic,
            group,
            queue.broker_name,
            queue.queue_id,
            place.broker_offset,
            place.consumer_offset,
            place.broker_offset - place.consumer_offset,
            place.last_timestamp,
        )
        for table in stats.consume_stats_list
        for group, of_group in sorted(table.items())
        for each in of_group
        for queue, place in sorted(each.offset_table.items())
        # java: leaves out queues from which nothing was read; we leave out only those with nothing to read
        if (place.last_timestamp > 0 or place.broker_offset > place.consumer_offset)
        and place.broker_offset - place.consumer_offset >= level
    ]
    total = Fact("Diff Total", "diffTotal", stats.total_diff)
    out.show(Report.of(Table("queues", columns, rows), Facts([total])))


@admin_command("statsAll")
@click.option("-a", "--activeTopic", "active_only", is_flag=True, help="Only topics used within a day.")
@click.option("-t", "--topic", type=TEXT, help="Only this topic.")
async def stats_all(cluster: Cluster, out: Output, active_only: bool, topic: str | None) -> None:
    """Show rates and lag of every topic and the groups that read it."""
    if topic is not None:
        await cluster.route(topic)
        wanted = [topic]
    else:
        wanted = [name for name in await topics.names(cluster) if not topics.is_derived(name)]
    found = [
        each
        for each in await throughput.of_topics(cluster, wanted)
        if not active_only or each.in_last_day or each.out_last_day
    ]
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
