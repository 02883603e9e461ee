"""Commands about controllers: who leads, which replicas are in sync, elections, and their settings."""

from typing import Annotated

import click

from pyromq.admin import controllers
from pyromq.admin.cluster import Cluster
from pyromq.cli.mqadmin.options import SECONDS, flag, option
from pyromq.cli.mqadmin.output import Output
from pyromq.cli.mqadmin.report import Column, Fact, Facts, Report, ReportLines, Table, done
from pyromq.cli.mqadmin.running import admin_command
from pyromq.cli.mqadmin.watching import watch
from pyromq.protocol.requests.controller import ReplicasInfo

_LINE = "#{0:<24} {1}"
_REPLICAS = (
    Column("#In Sync", "isInSync", of=lambda pair: pair[1]),
    Column("#Broker Id", "brokerId", of=lambda pair: pair[0].broker_id, is_number=True),
    Column("#Addr", "address", of=lambda pair: pair[0].broker_address),
    Column("#Alive", "isAlive", of=lambda pair: pair[0].alive),
)
_OFFERED = (
    Column("#Epoch", "logEpoch", of=lambda pair: pair[0].log_epoch, is_number=True),
    Column("#Log End", "logEnd", of=lambda pair: pair[0].log_end, is_number=True),
)


def _addresses(text: str) -> list[str]:
    found = [each.strip() for each in text.split(";") if each.strip()]
    if not found:
        raise click.BadParameter("expected host:port;host:port")
    return found


_Controllers = Annotated[
    list[str],
    option("-a --controllerAddress", "The controllers, separated by `;`.", _addresses, metavar="HOST:PORT"),
]
_BrokerName = Annotated[str, option("-bn --brokerName", "The name of the broker group.")]
_Interval = Annotated[
    float | None, option("-i --interval", "Repeat after this many seconds.", SECONDS, metavar="SECONDS")
]


@admin_command("getControllerMetaData")
async def get_controller_meta_data(cluster: Cluster, out: Output, controller: _Controllers) -> None:
    """Show which controller leads."""
    found = await controllers.metadata(cluster, controller[0])
    peers = [each for each in (found.peers or "").split(";") if each]
    facts = [
        Fact("ControllerGroup", "group", found.group),
        Fact("ControllerLeaderId", "leaderId", found.controller_leader_id),
        Fact("ControllerLeaderAddress", "leaderAddress", found.controller_leader_address),
    ]
    out.show(Report.of(Facts([*facts, Fact("Peers", "peers", peers, "; ".join)], _LINE)))


@admin_command("getSyncStateSet")
async def get_sync_state_set(
    cluster: Cluster,
    out: Output,
    controller: _Controllers,
    broker_name: Annotated[str | None, option("-b --brokerName", "The name of a broker group.")] = None,
    cluster_name: Annotated[str | None, option("-c --clusterName", "All groups of this cluster.")] = None,
    every_s: _Interval = None,
) -> None:
    """Show the master of a broker group and which replicas are in sync with it."""
    if (broker_name is None) == (cluster_name is None):
        raise click.UsageError("give either -b BROKER or -c CLUSTER")

    async def look() -> Report:
        names = (
            [broker_name]
            if broker_name is not None
            else sorted({member.broker_name for member in await cluster.members(cluster_name)})
        )
        found = await controllers.replicas(cluster, controller, names)
        return Report([part for name in sorted(found) for part in _shown(name, found[name])])

    await watch(out, look, every_s)


def _shown(name: str, info: ReplicasInfo) -> tuple[Facts, Table]:
    facts = [
        Fact("brokerName", "brokerName", name),
        Fact("MasterBrokerId", "masterBrokerId", info.master_broker_id),
        Fact("MasterAddr", "masterAddress", info.master_address),
        Fact("MasterEpoch", "masterEpoch", info.master_epoch),
        Fact("SyncStateSetEpoch", "syncStateSetEpoch", info.sync_state_set_epoch),
        Fact("SyncStateSetNums", "inSync", len(info.in_sync_replicas)),
    ]
    if info.undecided is not None:
        facts.append(Fact("Undecided", "undecided", info.undecided))
    rows = [
        *((each, True) for each in info.in_sync_replicas),
        *((each, False) for each in info.not_in_sync_replicas),
    ]
    columns = _REPLICAS if info.undecided is None else (*_REPLICAS, *_OFFERED)
    return Facts(facts, _LINE, name), Table.of(f"{name}.replicas", rows, columns)


@admin_command("electMaster")
async def elect_master(
    cluster: Cluster,
    out: Output,
    controller: _Controllers,
    broker_id: Annotated[int, option("-b --brokerId", "The id of the broker that becomes master.")],
    broker_name: _BrokerName,
    cluster_name: Annotated[str, option("-c --clusterName", "The cluster of the group.")],
) -> None:
    """Elect a replica in sync as master of its group, or choose a master if the record is lost."""
    elected = await controllers.elect_master(cluster, controller, cluster_name, broker_name, broker_id)
    facts = [
        Fact("ClusterName", "clusterName", cluster_name),
        Fact("BrokerName", "brokerName", broker_name),
        Fact("BrokerMasterAddr", "masterAddress", elected.master_address),
        Fact("MasterEpoch", "masterEpoch", elected.master_epoch),
        Fact("SyncStateSetEpoch", "syncStateSetEpoch", elected.sync_state_set_epoch),
    ]
    remarks = [elected.remark] if elected.remark else []
    out.show(Report.of(Facts(facts, _LINE), ReportLines(remarks)))


@admin_command("cleanBrokerMetadata")
async def clean_broker_metadata(
    cluster: Cluster,
    out: Output,
    controller: _Controllers,
    broker_name: _BrokerName,
    broker_ids: Annotated[
        str | None, option("-b --brokerControllerIdsToClean", "Only these ids, as 1;2;3.")
    ] = None,
    cluster_name: Annotated[str | None, option("-c --clusterName", "The cluster of the group.")] = None,
    also_living: Annotated[
        bool, flag("-l --cleanLivingBroker", "Also remove brokers that may be alive.")
    ] = False,
) -> None:
    """Remove brokers of a group, or the whole group, from the controller."""
    await controllers.clean_metadata(
        cluster,
        controller,
        broker_name,
        cluster_name=cluster_name,
        broker_ids=broker_ids,
        also_living=also_living,
    )
    out.show(done(f"clear broker {broker_name} metadata from controller success!", brokerName=broker_name))


@admin_command("getControllerConfig")
async def get_controller_config(cluster: Cluster, out: Output, controller: _Controllers) -> None:
    """Show the settings of controllers."""
    found = await controllers.config(cluster, controller)
    parts = [
        Facts.of(settings, "{0:<50}=  {1}", address, f"============{address}============")
        for address, settings in found.items()
    ]
    out.show(Report(parts))


@admin_command("updateControllerConfig")
async def update_controller_config(
    cluster: Cluster,
    out: Output,
    controller: _Controllers,
    key: Annotated[str, option("-k --key", "The key.")],
    value: Annotated[str, option("-v --value", "The value.")],
) -> None:
    """Change a setting of controllers."""
    remarks = await controllers.update_config(cluster, controller, key, value)
    lines = [f"update controller config success!{', '.join(remarks)}", f"{key} : {value}"]
    lines += [f"{address}: {remark}" for address, remark in remarks.items() if remark]
    out.show(Report.of(ReportLines(lines, {"key": key, "value": value, "addresses": list(remarks)})))


@admin_command("getBrokerEpoch")
async def get_broker_epoch(
    cluster: Cluster,
    out: Output,
    broker_name: Annotated[str | None, option("-b --brokerName", "The name of a broker group.")] = None,
    cluster_name: Annotated[str | None, option("-c --clusterName", "All brokers of this cluster.")] = None,
    every_s: _Interval = None,
) -> None:
    """Show which master wrote which part of the log of each broker."""
    if (broker_name is None) == (cluster_name is None):
        raise click.UsageError("give either -b BROKER or -c CLUSTER")

    async def look() -> Report:
        members = [
            each for each in await cluster.members(cluster_name) if broker_name in (None, each.broker_name)
        ]
        parts: list[Facts | ReportLines] = []
        for member in members:
            found = await controllers.epochs(cluster, member.address)
            facts = [
                Fact("clusterName", "clusterName", found.cluster_name),
                Fact("brokerName", "brokerName", found.broker_name),
                Fact("brokerAddr", "address", member.address),
                Fact("brokerId", "brokerId", found.broker_id),
            ]
            epochs = [[each.epoch, each.start_offset, each.end_offset] for each in found.epoch_list]
            if epochs:
                epochs[-1][2] = found.max_offset
            parts.append(Facts(facts, _LINE, member.address))
            parts.append(
                ReportLines(
                    [f"#Epoch: {epoch} from {start} to {end}" for epoch, start, end in epochs],
                    {member.address: {"epochs": epochs}},
                )
            )
        return Report(parts)

    await watch(out, look, every_s)
