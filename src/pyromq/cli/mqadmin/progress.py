"""Commands about progress: the lag of groups and of streaming queries, and the rates of topics."""

from pathlib import Path
from typing import Annotated

import click

from pyromq.admin import checkpoints, groups, monitoring, offsets, progress, throughput
from pyromq.admin.cluster import Cluster
from pyromq.admin.groups import GroupSummary
from pyromq.admin.progress import ConsumeProgress, ProgressRates
from pyromq.admin.rates import GaugeHistories
from pyromq.cli.mqadmin.options import IGNORED, SECONDS, Topic, flag, option
from pyromq.cli.mqadmin.output import Output
from pyromq.cli.mqadmin.report import Column, Fact, Facts, Report, ReportLines, Table
from pyromq.cli.mqadmin.running import address_of, admin_command
from pyromq.cli.mqadmin.times import to_seconds
from pyromq.cli.mqadmin.watching import Every, Rounds, rate_text, sparkline, watch
from pyromq.protocol.codes import version_name
from pyromq.protocol.requests.membership import ConsumeType, MessageModel

_UNKNOWN = "N/A"


def _last_time(timestamp_ms: int) -> str:
    return to_seconds(timestamp_ms) if timestamp_ms > 0 else _UNKNOWN


_TOPIC = Column("#Topic", "topic", of="queue.topic")
_QUEUE = (
    Column("#Broker Name", "brokerName", of="queue.broker_name"),
    Column("#QID", "queueId", of="queue.queue_id"),
    Column("#Broker Offset", "brokerOffset", of="broker_offset"),
    Column("#Consumer Offset", "consumerOffset", of="consumer_offset"),
)
_CLIENT = Column("#Client IP", "clientIp", lambda client: client or _UNKNOWN, of="client_host")
_DIFF = Column("#Diff", "diff", of="diff")
_INFLIGHT = Column("#Inflight", "inflight", of="inflight")
_LAST_TIME = Column("#LastTime", "lastTime", _last_time, of="last_timestamp")


@admin_command("consumerProgress")
async def consumer_progress(
    cluster: Cluster,
    out: Output,
    group: Annotated[str | None, option("-g --groupName", "This group, queue by queue.")] = None,
    topic: Annotated[str | None, option("-t --topicName", "Only this topic.")] = None,
    with_clients: Annotated[
        bool, option("-s --showClientIP", "Show which machine reads each queue.")
    ] = False,
    _ignored: Annotated[str | None, option("-c --cluster", IGNORED)] = None,
    every_s: Every = None,
    rounds: Rounds = None,
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


def _queues(found: ConsumeProgress, with_clients: bool, rates: ProgressRates | None) -> Table:
    columns = [_TOPIC, *_QUEUE, *([_CLIENT] if with_clients else []), _DIFF, _INFLIGHT, _LAST_TIME]
    if rates is not None:
        columns += [
            Column("#In/s", "inPerSecond", rate_text, of=lambda each: rates.arriving(each.queue)),
            Column("#Out/s", "outPerSecond", rate_text, of=lambda each: rates.leaving(each.queue)),
            Column("#Trend", "trend", sparkline, of=lambda each: rates.leaving_history(each.queue)),
        ]
    return Table.of("queues", found.queues, columns)


async def _watch_all(cluster: Cluster, out: Output, every_s: float | None, rounds: int | None) -> None:
    histories: GaugeHistories[str] = GaugeHistories()

    async def look() -> Report:
        found = await groups.summaries(cluster)
        columns = [
            Column("#Group", "group", of="group"),
            Column("#Count", "count", of="count"),
            Column("#Version", "version", _version, of="version"),
            Column("#Type", "type", _type, of="consume_type"),
            Column("#Model", "model", of=_model),
            Column("#TPS", "tps", lambda tps: str(int(tps)), of="consume_tps"),
            Column("#Diff Total", "diffTotal", of="diff_total"),
        ]
        if every_s is not None:
            histories.read({each.group: float(each.diff_total) for each in found})
            columns.append(Column("#Lag", "lag", sparkline, of=lambda each: histories.history(each.group)))
        return Report.of(Table.of("groups", found, columns))

    await watch(out, look, every_s, rounds)


def _model(summary: GroupSummary) -> MessageModel | None:
    return summary.message_model if summary.consume_type is ConsumeType.CONSUME_PASSIVELY else None


def _type(consume_type: ConsumeType | None) -> str:
    if consume_type is None:
        return ""
    return "PULL" if consume_type is ConsumeType.CONSUME_ACTIVELY else "PUSH"


def _version(number: int | None) -> str:
    return "OFFLINE" if number is None else version_name(number)


def _seconds(milliseconds: int) -> str:
    return f"{milliseconds / 1000:.1f} s"


@admin_command("consumeTimeSpan")
async def consume_time_span(
    cluster: Cluster, out: Output, group: Annotated[str, option("-g --group", "The group.")], topic: Topic
) -> None:
    """Show for each queue of a topic the times of its messages, and how long a group is behind."""
    columns = (
        Column("#Broker Name", "brokerName", of="message_queue.broker_name"),
        Column("#QID", "queueId", of="message_queue.queue_id"),
        Column("#First", "first", _last_time, of="min_time_stamp"),
        Column("#Last", "last", _last_time, of="max_time_stamp"),
        Column("#Consumed", "consumed", _last_time, of="consume_time_stamp"),
        Column("#Behind", "behindMs", _seconds, is_number=True, of="delay_time"),
    )
    found = [
        span for span in await offsets.time_spans(cluster, group, topic) if span.message_queue is not None
    ]
    out.show(Report.of(Table.of("queues", found, columns)))


@admin_command("sparkCheckpoint")
async def spark_checkpoint(
    cluster: Cluster,
    out: Output,
    directory: Annotated[
        Path, option("-d --directory", "A checkpoint, or a table with a _checkpoint in it.")
    ],
    topic: Annotated[str | None, option("-t --topic", "Only this topic.")] = None,
) -> None:
    """Show the last batch of a streaming query, and how far it is behind the brokers in each queue."""
    checkpoint = checkpoints.read(directory)
    if checkpoint.problem:
        raise click.UsageError(f"{directory}: {checkpoint.problem}")
    names = sorted({queue.topic for queue in checkpoint.positions if topic in (None, queue.topic)})
    gaps = [gap for name in names for gap in await checkpoints.gaps(cluster, checkpoint, name)]
    unread = [gap.unread for gap in gaps if gap.unread is not None]
    columns = (
        _TOPIC,
        *_QUEUE[:2],
        Column("#Position", "position", of="position"),
        Column("#Broker Offset", "brokerOffset", _if_told, of="end"),
        Column("#Unread", "unread", _if_told, of="unread"),
        Column("#Lost", "lost", _if_told, of="lost"),
    )
    facts = Facts(
        [
            Fact("Planned Batch", "batch", checkpoint.batch),
            Fact("Planned At", "plannedMs", checkpoint.planned_ms or 0, _last_time),
            Fact("Committed Batch", "committedBatch", checkpoint.committed_batch, _if_told),
            Fact("Committed At", "committedMs", checkpoint.committed_ms or 0, _last_time),
            Fact("Unread", "unread", sum(unread)),
            Fact("Unread In A Queue, Least", "minUnread", min(unread, default=0)),
            Fact("Unread In A Queue, Most", "maxUnread", max(unread, default=0)),
        ]
    )
    out.show(Report.of(facts, Table.of("queues", gaps, columns)))


def _if_told(value: int | None) -> str:
    return _UNKNOWN if value is None else str(value)


@admin_command("brokerConsumeStats")
async def broker_consume_stats(
    cluster: Cluster,
    out: Output,
    broker: Annotated[str, option("-b --brokerAddr", "The broker, by address or name.")],
    timeout_ms: Annotated[
        int, option("-t --timeoutMillis", "The timeout in milliseconds.", click.IntRange(min=1))
    ] = 50_000,
    level: Annotated[
        int, option("-l --level", "Only queues with at least this many messages behind.", int)
    ] = 0,
    ordered_only: Annotated[bool, option("-o --order", "Only ordered topics.")] = False,
) -> None:
    """Show the lag of all groups of a broker."""
    address = await address_of(cluster, broker)
    found = await progress.of_broker(
        cluster, address, min_diff=level, ordered_only=ordered_only, timeout_s=timeout_ms / 1000
    )
    columns = (_TOPIC, Column("#Group", "group", of="group"), *_QUEUE, _DIFF, _LAST_TIME)
    total = Fact("Diff Total", "diffTotal", found.diff_total)
    out.show(Report.of(Table.of("queues", found.queues, columns), Facts([total])))


@admin_command("statsAll")
async def stats_all(
    cluster: Cluster,
    out: Output,
    active_only: Annotated[bool, flag("-a --activeTopic", "Only topics used within a day.")] = False,
    topic: Annotated[str | None, option("-t --topic", "Only this topic.")] = None,
) -> None:
    """Show rates and lag of every topic and the groups that read it."""
    found = await throughput.of_cluster(cluster, topic, active_only=active_only)
    columns = (
        Column("#Topic", "topic", of="topic"),
        Column("#Consumer Group", "group", of="group"),
        Column("#Accumulation", "accumulation", is_number=True, of="accumulation"),
        Column("#InTPS", "inTps", "{:.2f}".format, is_number=True, of="in_tps"),
        Column(
            "#OutTPS",
            "outTps",
            lambda tps: "" if tps is None else f"{tps:.2f}",
            is_number=True,
            of=lambda each: each.out_tps if each.group else None,
        ),
        Column("#InMsg24Hour", "inLastDay", is_number=True, of="in_last_day"),
        Column(
            "#OutMsg24Hour",
            "outLastDay",
            lambda number: "NO_CONSUMER" if number is None else str(number),
            is_number=True,
            of=lambda each: each.out_last_day if each.group else None,
        ),
    )
    out.show(Report.of(Table.of("topics", found, columns)))


@admin_command("startMonitoring")
async def start_monitoring(
    cluster: Cluster,
    out: Output,
    every_s: Annotated[
        float, option("--interval", "Repeat after this many seconds.", SECONDS, metavar="SECONDS")
    ] = 60.0,
    rounds: Rounds = None,
) -> None:
    """Watch all groups: their lag by topic, members with different subscriptions, queues without progress."""
    columns = (
        Column("#Group", "group", of="group"),
        Column("#Topic", "topic", of="topic"),
        Column("#Undone", "undone", is_number=True, of="undone"),
        Column("#Undone In One Queue", "undoneInOneQueue", is_number=True, of="undone_in_one_queue"),
        Column("#Delay(ms)", "delayMs", is_number=True, of="delay_ms"),
    )

    async def look() -> Report:
        lags, complaints = await monitoring.look(cluster)
        problems = [f"{each.group}: {each.text}" for each in complaints]
        return Report.of(
            Table.of("lags", lags, columns), ReportLines(problems, {"problems": list(complaints)})
        )

    await watch(out, look, every_s, rounds)
