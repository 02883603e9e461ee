"""Commands about consumer groups and their settings."""

from pathlib import Path
from typing import Annotated, Any

import click
import msgspec

from pyromq.admin import groups
from pyromq.admin.attributes import GROUP
from pyromq.admin.cluster import Cluster
from pyromq.cli.mqadmin.files import read_list
from pyromq.cli.mqadmin.options import Broker, ClusterName, OptionsOf, attribute_changes, option
from pyromq.cli.mqadmin.output import Output
from pyromq.cli.mqadmin.report import Fact, Facts, Report, ReportLines, plainly
from pyromq.cli.mqadmin.running import addresses_of, admin_command, one_of
from pyromq.protocol.requests.groups import SubscriptionGroupConfig
from pyromq.protocol.requests.popping import MessageRequestMode, SetMessageRequestModeRequestBody

_Group = Annotated[str, option("-g --groupName", "The group.")]


@admin_command("getConsumerConfig")
async def get_consumer_config(cluster: Cluster, out: Output, group: _Group) -> None:
    """Show the settings of a group on every master that has it."""
    parts = []
    found = await groups.configs_of(cluster, group)
    for member, config in found:
        values: dict[str, Any] = msgspec.to_builtins(config)
        parts.append(
            Facts(
                [Fact(key, key, value) for key, value in values.items()],
                "{0:<40}=  {1}",
                title=f"============================={member.cluster}:{member.broker_name}"
                "=============================",
            )
        )
    whole = [
        {"clusterName": member.cluster, "brokerName": member.broker_name, "config": config}
        for member, config in found
    ]
    out.show(Report(parts, {"brokers": whole}))


@admin_command("updateSubGroup")
async def update_sub_group(
    cluster: Cluster,
    out: Output,
    *,
    broker: Broker = None,
    cluster_name: ClusterName = None,
    group: _Group,
    settings: Annotated[dict[str, Any], OptionsOf(GROUP)],
    attributes: Annotated[
        str | None, option("--attributes", "Attributes to set and remove: +a=b,+c=d,-e")
    ] = None,
) -> None:
    """Create or change a group, on one broker or on all masters of a cluster."""
    addresses = await addresses_of(cluster, broker, cluster_name)
    wanted = SubscriptionGroupConfig(group_name=group, attributes=attribute_changes(attributes), **settings)
    await groups.put(cluster, addresses, wanted)
    values: dict[str, Any] = msgspec.to_builtins(wanted)
    described = ", ".join(f"{key}={plainly(value)}" for key, value in values.items())
    lines = [f"create subscription group to {address} success." for address in addresses]
    lines.append(f"SubscriptionGroupConfig{{{described}}}")
    out.show(Report.of(ReportLines(lines, {"addresses": addresses, "groupConfig": wanted})))


@admin_command("updateSubGroupList")
async def update_sub_group_list(
    cluster: Cluster,
    out: Output,
    *,
    broker: Broker = None,
    cluster_name: ClusterName = None,
    file: Annotated[Path, option("-f --filename", "A JSON list of groups, or a file of `exportMetadata`.")],
) -> None:
    """Create or change the groups in a JSON list, or in a file that `exportMetadata -b` wrote."""
    one_of(broker, cluster_name)
    wanted = read_list(file, SubscriptionGroupConfig, "subscriptionGroupTable")
    addresses = await addresses_of(cluster, broker, cluster_name)
    await groups.put_many(cluster, addresses, wanted)
    lines = [f"submit batch of subscription group config to {address} success." for address in addresses]
    names = [each.group_name for each in wanted]
    out.show(Report.of(ReportLines(lines, {"addresses": addresses, "groups": names})))


@admin_command("deleteSubGroup")
async def delete_sub_group(
    cluster: Cluster,
    out: Output,
    *,
    broker: Broker = None,
    cluster_name: ClusterName = None,
    group: _Group,
    with_offsets: Annotated[bool, option("-r --removeOffset", "Also delete its offsets.")] = False,
) -> None:
    """Delete a group; with -c, also its retry and dead-letter topics."""
    addresses = await addresses_of(cluster, broker, cluster_name)
    await groups.delete(cluster, addresses, group, with_offsets=with_offsets)
    where = f"broker [{addresses[0]}]" if broker else f"cluster [{cluster_name}]"
    lines = [f"delete subscription group [{group}] from {where} success."]
    if cluster_name is not None:
        await groups.delete_leftovers(cluster, group, cluster_name)
        lines.append(f"delete retry and dead-letter topics of [{group}] success.")
    out.show(Report.of(ReportLines(lines, {"group": group, "addresses": addresses})))


@admin_command("setConsumeMode")
async def set_consume_mode(
    cluster: Cluster,
    out: Output,
    *,
    broker: Broker = None,
    cluster_name: ClusterName = None,
    topic: Annotated[str, option("-t --topicName", "The topic.")],
    group: _Group,
    mode: Annotated[str, option("-m --mode", "How the group reads it.", click.Choice(["PULL", "POP"]))],
    shared_queues: Annotated[
        int, option("-q --popShareQueueNum", "Number of queues of other members that each member also pops.")
    ] = 0,
) -> None:
    """Set whether a group pulls or pops a topic."""
    addresses = await addresses_of(cluster, broker, cluster_name)
    wanted = SetMessageRequestModeRequestBody(
        consumer_group=group, topic=topic, mode=MessageRequestMode(mode), pop_share_queue_num=shared_queues
    )
    await groups.set_mode(cluster, addresses, wanted)
    lines = [f"set consume mode to {address} success." for address in addresses]
    lines.append(f"topic[{topic}] group[{group}] consume mode[{mode}] popShareQueueNum[{shared_queues}]")
    out.show(Report.of(ReportLines(lines, {"addresses": addresses, "mode": wanted})))
