"""Commands about the lake tier: what is where, and how far uploads are behind."""

from pyromq.admin.cluster import Cluster
from pyromq.admin.tier import TierStatus, status_of
from pyromq.cli.mqadmin.options import Broker, ClusterName
from pyromq.cli.mqadmin.output import Output
from pyromq.cli.mqadmin.report import Fact, Facts, ReportLines
from pyromq.cli.mqadmin.running import addresses_of, admin_command, each_broker
from pyromq.cli.mqadmin.times import to_seconds
from pyromq.cli.mqadmin.watching import Every, Rounds, watch

_LINE = "  {0:<24}: {1}"


@admin_command("tierStatus")
async def tier_status(
    cluster: Cluster,
    out: Output,
    broker: Broker = None,
    cluster_name: ClusterName = None,
    every_s: Every = None,
    rounds: Rounds = None,
) -> None:
    """Show what brokers have on their disks and in their lake tier, how far uploads are behind, and how many
    requests the object store gets."""
    addresses = await addresses_of(cluster, broker, cluster_name, replicas=True)
    await watch(out, lambda: each_broker(cluster, addresses, _part), every_s, rounds)


def _part(address: str, figures: dict[str, str]) -> Facts | ReportLines:
    status = status_of(figures)
    if status is None:
        return ReportLines([f"{address} has no tier"], {address: {"hasTier": False}})
    return Facts(_facts(status), _LINE, address, address)


def _facts(status: TierStatus) -> list[Fact]:
    ratio = f", {status.ratio:.1f} times smaller" if status.ratio is not None else ""
    writer = status.writer or "not claimed yet"
    return [
        Fact("place", "place", status.place),
        Fact("log on the disk", "local", [status.log_start, status.log_end], _range),
        Fact("log in the tier", "tier", [status.tier_begin, status.tier_end], _range),
        Fact("oldest message", "firstMs", status.first_ms, _time),
        Fact("not uploaded yet", "lagBytes", status.lag_bytes, _bytes),
        Fact("waiting for", "lagSeconds", status.lag_s, lambda value: f"{value:,} s"),
        Fact("segments", "segments", status.segments),
        Fact("size of the log", "logBytes", status.log_bytes, _bytes),
        Fact("size in the store", "packedBytes", status.packed_bytes, lambda value: _bytes(value) + ratio),
        Fact("requests that write", "writes", status.writes, _number),
        Fact("requests that read", "reads", status.reads, _number),
        Fact("written", "writtenBytes", status.written_bytes, _bytes),
        Fact("fetched", "readBytes", status.read_bytes, _bytes),
        Fact("epoch", "epoch", status.epoch),
        Fact("written by", "writer", writer, lambda value: f"{value}{', this broker' * status.is_owner}"),
        Fact("problem", "problem", status.problem, lambda value: value or "none"),
    ]


def _range(value: list[int]) -> str:
    return f"{value[0]:,} to {value[1]:,}"


def _number(value: int) -> str:
    return f"{value:,}"


def _bytes(value: int) -> str:
    return f"{value:,} bytes"


def _time(value: int | None) -> str:
    return "-" if value is None else to_seconds(value)
