"""Commands about clients: the members of groups, and what consumers report about themselves."""

from typing import Any

import click

from pyromq.admin import connections
from pyromq.admin.cluster import Cluster
from pyromq.cli.mqadmin.output import Output
from pyromq.cli.mqadmin.report import Column, Fact, Facts, Lines, Report, Table
from pyromq.cli.mqadmin.running import TEXT, address_of, admin_command
from pyromq.cli.mqadmin.times import to_milliseconds, to_seconds
from pyromq.protocol.bodies.clients import Connection
from pyromq.protocol.bodies.consumers import ConsumerRunningInfo
from pyromq.protocol.codes import version_name

_GROUP = click.option("-g", "--consumerGroup", "group", type=TEXT, required=True, help="The group.")
_ASKED = click.option("-b", "--brokerAddr", "broker", type=TEXT, help="Ask this broker, by address or name.")


@admin_command("consumerConnection")
@_GROUP
@_ASKED
async def consumer_connection(cluster: Cluster, out: Output, group: str, broker: str | None) -> None:
    """List the members of a consumer group and their subscriptions."""
    address = None if broker is None else await address_of(cluster, broker)
    found = await connections.consumers(cluster, group, address)
    subscriptions = Table(
        "subscriptions",
        (Column("#Topic", "topic"), Column("#SubExpression", "expression")),
        [(each.topic, each.sub_string) for _, each in sorted(found.subscription_table.items())],
        title="Below is subscription:",
    )
    facts = Facts(
        [
            Fact("ConsumeType", "consumeType", found.consume_type),
            Fact("MessageModel", "messageModel", found.message_model),
            Fact("ConsumeFromWhere", "consumeFromWhere", found.consume_from_where),
        ]
    )
    out.show(Report.of(_members(found.connection_set), subscriptions, facts))


def _members(found: list[Connection]) -> Table:
    columns = (
        Column("#ClientId", "clientId"),
        Column("#ClientAddr", "clientAddr"),
        Column("#Language", "language"),
        Column("#Version", "version", version_name),
    )
    rows = [(each.client_id, each.client_addr, each.language, each.version) for each in found]
    return Table("connections", columns, rows)


@admin_command("producerConnection")
@click.option("-g", "--producerGroup", "group", type=TEXT, required=True, help="The group.")
@click.option("-t", "--topic", type=TEXT, required=True, help="A topic it produces for.")
async def producer_connection(cluster: Cluster, out: Output, group: str, topic: str) -> None:
    """List the members of a producer group."""
    out.show(Report.of(_members((await connections.producers(cluster, group, topic)).connection_set)))


@admin_command("producer")
@click.option("-b", "--broker", type=TEXT, required=True, help="The broker, by address or name.")
async def producer(cluster: Cluster, out: Output, broker: str) -> None:
    """List every producer of a broker."""
    found = await connections.all_producers(cluster, await address_of(cluster, broker))
    columns = (
        Column("#Group", "group"),
        Column("#ClientId", "clientId"),
        Column("#ClientAddr", "clientAddr"),
        Column("#Language", "language"),
        Column("#Version", "version", version_name),
        Column("#Last Heartbeat", "lastHeartbeat", to_milliseconds),
    )
    rows = [
        (group, each.client_id, each.remote_ip, each.language, each.version, each.last_update_timestamp)
        for group, members in sorted(found.items())
        for each in members
    ]
    out.show(Report.of(Table("producers", columns, rows)))


@admin_command("consumerStatus")
@_GROUP
@click.option(
    "-i", "--clientId", "client_id", type=TEXT, help="Only this member, with everything it reports."
)
@_ASKED
@click.option("-s", "--jstack", "stacks", is_flag=True, help="Include the stacks of its threads.")
async def consumer_status(
    cluster: Cluster, out: Output, group: str, client_id: str | None, broker: str | None, stacks: bool
) -> None:
    """Show what the members of a group report, and whether their subscriptions agree."""
    address = None if broker is None else await address_of(cluster, broker)
    if client_id is not None:
        running = await connections.running_info(cluster, group, client_id, stacks=stacks, address=address)
        out.show(_everything(running))
        return
    members = await connections.status(cluster, group, stacks=stacks, address=address)
    now_ms = cluster.clock.now_ms()
    columns = (
        Column("#Index", "index"),
        Column("#ClientId", "clientId"),
        Column("#Version", "version", version_name),
        Column("#Queues", "queues", lambda count: "no answer" if count is None else str(count)),
    )
    rows = [
        (
            index,
            member.client_id,
            member.version,
            None
            if member.running is None
            else len(member.running.mq_table) + len(member.running.mq_pop_table),
        )
        for index, member in enumerate(members, 1)
    ]
    is_alike = connections.subscribe_alike(members, now_ms)
    complaints = [text for member in members for text in connections.complaints(member, now_ms)]
    lines = (
        ["Same subscription in the same group of consumer", "Rebalance OK", *complaints]
        if is_alike
        else ["WARN: Different subscription in the same group of consumer!!!", *complaints]
    )
    if not out.as_json:
        lines.append(
            f"`mqadmin consumerStatus -g {group} -i CLIENTID` shows everything that a member reports"
        )
    verdict = Lines(
        lines,
        {
            "sameSubscription": is_alike,
            "complaints": complaints,
            "running": {member.client_id: _with_text_keys(member.running) for member in members},
        },
    )
    out.show(Report.of(Table("members", columns, rows), verdict))


def _with_text_keys(running: ConsumerRunningInfo | None) -> dict[str, Any] | None:
    """JSON keys cannot be objects, so the tables by queue become lists."""
    if running is None:
        return None
    return {
        "properties": running.properties,
        "subscriptions": running.subscription_set,
        "queues": [{"queue": queue, "held": held} for queue, held in sorted(running.mq_table.items())],
        "popQueues": [{"queue": queue, "held": held} for queue, held in sorted(running.mq_pop_table.items())],
        "topics": running.status_table,
        "userConsumerInfo": running.user_consumer_info,
        "jstack": running.jstack,
    }


def _everything(running: ConsumerRunningInfo) -> Report:
    subscriptions = Table(
        "subscriptions",
        (Column("#Topic", "topic"), Column("#SubExpression", "expression")),
        [(each.topic, each.sub_string) for each in running.subscription_set],
        title="#Consumer Subscription#",
    )
    queues = Table(
        "queues",
        (
            Column("#Topic", "topic"),
            Column("#Broker Name", "brokerName"),
            Column("#QID", "queueId"),
            Column("#Consumer Offset", "consumerOffset"),
            Column("#Cached", "cached"),
            Column("#Cached MiB", "cachedMiB"),
            Column("#Locked", "locked"),
            Column("#Dropped", "dropped"),
            Column("#Last Pull", "lastPull", to_seconds),
            Column("#Last Consume", "lastConsume", to_seconds),
        ),
        [
            (
                queue.topic,
                queue.broker_name,
                queue.queue_id,
                held.commit_offset,
                held.cached_msg_count,
                held.cached_msg_size_in_mi_b,
                held.locked,
                held.droped,
                held.last_pull_timestamp,
                held.last_consume_timestamp,
            )
            for queue, held in sorted(running.mq_table.items())
        ],
        title="#Consumer MQ Detail#",
    )
    speeds = Table(
        "topics",
        (
            Column("#Topic", "topic"),
            Column("#Pull RT", "pullRt", "{:.2f}".format),
            Column("#Pull TPS", "pullTps", "{:.2f}".format),
            Column("#Consume RT", "consumeRt", "{:.2f}".format),
            Column("#ConsumeOK TPS", "consumeOkTps", "{:.2f}".format),
            Column("#ConsumeFailed TPS", "consumeFailedTps", "{:.2f}".format),
            Column("#ConsumeFailedMsgsInHour", "consumeFailedMsgs"),
        ),
        [
            (
                topic,
                each.pull_rt,
                each.pull_tps,
                each.consume_rt,
                each.consume_ok_tps,
                each.consume_failed_tps,
                each.consume_failed_msgs,
            )
            for topic, each in sorted(running.status_table.items())
        ],
        title="#Consumer RT&TPS#",
    )
    properties = Facts.of(running.properties, "{0:<40}: {1}", "properties", "#Consumer Properties#")
    stacks = [Lines(["#Consumer jstack#", *running.jstack.splitlines()])] if running.jstack else []
    return Report([properties, subscriptions, queues, speeds, *stacks], _with_text_keys(running))


def _held(running: ConsumerRunningInfo) -> int:
    return len(running.mq_table) + len(running.mq_pop_table)
