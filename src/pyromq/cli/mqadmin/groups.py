"""Commands about consumer groups and their settings."""

from pathlib import Path
from typing import Any

import click
import msgspec

from pyromq.admin import groups
from pyromq.admin.cluster import Cluster
from pyromq.cli.mqadmin.files import read_json
from pyromq.cli.mqadmin.output import Output
from pyromq.cli.mqadmin.report import Fact, Facts, Lines, Report, plainly
from pyromq.cli.mqadmin.running import COUNT, FILE, TEXT, addresses_of, admin_command, one_of, where_options
from pyromq.protocol.bodies.groups import GroupRetryPolicy, SubscriptionGroupConfig

_GROUP = click.option("-g", "--groupName", "group", type=TEXT, required=True, help="The group.")


@admin_command("getConsumerConfig")
@_GROUP
async def get_consumer_config(cluster: Cluster, out: Output, group: str) -> None:
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
@where_options
@_GROUP
@click.option(
    "-s", "--consumeEnable", "enabled", type=bool, default=True, help="Whether the group may consume."
)
@click.option(
    "-m",
    "--consumeFromMinEnable",
    "from_min",
    type=bool,
    default=False,
    help="Whether a new group starts at the first message.",
)
@click.option(
    "-d",
    "--consumeBroadcastEnable",
    "broadcast",
    type=bool,
    default=False,
    help="Whether the group may broadcast.",
)
@click.option(
    "-o",
    "--consumeMessageOrderly",
    "orderly",
    type=bool,
    default=False,
    help="Whether the group consumes in order.",
)
@click.option(
    "-q",
    "--retryQueueNums",
    "retry_queues",
    type=COUNT,
    default=1,
    show_default=True,
    help="The number of retry queues.",
)
@click.option(
    "-r",
    "--retryMaxTimes",
    "retry_max",
    type=int,
    default=16,
    show_default=True,
    help="How often a message is retried before it becomes a dead letter.",
)
@click.option(
    "-p",
    "--groupRetryPolicy",
    "retry_policy",
    type=_retry_policy,
    metavar="JSON",
    help='The delays between retries: {"type":"EXPONENTIAL","exponentialRetryPolicy":'
    '{"initial":5000,"max":7200000,"multiplier":2}} or'
    ' {"type":"CUSTOMIZED","customizedRetryPolicy":{"next":[1000,5000,10000]}}',
)
@click.option(
    "-i", "--brokerId", "broker_id", type=COUNT, default=0, help="The id of the broker to read from."
)
@click.option(
    "-w",
    "--whichBrokerWhenConsumeSlowly",
    "slow_id",
    type=COUNT,
    default=1,
    show_default=True,
    help="The id of the broker to read from when this one is slow.",
)
@click.option(
    "-a",
    "--notifyConsumerIdsChanged",
    "notify",
    type=bool,
    default=True,
    help="Whether members are notified when others join or leave.",
)
@click.option("--attributes", type=TEXT, help="Attributes to set and remove: +a=b,+c=d,-e")
async def update_sub_group(
    cluster: Cluster,
    out: Output,
    broker: str | None,
    cluster_name: str | None,
    group: str,
    enabled: bool,
    from_min: bool,
    broadcast: bool,
    orderly: bool,
    retry_queues: int,
    retry_max: int,
    retry_policy: GroupRetryPolicy | None,
    broker_id: int,
    slow_id: int,
    notify: bool,
    attributes: str | None,
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
@where_options
@click.option("-f", "--filename", "file", type=FILE, required=True, help="A JSON list of groups.")
async def update_sub_group_list(
    cluster: Cluster, out: Output, broker: str | None, cluster_name: str | None, file: Path
) -> None:
    """Create or change the groups in a JSON list of objects like those that `exportMetadata` writes."""
    one_of(broker, cluster_name)
    wanted = read_json(file, list[SubscriptionGroupConfig])
    addresses = await addresses_of(cluster, broker, cluster_name)
    await groups.put_many(cluster, addresses, wanted)
    lines = [f"submit batch of subscription group config to {address} success." for address in addresses]
    names = [each.group_name for each in wanted]
    out.show(Report.of(Lines(lines, {"addresses": addresses, "groups": names})))


@admin_command("deleteSubGroup")
@where_options
@_GROUP
@click.option(
    "-r", "--removeOffset", "with_offsets", type=bool, default=False, help="Also delete its offsets."
)
async def delete_sub_group(
    cluster: Cluster,
    out: Output,
    broker: str | None,
    cluster_name: str | None,
    group: str,
    with_offsets: bool,
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
