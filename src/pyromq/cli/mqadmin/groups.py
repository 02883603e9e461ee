"""Commands about consumer groups and their settings."""

from pathlib import Path
from typing import Annotated, Any

import click
import msgspec

from pyromq.admin import groups
from pyromq.admin.cluster import Cluster
from pyromq.cli.mqadmin.files import read_list
from pyromq.cli.mqadmin.options import Broker, ClusterName, option
from pyromq.cli.mqadmin.output import Output
from pyromq.cli.mqadmin.report import Fact, Facts, Lines, Report, plainly
from pyromq.cli.mqadmin.running import addresses_of, admin_command, one_of
from pyromq.protocol.bodies.assignments import MessageRequestMode, SetMessageRequestModeRequestBody
from pyromq.protocol.bodies.groups import GroupRetryPolicy, SubscriptionGroupConfig

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


def _retry_policy(text: str) -> GroupRetryPolicy:
    try:
        return msgspec.json.decode(text, type=GroupRetryPolicy)
    except msgspec.MsgspecError as problem:
        raise click.BadParameter(f"{text!r} is not a retry policy: {problem}") from problem


@admin_command("updateSubGroup")
async def update_sub_group(
    cluster: Cluster,
    out: Output,
    *,
    broker: Broker = None,
    cluster_name: ClusterName = None,
    group: _Group,
    enabled: Annotated[bool, option("-s --consumeEnable", "Whether the group may consume.")] = True,
    from_min: Annotated[
        bool, option("-m --consumeFromMinEnable", "Whether a new group starts at the first message.")
    ] = False,
    broadcast: Annotated[
        bool, option("-d --consumeBroadcastEnable", "Whether the group may broadcast.")
    ] = False,
    orderly: Annotated[
        bool, option("-o --consumeMessageOrderly", "Whether the group consumes in order.")
    ] = False,
    retry_queues: Annotated[int, option("-q --retryQueueNums", "The number of retry queues.")] = 1,
    retry_max: Annotated[
        int,
        option("-r --retryMaxTimes", "How often a message is retried before it becomes a dead letter.", int),
    ] = 16,
    retry_policy: Annotated[
        GroupRetryPolicy | None,
        option(
            "-p --groupRetryPolicy",
            'The delays between retries: {"type":"EXPONENTIAL","exponentialRetryPolicy":'
            '{"initial":5000,"max":7200000,"multiplier":2}} or'
            ' {"type":"CUSTOMIZED","customizedRetryPolicy":{"next":[1000,5000,10000]}}',
            _retry_policy,
            metavar="JSON",
        ),
    ] = None,
    broker_id: Annotated[int, option("-i --brokerId", "The id of the broker to read from.")] = 0,
    slow_id: Annotated[
        int,
        option(
            "-w --whichBrokerWhenConsumeSlowly",
            "The id of the broker to read from when the first one is slow.",
        ),
    ] = 1,
    notify: Annotated[
        bool,
        option("-a --notifyConsumerIdsChanged", "Whether members are notified when others join or leave."),
    ] = True,
    attributes: Annotated[
        str | None, option("--attributes", "Attributes to set and remove: +a=b,+c=d,-e")
    ] = None,
) -> None:
    """Create or change a group, on one broker or on all masters of a cluster."""
    addresses = await addresses_of(cluster, broker, cluster_name)
    wanted = SubscriptionGroupConfig(
        group_name=group,
        consume_enable=enabled,
        consume_from_min_enable=from_min,
        consume_broadcast_enable=broadcast,
        consume_message_orderly=orderly,
        retry_queue_nums=retry_queues,
        retry_max_times=retry_max,
        group_retry_policy=retry_policy or GroupRetryPolicy(),
        broker_id=broker_id,
        which_broker_when_consume_slowly=slow_id,
        notify_consumer_ids_changed_enable=notify,
        attributes=_attributes(attributes),
    )
    await groups.put(cluster, addresses, wanted)
    values: dict[str, Any] = msgspec.to_builtins(wanted)
    described = ", ".join(f"{key}={plainly(value)}" for key, value in values.items())
    lines = [f"create subscription group to {address} success." for address in addresses]
    lines.append(f"SubscriptionGroupConfig{{{described}}}")
    out.show(Report.of(Lines(lines, {"addresses": addresses, "groupConfig": wanted})))


def _attributes(text: str | None) -> dict[str, str]:
    """java: the sign stays on the key, and a removed key has no value."""
    found: dict[str, str] = {}
    for entry in filter(None, (text or "").split(",")):
        key, equals, value = entry.strip().partition("=")
        if not (key.startswith("+") and equals) and not (key.startswith("-") and not equals):
            raise click.BadParameter(f"{entry!r}: expected +key=value or -key", param_hint="--attributes")
        found[key] = value
    return found


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
    out.show(Report.of(Lines(lines, {"addresses": addresses, "groups": names})))


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
    out.show(Report.of(Lines(lines, {"group": group, "addresses": addresses})))


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
    out.show(Report.of(Lines(lines, {"addresses": addresses, "mode": wanted})))
