"""Commands about clients: the members of groups, and what consumers report about themselves."""

from typing import Annotated, Any

from pyromq.admin import connections, diagnosis
from pyromq.admin.cluster import Cluster
from pyromq.cli.mqadmin.options import Topic, flag, option
from pyromq.cli.mqadmin.output import Output
from pyromq.cli.mqadmin.report import Column, Fact, Facts, Report, ReportLines, Table
from pyromq.cli.mqadmin.running import address_of, admin_command
from pyromq.cli.mqadmin.times import to_milliseconds, to_seconds
from pyromq.protocol.codes import version_name
from pyromq.protocol.requests.inspection import ConsumerRunningInfo
from pyromq.protocol.requests.membership import ClientConnection

_Group = Annotated[str, option("-g --consumerGroup", "The group.")]
_Asked = Annotated[str | None, option("-b --brokerAddr", "Ask this broker, by address or name.")]


@admin_command("consumerConnection")
async def consumer_connection(cluster: Cluster, out: Output, group: _Group, broker: _Asked = None) -> None:
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


def _members(found: list[ClientConnection]) -> Table:
    columns = (
        Column("#ClientId", "clientId", of="client_id"),
        Column("#ClientAddr", "clientAddr", of="client_addr"),
        Column("#Language", "language", of="language"),
        Column("#Version", "version", version_name, of="version"),
    )
    return Table.of("connections", found, columns)


@admin_command("producerConnection")
async def producer_connection(
    cluster: Cluster,
    out: Output,
    group: Annotated[str, option("-g --producerGroup", "The group.")],
    topic: Annotated[str, option("-t --topic", "A topic it produces for.")],
) -> None:
    """List the members of a producer group."""
    out.show(Report.of(_members((await connections.producers(cluster, group, topic)).connection_set)))


@admin_command("producer")
async def producer(
    cluster: Cluster,
    out: Output,
    broker: Annotated[str, option("-b --broker", "The broker, by address or name.")],
) -> None:
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
async def consumer_status(
    cluster: Cluster,
    out: Output,
    group: _Group,
    client_id: Annotated[
        str | None, option("-i --clientId", "Only this member, with everything it reports.")
    ] = None,
    broker: _Asked = None,
    stacks: Annotated[bool, flag("-s --jstack", "Include the stacks of its threads.")] = False,
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
        (index, member.client_id, member.version, None if member.running is None else _held(member.running))
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
    verdict = ReportLines(
        lines,
        {
            "sameSubscription": is_alike,
            "complaints": complaints,
            "running": {member.client_id: _with_text_keys(member.running) for member in members},
        },
    )
    out.show(Report.of(Table("members", columns, rows), verdict))


@admin_command("getConsumerStatus")
async def get_consumer_status(
    cluster: Cluster,
    out: Output,
    group: Annotated[str, option("-g --group", "The group.")],
    topic: Topic,
    client_id: Annotated[str | None, option("-i --originClientId", "Only this member.")] = None,
) -> None:
    """Show the offsets that the members of a group report, as they are now in the clients."""
    found = await connections.positions(cluster, topic, group, client_id)
    columns = (
        Column("#clientId", "clientId"),
        Column("#brokerName", "brokerName"),
        Column("#queueId", "queueId"),
        Column("#offset", "offset"),
    )
    rows = [
        (member, queue.broker_name, queue.queue_id, offset)
        for member, offsets in sorted(found.items())
        for queue, offset in sorted(offsets.items(), key=lambda each: (each[0].broker_name, each[0].queue_id))
    ]
    out.show(Report.of(Table("offsets", columns, rows)))


@admin_command("diagnoseGroup")
async def diagnose_group(cluster: Cluster, out: Output, group: _Group) -> None:
    """Diagnose a group: members that disagree, are stuck or silent, queues without an owner."""
    found = await diagnosis.of_group(cluster, group)
    columns = (Column("#Fault", "fault", of="fault"), Column("#Text", "text", of="text"))
    lines = [] if found.findings else [f"{len(found.members)} members, nothing is wrong with group {group}"]
    facts = {"members": [member.client_id for member in found.members], "owners": found.owners}
    parts = [Table.of("findings", found.findings, columns)] if found.findings or out.as_json else []
    out.show(Report([*parts, ReportLines(lines, facts | {"subscriptions": found.subscriptions})]))


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
    queues = Table.of(
        "queues",
        sorted(running.mq_table.items()),
        (
            Column("#Topic", "topic", of=lambda row: row[0].topic),
            Column("#Broker Name", "brokerName", of=lambda row: row[0].broker_name),
            Column("#QID", "queueId", of=lambda row: row[0].queue_id),
            Column("#Consumer Offset", "consumerOffset", of=lambda row: row[1].commit_offset),
            Column("#Cached", "cached", of=lambda row: row[1].cached_msg_count),
            Column("#Cached MiB", "cachedMiB", of=lambda row: row[1].cached_msg_size_in_mi_b),
            Column("#Locked", "locked", of=lambda row: row[1].locked),
            Column("#Dropped", "dropped", of=lambda row: row[1].droped),
            Column("#Last Pull", "lastPull", to_seconds, of=lambda row: row[1].last_pull_timestamp),
            Column("#Last Consume", "lastConsume", to_seconds, of=lambda row: row[1].last_consume_timestamp),
        ),
        title="#Consumer MQ Detail#",
    )
    speeds = Table.of(
        "topics",
        sorted(running.status_table.items()),
        (
            Column("#Topic", "topic", of=lambda row: row[0]),
            Column("#Pull RT", "pullRt", "{:.2f}".format, of=lambda row: row[1].pull_rt),
            Column("#Pull TPS", "pullTps", "{:.2f}".format, of=lambda row: row[1].pull_tps),
            Column("#Consume RT", "consumeRt", "{:.2f}".format, of=lambda row: row[1].consume_rt),
            Column("#ConsumeOK TPS", "consumeOkTps", "{:.2f}".format, of=lambda row: row[1].consume_ok_tps),
            Column(
                "#ConsumeFailed TPS",
                "consumeFailedTps",
                "{:.2f}".format,
                of=lambda row: row[1].consume_failed_tps,
            ),
            Column(
                "#ConsumeFailedMsgsInHour", "consumeFailedMsgs", of=lambda row: row[1].consume_failed_msgs
            ),
        ),
        title="#Consumer RT&TPS#",
    )
    properties = Facts.of(running.properties, "{0:<40}: {1}", "properties", "#Consumer Properties#")
    stacks = [ReportLines(["#Consumer jstack#", *running.jstack.splitlines()])] if running.jstack else []
    return Report([properties, subscriptions, queues, speeds, *stacks], _with_text_keys(running))


def _held(running: ConsumerRunningInfo) -> int:
    return len(running.mq_table) + len(running.mq_pop_table)
