"""Commands about replication: how far replicas have their master's log."""

from typing import Annotated

from pyromq.admin import brokers, replication
from pyromq.admin.cluster import Cluster
from pyromq.cli.mqadmin.options import SECONDS, Broker, ClusterName, option
from pyromq.cli.mqadmin.output import Output
from pyromq.cli.mqadmin.report import Column, Fact, Facts, Report, ReportLines, Table, done, plainly
from pyromq.cli.mqadmin.running import address_of, addresses_of, admin_command
from pyromq.cli.mqadmin.times import to_seconds
from pyromq.cli.mqadmin.watching import watch
from pyromq.protocol.requests.replication import HARuntimeInfo

_LINE = "#{0:<24} {1}"


def _speed(bytes_per_second: int) -> str:
    return f"{bytes_per_second / 1024:.2f}"


def _status(is_in_sync: bool) -> str:
    return "OK" if is_in_sync else "Fall Behind"


_REPLICAS = (
    Column("#SlaveAddr", "address", of="addr"),
    Column("#SlaveAckOffset", "acknowledgedOffset", of="slave_ack_offset", is_number=True),
    Column("#Diff", "behindBytes", of="diff", is_number=True),
    Column("#TransferSpeed(KB/s)", "bytesPerSecond", _speed, is_number=True, of="transferred_byte_in_second"),
    Column("#Status", "isInSync", _status, of="in_sync"),
    Column("#TransferFromWhere", "nextOffset", of="transfer_from_where", is_number=True),
    Column("#BrokerId", "brokerId", of="broker_id", is_number=True),
)


@admin_command("haStatus")
async def ha_status(
    cluster: Cluster,
    out: Output,
    broker: Broker = None,
    cluster_name: ClusterName = None,
    every_s: Annotated[
        float | None, option("-i --interval", "Repeat after this many seconds.", SECONDS, metavar="SECONDS")
    ] = None,
) -> None:
    """Show the replicas of a master and how much of the log they have, or how much a replica has."""
    addresses = await addresses_of(cluster, broker, cluster_name)

    async def look() -> Report:
        found = [(each, await brokers.ha_status(cluster, each)) for each in addresses]
        return Report([part for address, status in found for part in _shown(address, status)])

    await watch(out, look, every_s)


def _shown(address: str, status: HARuntimeInfo) -> list[Facts | Table]:
    if status.master:
        facts = [
            Fact("MasterAddr", "address", address),
            Fact("MasterCommitLogMaxOffset", "logEnd", status.master_commit_log_max_offset),
            Fact("SlaveNum", "replicas", len(status.ha_connection_info)),
            Fact("InSyncSlaveNum", "inSync", status.in_sync_slave_nums),
        ]
        return [
            Facts(facts, _LINE, address),
            Table.of(f"{address}.replicas", status.ha_connection_info, _REPLICAS),
        ]
    copied = status.ha_client_runtime_info
    facts = [
        Fact("MasterAddr", "masterAddress", copied.master_addr),
        Fact("CommitLogMaxOffset", "logEnd", copied.max_offset),
        Fact("TransferSpeed(KB/s)", "bytesPerSecond", copied.transferred_byte_in_second, _speed),
        Fact("LastReadTime", "lastReadMs", copied.last_read_timestamp, to_seconds),
        Fact("LastWriteTime", "lastWriteMs", copied.last_write_timestamp, to_seconds),
        Fact("MasterFlushOffset", "masterFlushedOffset", copied.master_flush_offset),
    ]
    return [Facts(facts, _LINE, address)]


@admin_command("resetMasterFlushOffset")
async def reset_master_flush_offset(
    cluster: Cluster,
    out: Output,
    broker: Annotated[str, option("-b --brokerAddr", "The replica, by address or name.")],
    offset: Annotated[int, option("-o --offset", "The offset in the log of its master.")],
) -> None:
    """Inform a replica how far its master has flushed the log."""
    address = await address_of(cluster, broker)
    await brokers.reset_master_flush_offset(cluster, address, offset)
    out.show(done(f"reset master flush offset to {offset} success", address=address, offset=offset))


def _told(value: object) -> str:
    return "-" if value is None else plainly(value)


_MEMBERS = (
    Column("#BrokerName", "brokerName"),
    Column("#BID", "brokerId"),
    Column("#Addr", "address"),
    Column("#Role", "isMaster", lambda is_master: "master" if is_master else "replica"),
    Column("#LogEnd", "logEnd", _told, is_number=True),
    Column("#Behind", "behindBytes", _told, is_number=True),
    Column("#InSync", "isInSync", _told),
    Column("#Epoch", "epoch", _told, is_number=True),
    Column("#Follows", "follows", _told),
    Column("#Problem", "problem"),
)


@admin_command("replicationStatus")
async def replication_status(
    cluster: Cluster,
    out: Output,
    cluster_name: ClusterName = None,
    controllers: Annotated[
        str | None,
        option("-a --controllerAddress", "Controllers. Default: those in the settings of the brokers."),
    ] = None,
) -> None:
    """Show every broker group: the role of each member, whom it follows, and how far it is behind."""
    addresses = [each for each in (controllers or "").split(";") if each]
    found = await replication.pictures(cluster, cluster_name, addresses)
    rows = [
        (
            group.broker_name,
            member.broker_id,
            member.address,
            member.is_master,
            member.log_end,
            member.behind_bytes,
            member.is_in_sync,
            member.epochs[-1].epoch if member.epochs else None,
            member.follows,
            member.problem,
        )
        for group in found
        for member in group.members
    ]
    remarks = [f"{group.broker_name}: {remark}" for group in found for remark in group.remarks]
    out.show(Report.of(Table("members", _MEMBERS, rows), ReportLines(remarks, {"remarks": remarks})))
