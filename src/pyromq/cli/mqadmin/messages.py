"""Commands about single messages: by id, by key, by offset."""

from collections.abc import Sequence
from ipaddress import ip_address
from typing import Annotated

import click

from pyromq.admin import brokers, connections, messages, tracks
from pyromq.admin.cluster import Cluster
from pyromq.admin.failures import NotFound
from pyromq.admin.tracks import MessageTrack
from pyromq.cli.mqadmin import shown_messages
from pyromq.cli.mqadmin.options import IGNORED, Topic, flag, option
from pyromq.cli.mqadmin.output import Output
from pyromq.cli.mqadmin.report import Column, Fact, Facts, Part, Report, ReportLines, Table, done, plainly
from pyromq.cli.mqadmin.running import address_of, admin_command
from pyromq.cli.mqadmin.times import time, to_milliseconds
from pyromq.cluster.routes import route_addresses
from pyromq.protocol.body import MessageQueue
from pyromq.protocol.message import shown_message_id
from pyromq.protocol.message_id import decode_unique_key
from pyromq.protocol.names import CHECK_MAX_TIME_TOPIC
from pyromq.protocol.record import StoredMessage


def charset(name: str) -> str:
    """The name of a known charset."""
    try:
        "".encode(name.strip())
    except LookupError:
        raise click.BadParameter(f"unknown charset {name}; try UTF-8 or GBK") from None
    return name.strip()


_RoutedAs = Annotated[str | None, option("-c --cluster", "Use the route of this topic or cluster instead.")]
_Format = Annotated[str, option("-f --bodyFormat", "The charset of the body.", charset)]
_Group = Annotated[str | None, option("-g --consumerGroup", "With -d: have this group consume the message.")]
_Client = Annotated[str | None, option("-d --clientId", "With -g: the member that consumes it.")]


@admin_command("queryMsgById")
async def query_msg_by_id(
    cluster: Cluster,
    out: Output,
    topic: Topic,
    ids: Annotated[str, option("-i --msgId", "One id or several: id1,id2")],
    group: _Group = None,
    client_id: _Client = None,
    again: Annotated[bool, option("-s --sendMessage", "Send the message again.")] = False,
    _unit: Annotated[str | None, option("-u --unitName", IGNORED)] = None,
    body_charset: _Format = "UTF-8",
    routed_as: _RoutedAs = None,
) -> None:
    """Show a message by its id: the offset id, or the unique id that its producer gave it."""
    for message_id in filter(None, map(str.strip, ids.split(","))):
        message = await messages.by_id(cluster, routed_as or topic, message_id)
        if again:
            receipt = await messages.resend(cluster, message)
            out.record(
                receipt, f"resent msg. originalMsgId={message_id} {receipt.status} {receipt.message_id}"
            )
        else:
            await _show_or_deliver(cluster, out, message, group, client_id, body_charset)


@admin_command("queryMsgByUniqueKey")
async def query_msg_by_unique_key(
    cluster: Cluster,
    out: Output,
    topic: Topic,
    message_id: Annotated[str, option("-i --msgId", "The unique id that its producer gave it.")],
    group: _Group = None,
    client_id: _Client = None,
    all_of_them: Annotated[bool, flag("-a --showAll", "Show every message with that id, up to 32.")] = False,
    routed_as: _RoutedAs = None,
) -> None:
    """Show a message by its unique id, and which groups have consumed it."""
    found = await messages.by_unique_key(cluster, topic, message_id, routed_as)
    if not found:
        raise NotFound(
            f"topic {topic} has no message with unique id {message_id}; for an offset id, try queryMsgById"
        )
    for message in found if all_of_them else found[:1]:
        await _show_or_deliver(cluster, out, message, group, client_id)


@admin_command("decodeMessageId")
async def decode_message_id(
    cluster: Cluster,
    out: Output,
    message_id: Annotated[str, option("-i --messageId", "The unique id that its producer gave it.")],
) -> None:
    """Show what is in the unique id of a message: the address and process of its producer, and the time.

    An id holds the time since its month began. The month is taken to be the current one, or the one before.
    """
    key = decode_unique_key(message_id.strip(), cluster.clock.now_ms())
    out.show(
        Report.of(
            Facts(
                [
                    Fact("ip", "ip", str(ip_address(key.ip))),
                    Fact("date", "time", key.sent_ms, to_milliseconds),
                    Fact("pid", "pid", key.pid),
                    Fact("number", "number", key.counter),
                ],
                form="{0}={1}",
            )
        )
    )


async def _show_or_deliver(
    cluster: Cluster,
    out: Output,
    message: StoredMessage,
    group: str | None,
    client_id: str | None,
    body_charset: str = "utf-8",
) -> None:
    if (group is None) != (client_id is None):
        raise click.UsageError("-g and -d must be given together: the group and its member")
    if group is not None and client_id is not None:
        await _deliver(cluster, out, message, group, client_id)
        return
    out.show(_shown(message, body_charset, await tracks.of_message(cluster, message)))


async def _deliver(cluster: Cluster, out: Output, message: StoredMessage, group: str, client_id: str) -> None:
    running = await connections.running_info(cluster, group, client_id)
    if not connections.is_push(running):
        raise click.ClickException(f"{client_id} is not a push consumer: it cannot be given messages")
    result = await messages.consume_directly(cluster, group, client_id, message)
    told = {
        "order": result.order,
        "autoCommit": result.auto_commit,
        "consumeResult": result.consume_result,
        "remark": result.remark,
        "spentTimeMills": result.spent_time_mills,
    }
    described = ", ".join(f"{key}={plainly(value)}" for key, value in told.items())
    out.show(done(f"ConsumeMessageDirectlyResult [{described}]", **told))


def _shown(message: StoredMessage, body_charset: str, found: Sequence[MessageTrack]) -> Report:
    lines = [
        f"MessageTrack [consumerGroup={each.consumer_group}, trackType={each.track_type},"
        f" exceptionDesc={each.remark or 'null'}]"
        for each in found
    ]
    parts: list[Part] = [
        Facts(shown_messages.facts(message, body_charset), shown_messages.LABEL_LINE),
        ReportLines(lines or ["WARN: No Consumer"]),
    ]
    return Report(parts, {"message": shown_messages.data(message), "tracks": list(found)})


@admin_command("queryMsgByKey")
async def query_msg_by_key(
    cluster: Cluster,
    out: Output,
    topic: Topic,
    key: Annotated[str, option("-k --msgKey", "The key.")],
    begin_ms: Annotated[
        int, option("-b --beginTimestamp", "Only messages stored at this time or later.", time)
    ] = 0,
    end_ms: Annotated[
        int | None, option("-e --endTimestamp", "Only messages stored at this time or earlier.", time)
    ] = None,
    limit: Annotated[int, option("-m --maxNum", "The maximum number of messages.")] = 64,
    routed_as: _RoutedAs = None,
) -> None:
    """List the messages that have a key."""
    last_ms = messages.FOREVER_MS if end_ms is None else end_ms
    found = await messages.by_key(cluster, topic, key, limit, begin_ms, last_ms, routed_as)
    columns = (
        Column("#Message ID", "msgId"),
        Column("#QID", "queueId"),
        Column("#Offset", "queueOffset"),
    )
    rows = [(shown_message_id(each), each.queue_id, each.queue_offset) for each in found]
    whole = {"messages": [shown_messages.data(each) for each in found]}
    out.show(Report.of(Table("messages", columns, rows), whole=whole))


@admin_command("queryMsgByOffset")
async def query_msg_by_offset(
    cluster: Cluster,
    out: Output,
    topic: Topic,
    broker_name: Annotated[str, option("-b --brokerName", "The broker's name.")],
    queue_id: Annotated[int, option("-i --queueId", "The queue.")],
    offset: Annotated[int, option("-o --offset", "The offset.")],
    body_charset: _Format = "UTF-8",
) -> None:
    """Show the message at an offset of a queue, and which groups have consumed it."""
    queue = MessageQueue(topic, broker_name, queue_id)
    message = await messages.at_queue_offset(cluster, queue, offset)
    out.show(_shown(message, body_charset, await tracks.of_message(cluster, message)))


@admin_command("queryCq")
async def query_cq(
    cluster: Cluster,
    out: Output,
    topic: Topic,
    queue_id: Annotated[int, option("-q --queue", "The queue.")],
    index: Annotated[int, option("-i --index", "The first entry.")],
    count: Annotated[int, option("-c --count", "The number of entries.")] = 10,
    broker: Annotated[
        str | None,
        option("-b --broker", "The broker, by address or name; without it, the first broker of the topic."),
    ] = None,
    group: Annotated[
        str | None, option("-g --consumer", "Show whether the filter of this group matches.")
    ] = None,
) -> None:
    """Show entries of a consume queue."""
    if broker is not None:
        address = await address_of(cluster, broker)
    else:
        address = next(iter(route_addresses(await cluster.route(topic)).values()))
    found = await brokers.consume_queue(cluster, address, topic, queue_id, index, count, group)
    ends = Facts(
        [
            Fact("max", "maxQueueIndex", found.max_queue_index),
            Fact("min", "minQueueIndex", found.min_queue_index),
            Fact(
                "subscription", "subscription", found.subscription_data and found.subscription_data.sub_string
            ),
            Fact("filter", "filterData", found.filter_data),
        ]
    )
    columns = (
        Column("#idx", "index"),
        Column("#PhysicOffset", "physicOffset"),
        Column("#PhysicSize", "physicSize"),
        Column("#TagsCode", "tagsCode"),
        Column("#Eval", "eval"),
        Column("#Msg", "msg"),
    )
    start = max(index, found.min_queue_index)
    rows = [
        (start + number, each.physic_offset, each.physic_size, each.tags_code, each.eval, each.msg)
        for number, each in enumerate(found.queue_data)
    ]
    out.show(Report.of(ends, Table("entries", columns, rows)))


@admin_command("resumeCheckHalfMessage")
async def resume_check_half_message(
    cluster: Cluster,
    out: Output,
    message_id: Annotated[str, option("-i --msgId", "The id of the message that was kept.")],
    topic: Annotated[str, option("-t --topic", "The topic that holds the message.")] = CHECK_MAX_TIME_TOPIC,
) -> None:
    """Check a transaction again that was given up after too many checks."""
    message = await messages.by_id(cluster, topic, message_id)
    await messages.resume_check(cluster, message)
    out.show(done(f"the transaction of {message_id} is checked again", msgId=message_id, topic=topic))
