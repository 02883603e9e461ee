"""Commands about brokers: runtime figures, settings, and cleaning up."""

from collections.abc import Awaitable, Callable, Collection
from typing import Annotated, Any

import click

from pyromq.admin import brokers
from pyromq.admin.brokers import BrokerStatus
from pyromq.admin.cluster import BrokerMember, Cluster
from pyromq.admin.failures import NoNameServer, NotFound, nearest
from pyromq.admin.rates import Rates
from pyromq.cli.mqadmin.options import Broker, ClusterName, flag, option
from pyromq.cli.mqadmin.output import Output
from pyromq.cli.mqadmin.report import Column, Facts, Report, ReportLines, Table
from pyromq.cli.mqadmin.running import address_of, addresses_of, admin_command, one_of
from pyromq.cli.mqadmin.watching import Every, Rounds, rate_text, sparkline, watch

_CONFIG_LINE = "{0:<50}=  {1}"
_COUNTERS = {"in": "msgPutTotalTodayNow", "out": "msgGetTotalTodayNow", "log": "commitLogMaxOffset"}


@admin_command("brokerStatus")
async def broker_status(
    cluster: Cluster,
    out: Output,
    broker: Broker = None,
    cluster_name: ClusterName = None,
    every_s: Every = None,
    rounds: Rounds = None,
) -> None:
    """Show the runtime metrics of brokers; with --watch, their current rates."""
    one_of(broker, cluster_name)
    rates: Rates[tuple[str, str]] = Rates()

    async def look() -> Report:
        if every_s is not None:
            return _movement(await _statuses(cluster, broker, cluster_name), rates, cluster.clock.monotonic())
        if broker is not None:
            figures = await brokers.runtime_info(cluster, await address_of(cluster, broker))
            return Report.of(Facts.of(figures, "{0:<32}: {1}"))
        found = await brokers.statuses(cluster, cluster_name)
        parts = [
            Facts.of(each.figures, f"{each.member.address:<24} {{0:<32}}: {{1}}", each.member.address)
            if each.figures is not None
            else ReportLines([f"{each.member.address:<24} does not answer"], {each.member.address: None})
            for each in found
        ]
        return Report(parts)

    await watch(out, look, every_s, rounds)


@admin_command("halfMessages")
async def half_messages(
    cluster: Cluster,
    out: Output,
    broker: Broker = None,
    cluster_name: ClusterName = None,
) -> None:
    """Show how many transactions are open at each broker, the age of the oldest, and the busiest topics.

    Only masters report this. Apache's brokers do not."""
    columns = (
        Column("#Broker Name", "brokerName"),
        Column("#Addr", "address"),
        Column("#Open", "open", is_number=True),
        Column("#Oldest", "oldestAgeMs", _seconds, is_number=True),
        Column("#Topics", "topics", ", ".join),
    )
    rows: list[tuple[Any, ...]] = []
    for each in await _statuses(cluster, broker, cluster_name):
        count, age_ms = each.text("halfMessageCount"), each.text("halfMessageOldestAgeMs")
        rows.append(
            (
                each.member.broker_name,
                each.member.address,
                int(count) if count.isdigit() else None,
                int(age_ms) if age_ms.isdigit() else None,
                each.text("halfMessageTopics").split(),
            )
        )
    out.show(Report.of(Table("brokers", columns, rows)))


def _seconds(age_ms: int | None) -> str:
    return "-" if age_ms is None else f"{age_ms / 1000:.1f} s"


async def _statuses(cluster: Cluster, broker: str | None, cluster_name: str | None) -> list[BrokerStatus]:
    if broker is None:
        return await brokers.statuses(cluster, cluster_name)
    address = await address_of(cluster, broker)
    figures = await brokers.runtime_info(cluster, address)
    (name,) = await cluster.known([cluster.broker_name(address)])
    return [BrokerStatus(BrokerMember("", name or address, 0, address), figures)]


def _movement(found: list[BrokerStatus], rates: Rates[tuple[str, str]], now_s: float) -> Report:
    counters = {
        (each.member.address, which): each.number(figure)
        for each in found
        if each.figures is not None
        for which, figure in _COUNTERS.items()
    }
    rates.read(counters, now_s)
    columns = (
        Column("#Broker Name", "brokerName"),
        Column("#Addr", "address"),
        Column("#In/s", "inPerSecond", rate_text, is_number=True),
        Column("#In Trend", "inTrend", sparkline),
        Column("#Out/s", "outPerSecond", rate_text, is_number=True),
        Column("#Out Trend", "outTrend", sparkline),
        Column("#Log KiB/s", "logBytesPerSecond", _kibibytes, is_number=True),
        Column("#Dispatch Behind", "dispatchBehindBytes", is_number=True),
        Column("#SPACE", "space"),
        Column("#ACTIVATED", "activated"),
    )
    rows: list[tuple[Any, ...]] = []
    for each in found:
        address = each.member.address
        rows.append(
            (
                each.member.broker_name,
                address,
                rates.rate((address, "in")),
                rates.history((address, "in")),
                rates.rate((address, "out")),
                rates.history((address, "out")),
                rates.rate((address, "log")),
                None if each.figures is None else int(each.number("dispatchBehindBytes")),
                None if each.figures is None else each.number("commitLogDiskRatio"),
                each.text("brokerActive") == "true",
            )
        )
    return Report.of(Table("brokers", columns, rows))


def _kibibytes(bytes_per_second: float | None) -> str:
    return rate_text(None if bytes_per_second is None else bytes_per_second / 1024)


# Settings


@admin_command("getBrokerConfig")
async def get_broker_config(
    cluster: Cluster,
    out: Output,
    broker: Broker = None,
    cluster_name: ClusterName = None,
    key: Annotated[str | None, option("-k --key", "Only settings whose name contains this.")] = None,
) -> None:
    """Show the settings of one broker, or of all brokers of a cluster."""
    parts = []
    for address, title in (await _titles(cluster, broker, cluster_name)).items():
        settings = await brokers.config(cluster, address)
        chosen = {
            name: value for name, value in settings.items() if key is None or key.lower() in name.lower()
        }
        if key is not None and not chosen:
            hint = nearest(key, settings, "`mqadmin getBrokerConfig` without -k shows all settings")
            raise NotFound(f"broker {address} has no setting whose name contains {key}; {hint}")
        parts.append(Facts.of(chosen, _CONFIG_LINE, address, title))
    out.show(Report(parts))


async def _titles(cluster: Cluster, broker: str | None, cluster_name: str | None) -> dict[str, str]:
    """The title of each broker that -b or -c select, by its address."""
    one_of(broker, cluster_name)
    if broker is not None:
        address = await address_of(cluster, broker)
        return {address: f"============{address}============"}
    roles = {True: "Master", False: "Slave"}
    return {
        member.address: f"============{roles[member.is_master]}: {member.address}============"
        for member in await cluster.members(cluster_name)
    }


@admin_command("updateBrokerConfig")
async def update_broker_config(
    cluster: Cluster,
    out: Output,
    *,
    broker: Broker = None,
    cluster_name: ClusterName = None,
    replicas: Annotated[bool, option("-a --updateAllBroker", "Also on replicas.")] = False,
    key: Annotated[str, option("-k --key", "The setting.")],
    value: Annotated[str, option("-v --value", "Its new value.")],
) -> None:
    """Change a setting of running brokers. The answer names the members of their groups that keep theirs."""
    addresses = await addresses_of(cluster, broker, cluster_name)
    try:
        members = await brokers.of_same_groups(cluster, addresses)
    except NoNameServer:  # they alone know who else is in the group
        members = []
    others = [each for each in members if each.address not in addresses]
    if replicas:
        addresses, others = [*addresses, *(each.address for each in others)], []
    remarks = await brokers.update_config(cluster, addresses, key, value)
    lines = [f"update broker config success, {address}" for address in addresses]
    lines += [f"{address}: {remark}" for address, remark in remarks.items()]
    if others:
        left_out = ", ".join(f"{each.broker_name}/{each.broker_id} ({each.address})" for each in others)
        lines.append(f"not changed, but may take over after a fail-over (-a true changes them): {left_out}")
    values = {
        "key": key,
        "value": value,
        "addresses": addresses,
        "remarks": remarks,
        "notChanged": [each.address for each in others],
    }
    out.show(Report.of(ReportLines(lines, values)))


@admin_command("drainBroker")
async def drain_broker(
    cluster: Cluster,
    out: Output,
    broker_name: Annotated[str, option("-b --brokerName", "The name of the broker.")],
    undo: Annotated[bool, flag("-u --undo", "Make it writable again.")] = False,
) -> None:
    """Make a broker and its replicas read-only (brokerPermission=4): producers leave, consumers stay.

    It lasts through restarts and fail-over, until --undo. `mqadmin clusterList` shows it."""
    members = await brokers.set_drained(cluster, broker_name, is_drained=not undo)
    word = "writable" if undo else "read-only"
    lines = [f"{each.broker_name}/{each.broker_id} ({each.address}) is {word}" for each in members]
    values = {"brokerName": broker_name, "addresses": [each.address for each in members]}
    out.show(Report.of(ReportLines(lines, {**values, "isDrained": not undo})))


@admin_command("setCommitLogReadAheadMode")
async def set_commit_log_read_ahead_mode(
    cluster: Cluster,
    out: Output,
    *,
    broker: Broker = None,
    cluster_name: Annotated[str | None, option("-c --clusterName", "All brokers of this cluster.")] = None,
    mode: Annotated[
        str,
        option("-m --commitLogReadAheadMode", "0 reads ahead, 1 does not.", click.Choice(["0", "1"])),
    ],
) -> None:
    """Switch reading ahead in the commit log on or off, until the next start of the broker."""
    parts: list[ReportLines] = []
    for address, title in (await _titles(cluster, broker, cluster_name)).items():
        remark = await brokers.set_read_ahead(cluster, address, mode == "0")
        line = f"commitLog set readAhead mode rstStr{remark or ''}"
        parts.append(ReportLines([title, line], {address: {"mode": mode, "remark": remark}}))
    out.show(Report(parts))


@admin_command("exportPopRecord")
async def export_pop_record(
    cluster: Cluster,
    out: Output,
    broker: Broker = None,
    cluster_name: Annotated[str | None, option("-c --clusterName", "All brokers of this cluster.")] = None,
    is_dry_run: Annotated[bool, option("-d --dryRun", "Only show the brokers.")] = False,
) -> None:
    """Have brokers write their popped messages into their logs, as PyroMQ's brokers always do.

    Apache's brokers with popConsumerKVServiceEnable=true have them where PyroMQ cannot read them."""
    one_of(broker, cluster_name)
    if broker is None:
        names = {each.address: each.broker_name for each in await cluster.members(cluster_name)}
    else:
        address = await address_of(cluster, broker)
        names = {address: (await brokers.config(cluster, address))["brokerName"]}
    if not is_dry_run:
        await brokers.export_pop_records(cluster, names)
    shown = "Export broker records, brokerName={}, brokerAddr={}, dryRun={}"
    lines = [shown.format(name, address, str(is_dry_run).lower()) for address, name in names.items()]
    out.show(Report.of(ReportLines(lines, {"addresses": list(names), "isDryRun": is_dry_run})))


# Cleaning up


def _housekeeping(
    name: str, sentence: str, work: Callable[[Cluster, Collection[str]], Awaitable[list[str]]]
) -> click.Command:
    async def handler(
        cluster: Cluster, out: Output, broker: Broker = None, cluster_name: ClusterName = None
    ) -> None:
        # java: without -b and -c it is done everywhere
        if broker is None and cluster_name is None:
            addresses = [member.address for member in await cluster.masters()]
        else:
            addresses = await addresses_of(cluster, broker, cluster_name)
        done_at = await work(cluster, addresses)
        out.show(Report.of(ReportLines(["success"], {"addresses": done_at})))

    handler.__doc__ = sentence
    return admin_command(name)(handler)


clean_expired_cq = _housekeeping(
    "cleanExpiredCQ",
    "Delete consume queue entries whose messages are gone; without -b and -c, on all masters.",
    brokers.clean_expired_queues,
)
delete_expired_commit_log = _housekeeping(
    "deleteExpiredCommitLog",
    "Delete expired commit log files now; without -b and -c, on all masters.",
    brokers.delete_expired_log,
)
clean_unused_topic = _housekeeping(
    "cleanUnusedTopic",
    "Delete the consume queues of deleted topics; without -b and -c, on all masters.",
    brokers.clean_unused_topics,
)
