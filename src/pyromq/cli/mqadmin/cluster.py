"""Commands about the cluster: its brokers side by side."""

import asyncio
from collections.abc import Callable
from typing import Annotated, Any

import click

from pyromq.admin import brokers, messages
from pyromq.admin.brokers import BrokerStatus
from pyromq.admin.cluster import Cluster
from pyromq.cli.mqadmin.options import SECONDS, flag, option
from pyromq.cli.mqadmin.output import Output
from pyromq.cli.mqadmin.report import Column, Report, Table, plainly
from pyromq.cli.mqadmin.running import admin_command
from pyromq.cli.mqadmin.times import to_seconds
from pyromq.cli.mqadmin.watching import watch

_HOUR_MS = 3_600_000
_ALL = "6"
_PERMISSIONS = {_ALL: "RW", "4": "R", "2": "W"}
_MEMBER = (
    Column("#Cluster Name", "clusterName"),
    Column("#Broker Name", "brokerName"),
)


@admin_command("clusterList")
async def cluster_list(
    cluster: Cluster,
    out: Output,
    totals: Annotated[
        bool, flag("-m --moreStats", "Show the number of messages yesterday and today.")
    ] = False,
    every_s: Annotated[
        float | None, option("-i --interval", "Repeat after this many seconds.", SECONDS)
    ] = None,
    cluster_name: Annotated[str | None, option("-c --clusterName", "Only this cluster.")] = None,
) -> None:
    """List the brokers with their versions, rates and disk usage."""

    async def look() -> Report:
        found = await brokers.statuses(cluster, cluster_name)
        return Report.of(_totals(found) if totals else _overview(found, cluster.clock.now_ms()))

    await watch(out, look, every_s)


def _overview(found: list[BrokerStatus], now_ms: int) -> Table:
    columns: tuple[Column, ...] = (
        *_MEMBER,
        Column("#BID", "brokerId"),
        Column("#Addr", "address"),
        Column("#Version", "version"),
        Column("#InTPS(LOAD)", "in", _if_told("{tps:.2f}({queued},{waitMs}ms)"), is_number=True),
        Column(
            "#OutTPS(LOAD)",
            "out",
            _if_told("{tps:.2f}({queued},{waitMs}ms|{acksQueued},{acksWaitMs}ms)"),
            is_number=True,
        ),
        Column(
            "#Timer(Progress)",
            "timer",
            _if_told("{readBehind}-{offsetBehind}({congestedTenThousands:.1f}w, {inTps:.1f}, {outTps:.1f})"),
        ),
        Column("#PCWait(ms)", "pageCacheWaitMs", is_number=True),
        Column("#Hour", "hour", lambda hours: "" if hours is None else f"{hours:.2f}"),
        Column("#SPACE", "space", lambda ratio: "" if ratio is None else f"{ratio:.4f}"),
        Column("#ACTIVATED", "activated", plainly, is_number=True),
    )
    rows: list[tuple[Any, ...]] = [
        (
            each.member.cluster,
            each.member.broker_name,
            each.member.broker_id,
            each.member.address,
            *((None,) * 7 if each.figures is None else _load(each, now_ms)),
            each.text("brokerActive") == "true",
        )
        for each in found
    ]
    permissions = [each.text("brokerPermission") for each in found]
    if any(each not in ("", _ALL) for each in permissions):  # Apache's tool has no such column
        columns = *columns, Column("#PERM", "permission")
        rows = [(*row, _PERMISSIONS.get(each, each)) for row, each in zip(rows, permissions, strict=True)]
    return Table("brokers", columns, rows)


def _if_told(form: str) -> Callable[[dict[str, float] | None], str]:
    return lambda figures: "" if figures is None else form.format(**figures)


def _load(status: BrokerStatus, now_ms: int) -> tuple[Any, ...]:
    number = status.number

    def count(figure: str) -> int:
        return int(number(figure))

    sending = {
        "tps": number("putTps"),
        "queued": count("sendThreadPoolQueueSize"),
        "waitMs": count("sendThreadPoolQueueHeadWaitTimeMills"),
    }
    reading = {
        "tps": number("getTransferredTps"),
        "queued": count("pullThreadPoolQueueSize"),
        "waitMs": count("pullThreadPoolQueueHeadWaitTimeMills"),
        "acksQueued": count("ackThreadPoolQueueSize"),
        "acksWaitMs": count("ackThreadPoolQueueHeadWaitTimeMills"),
    }
    timer = {
        "readBehind": count("timerReadBehind"),
        "offsetBehind": count("timerOffsetBehind"),
        "congestedTenThousands": number("timerCongestNum") / 10_000,
        "inTps": number("timerEnqueueTps"),
        "outTps": number("timerDequeueTps"),
    }
    earliest_ms = number("earliestMessageTimeStamp")
    return (
        status.text("brokerVersionDesc"),
        sending,
        reading,
        timer,
        count("pageCacheLockTimeMills"),
        (now_ms - earliest_ms) / _HOUR_MS if earliest_ms > 0 else 0.0,
        number("commitLogDiskRatio"),
    )


def _totals(found: list[BrokerStatus]) -> Table:
    columns = (
        *_MEMBER,
        Column("#InTotalYest", "inYesterday", is_number=True),
        Column("#OutTotalYest", "outYesterday", is_number=True),
        Column("#InTotalToday", "inToday", is_number=True),
        Column("#OutTotalToday", "outToday", is_number=True),
    )

    def total(status: BrokerStatus, which: str, until: str, since: str) -> int:
        return int(status.number(f"msg{which}Total{until}") - status.number(f"msg{which}Total{since}"))

    rows: list[tuple[Any, ...]] = [
        (
            each.member.cluster,
            each.member.broker_name,
            total(each, "Put", "TodayMorning", "YesterdayMorning"),
            total(each, "Get", "TodayMorning", "YesterdayMorning"),
            total(each, "Put", "TodayNow", "TodayMorning"),
            total(each, "Get", "TodayNow", "TodayMorning"),
        )
        for each in found
    ]
    return Table("brokers", columns, rows)


@admin_command("clusterRT")
async def cluster_rt(
    cluster: Cluster,
    out: Output,
    amount: Annotated[int, option("-a --amount", "Messages.", click.IntRange(min=1))] = 100,
    size_bytes: Annotated[int, option("-s --size", "The size of each message in bytes.")] = 128,
    cluster_name: Annotated[str | None, option("-c --cluster", "Only this cluster.")] = None,
    as_log: Annotated[bool, option("-p --printLog", "Print log lines instead of a table.")] = False,
    room: Annotated[str, option("-m --machineRoom", "The machine room to name in log lines.")] = "noname",
    every_s: Annotated[float, option("-i --interval", "Seconds between rounds.", SECONDS)] = 10.0,
    rounds: Annotated[
        int | None,
        option("--rounds", "Stop after this many rounds; without it, Ctrl-C stops.", click.IntRange(min=1)),
    ] = None,
) -> None:
    """Measure send times to every broker, in rounds. The messages go to the topic named after the broker."""
    done = 0
    while True:
        rows = [
            (
                member.cluster,
                member.broker_name,
                *await _timed(cluster, member.broker_name, amount, size_bytes),
            )
            for member in await cluster.masters(cluster_name)
        ]
        if as_log:
            now = to_seconds(cluster.clock.now_ms())
            for name, broker, rt_ms, ok, failed in rows:
                data = {"time": now, "room": room, "clusterName": name, "brokerName": broker, "rtMs": rt_ms}
                data |= {"successCount": ok, "failCount": failed}
                out.record(data, f"{now}|{room}|{name}|{broker}|{rt_ms:.0f}")
        else:
            columns = (
                *_MEMBER,
                Column("#RT", "rtMs", "{:.2f}".format),
                Column("#successCount", "successCount"),
                Column("#failCount", "failCount"),
            )
            out.show(Report.of(Table("brokers", columns, rows)))
        done += 1
        if rounds is not None and done >= rounds:
            return
        await asyncio.sleep(every_s)


async def _timed(cluster: Cluster, topic: str, amount: int, size_bytes: int) -> tuple[float, int, int]:
    trials = [trial async for trial in messages.trials(cluster, topic, amount, size_bytes)]
    sent = sum(trial.is_sent for trial in trials)
    return messages.average_ms([trial.took_ms for trial in trials]), sent, len(trials) - sent
