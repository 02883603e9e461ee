"""Commands about mirrors: how far they have the log of another cluster, and their promotion."""

from typing import Annotated

from pyromq.admin import mirrors
from pyromq.admin.cluster import Cluster
from pyromq.admin.mirrors import MirrorStatus
from pyromq.cli.mqadmin.options import Broker, ClusterName, flag
from pyromq.cli.mqadmin.output import Output
from pyromq.cli.mqadmin.report import Fact, Facts, Report, ReportLines
from pyromq.cli.mqadmin.running import addresses_of, admin_command, each_broker
from pyromq.cli.mqadmin.times import to_seconds
from pyromq.cli.mqadmin.watching import Every, Rounds, watch
from pyromq.protocol.requests.replication import PromoteMirrorAnswer

_LINE = "  {0:<24}: {1}"


@admin_command("mirrorStatus")
async def mirror_status(
    cluster: Cluster,
    out: Output,
    broker: Broker = None,
    cluster_name: ClusterName = None,
    every_s: Every = None,
    rounds: Rounds = None,
) -> None:
    """Show which cluster mirrors copy, and how much of its log they lack."""
    addresses = await addresses_of(cluster, broker, cluster_name, replicas=True)
    await watch(out, lambda: each_broker(cluster, addresses, _part), every_s, rounds)


def _part(address: str, figures: dict[str, str]) -> Facts | ReportLines:
    status = mirrors.status_of(figures)
    if status is None:
        return ReportLines([f"{address} is not a mirror"], {address: {"isMirror": False}})
    return Facts(_facts(status), _LINE, address, address)


def _facts(status: MirrorStatus) -> list[Fact]:
    return [
        Fact("name servers there", "mirrorOf", status.of),
        Fact("cluster", "cluster", status.cluster),
        Fact("master", "master", status.master),
        Fact("epoch", "epoch", status.epoch),
        Fact("connected", "isConnected", status.is_connected),
        Fact("log here ends at", "logEnd", status.log_end, _number),
        Fact("log there ended at", "sourceEnd", status.source_end, _number),
        Fact("behind", "behindBytes", status.behind_bytes, lambda value: f"{value:,} bytes"),
        Fact("master answered", "heardMs", status.heard_ms, _time),
        Fact("cut off here", "cut", status.cut, _range),
        Fact("problem", "problem", status.problem, lambda value: value or "none"),
    ]


@admin_command("promoteMirror")
async def promote_mirror(
    cluster: Cluster,
    out: Output,
    broker: Broker = None,
    cluster_name: ClusterName = None,
    accept_loss: Annotated[
        bool, flag("--acceptLoss", "Also if the other cluster has, or may have, messages that are not here.")
    ] = False,
) -> None:
    """Promote mirrors: they copy no longer, and their group gets its own master and accepts messages."""
    addresses = await addresses_of(cluster, broker, cluster_name, replicas=True)
    promoted = await mirrors.promote(cluster, addresses, accept_loss=accept_loss)
    out.show(
        Report([Facts(_outcome(answer), _LINE, address, address) for address, answer in promoted.items()])
    )


def _outcome(answer: PromoteMirrorAnswer) -> list[Fact]:
    missing = None if answer.source_end is None else max(0, answer.source_end - answer.log_end)
    role = "none yet, its controllers have not answered" if answer.epoch is None else None
    return [
        Fact("role", "role", role or ("master" if answer.master else "replica")),
        Fact("epoch", "epoch", answer.epoch),
        Fact("log here ends at", "logEnd", answer.log_end, _number),
        Fact("log there ended at", "sourceEnd", answer.source_end, _unknown),
        Fact("not received", "missingBytes", missing, _unknown),
        Fact("master answered", "heardMs", answer.source_heard, _time),
        Fact("remark", "remark", answer.remark, lambda value: value or "everything was received"),
    ]


def _number(value: int) -> str:
    return f"{value:,}"


def _unknown(value: int | None) -> str:
    return "not known" if value is None else f"{value:,}"


def _range(value: tuple[int, int] | None) -> str:
    return "nothing" if value is None else f"{value[0]:,} to {value[1]:,}, kept under damaged/"


def _time(value: int | None) -> str:
    return "not since the start" if not value else to_seconds(value)
