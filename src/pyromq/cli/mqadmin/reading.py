"""Commands that print the messages of a topic or queue, and that send test messages."""

from collections import Counter
from collections.abc import AsyncIterator
from typing import Annotated, Any

import click

from pyromq.admin import messages, offsets, traces
from pyromq.admin.cluster import Cluster
from pyromq.admin.failures import NotFound
from pyromq.cli.mqadmin import shown_messages
from pyromq.cli.mqadmin.messages import charset
from pyromq.cli.mqadmin.options import Topic, option
from pyromq.cli.mqadmin.output import Output
from pyromq.cli.mqadmin.report import Column, Fact, Facts, Report, Table, plainly
from pyromq.cli.mqadmin.running import admin_command
from pyromq.cli.mqadmin.times import time
from pyromq.cluster.routes import route_addresses
from pyromq.protocol.body import MessageQueue
from pyromq.protocol.names import TOOLS_GROUP
from pyromq.protocol.properties import TAGS
from pyromq.protocol.record import StoredMessage

_Charset = Annotated[str, option("-c --charsetName", "The charset of bodies.", charset)]
_Expression = Annotated[str, option("-s --subExpression", "Only these tags, as in TagA || TagB.")]
_BEGIN_HELP = "Only messages stored at this time or later: milliseconds or yyyy-MM-dd#HH:mm:ss:SSS"
_Begin = Annotated[int | None, option("-b --beginTimestamp", _BEGIN_HELP, time)]
_End = Annotated[int | None, option("-e --endTimestamp", "Only messages stored before this time.", time)]
_RULE = "-" * 56


async def _span(
    cluster: Cluster, address: str, queue: MessageQueue, begin_ms: int | None, end_ms: int | None
) -> tuple[int, int]:
    """The offsets of a queue between two points in time."""
    begin, end = await offsets.limits(cluster, address, queue)
    if begin_ms is not None:
        begin = max(begin, await offsets.search(cluster, address, queue, begin_ms))
    if end_ms is not None:
        end = min(end, await offsets.search(cluster, address, queue, end_ms))
    return begin, end


async def _queues(
    cluster: Cluster, topic: str, broker_name: str | None, queue_id: int | None
) -> list[MessageQueue]:
    """The queues to read: all of a topic, all of one broker, or one."""
    found = [
        queue
        for queue in offsets.readable_queues(topic, await cluster.route(topic))
        if broker_name in (None, queue.broker_name) and queue_id in (None, queue.queue_id)
    ]
    if not found and broker_name is not None:
        raise NotFound(
            f"topic {topic} has no such readable queue on broker {broker_name};"
            f" `mqadmin topicRoute -l -t {topic}` shows its queues"
        )
    return found


@admin_command("printMsg")
async def print_msg(
    cluster: Cluster,
    out: Output,
    topic: Topic,
    body_charset: _Charset = "UTF-8",
    expression: _Expression = "*",
    begin_ms: _Begin = None,
    end_ms: _End = None,
    with_body: Annotated[bool, option("-d --printBody", "Whether to print bodies.")] = True,
    routed_as: Annotated[
        str | None, option("-l --lmqParentTopic", "Use the route of this topic instead.")
    ] = None,
) -> None:
    """Print the messages of a topic, queue by queue. With --json, one message per line."""
    route = await cluster.route(routed_as or topic)
    addresses = route_addresses(route)
    for queue in offsets.readable_queues(topic, route):
        if queue.broker_name not in addresses:
            continue
        address = addresses[queue.broker_name]
        begin, end = await _span(cluster, address, queue, begin_ms, end_ms)
        out.remark(f"minOffset={begin}, maxOffset={end}, {_described(queue)}")
        async for message in messages.read(cluster, address, queue, begin, end, expression):
            _print(out, message, queue, body_charset, with_body)
        out.remark(_RULE)


def _described(queue: MessageQueue) -> str:
    return f"MessageQueue [topic={queue.topic}, brokerName={queue.broker_name}, queueId={queue.queue_id}]"


def _print(
    out: Output, message: StoredMessage, queue: MessageQueue, body_charset: str, with_body: bool = True
) -> None:
    data = {"brokerName": queue.broker_name, **shown_messages.data(message)}
    if not with_body:
        data = {key: value for key, value in data.items() if key not in ("body", "bodyBase64")}
    out.record(data, shown_messages.line(message, queue.broker_name, body_charset, with_body=with_body))


@admin_command("printMsgByQueue")
async def print_msg_by_queue(
    cluster: Cluster,
    out: Output,
    topic: Topic,
    broker_name: Annotated[str, option("-a --brokerName", "The broker's name.")],
    queue_id: Annotated[int, option("-i --queueId", "The queue.")],
    body_charset: _Charset = "UTF-8",
    expression: _Expression = "*",
    begin_ms: _Begin = None,
    end_ms: _End = None,
    printed: Annotated[bool, option("-p --printMsg", "Print the messages.")] = False,
    with_body: Annotated[bool, option("-d --printBody", "Print the bodies too.")] = False,
    counted: Annotated[bool, option("-f --calculate", "Count the messages by tag.")] = False,
) -> None:
    """Print the messages of a queue with -p true; count them by tag with -f true."""
    if not printed and not counted:
        raise click.UsageError("nothing to do; -p true prints the messages, -f true counts them by tag")
    address = await cluster.broker_address(broker_name)
    [queue] = await _queues(cluster, topic, broker_name, queue_id)
    begin, end = await _span(cluster, address, queue, begin_ms, end_ms)
    counts: Counter[str] = Counter()
    async for message in messages.read(cluster, address, queue, begin, end, expression):
        counts[message.get(TAGS) or ""] += 1
        if printed:
            _print(out, message, queue, body_charset, with_body)
    if counted:
        for tag, count in counts.most_common():
            if tag:
                out.record({"tag": tag, "count": count}, f"Tag: {tag:<30} Count: {count}")


@admin_command("consumeMessage")
async def consume_message(
    cluster: Cluster,
    out: Output,
    topic: Topic,
    broker_name: Annotated[str | None, option("-b --brokerName", "Only this broker.")] = None,
    queue_id: Annotated[int | None, option("-i --queueId", "With -b: only this queue.")] = None,
    offset: Annotated[int | None, option("-o --offset", "With -i: start at this offset.")] = None,
    group: Annotated[str, option("-g --consumerGroup", "Read as this group.")] = TOOLS_GROUP,
    begin_ms: Annotated[int | None, option("-s --beginTimestamp", _BEGIN_HELP, time)] = None,
    end_ms: _End = None,
    count: Annotated[
        int, option("-c --MessageNumber", "The maximum number of messages.", click.IntRange(min=1))
    ] = 128,
) -> None:
    """Print messages, oldest first in each queue; no group's offsets change. With --json, one per line."""
    if queue_id is not None and broker_name is None:
        raise click.UsageError("-i needs -b: a queue is named by its broker and its number")
    if offset is not None and queue_id is None:
        raise click.UsageError("-o is an offset of one queue: it needs -b and -i")
    if begin_ms is not None and end_ms is not None and begin_ms > end_ms:
        raise click.UsageError("-s must not be later than -e")
    addresses = route_addresses(await cluster.route(topic))
    left = count
    for queue in await _queues(cluster, topic, broker_name, queue_id):
        if queue.broker_name not in addresses or not left:
            continue
        address = addresses[queue.broker_name]
        begin, end = await _span(cluster, address, queue, begin_ms, end_ms)
        begin = max(begin, offset or 0)
        found = messages.read(cluster, address, queue, begin, min(end, begin + left), group=group)
        left -= await _print_all(out, found, queue)


async def _print_all(out: Output, found: AsyncIterator[StoredMessage], queue: MessageQueue) -> int:
    count = 0
    async for message in found:
        _print(out, message, queue, "utf-8")
        count += 1
    return count


# Sending


@admin_command("sendMessage")
async def send_message(
    cluster: Cluster,
    out: Output,
    topic: Topic,
    body: Annotated[str, option("-p --body", "The body; sent as UTF-8.", str)],
    keys: Annotated[str | None, option("-k --key", "Its keys, separated by spaces.")] = None,
    tags: Annotated[str | None, option("-c --tags", "Its tag.")] = None,
    broker_name: Annotated[str | None, option("-b --broker", "Send it to this broker, by name.")] = None,
    queue_id: Annotated[int | None, option("-i --qid", "With -b: send it to this queue.")] = None,
    traced: Annotated[
        bool, option("-m --msgTraceEnable", "Also write a trace, for queryMsgTraceById.")
    ] = False,
) -> None:
    """Send a message."""
    if queue_id is not None and broker_name is None:
        raise click.UsageError("-i needs -b: a queue is named by its broker and its number")
    send = traces.send_traced if traced else messages.send
    receipt = await send(
        cluster, topic, body.encode(), tags=tags, keys=keys, broker_name=broker_name, queue_id=queue_id
    )
    columns = (
        Column("#Broker Name", "brokerName"),
        Column("#QID", "queueId"),
        Column("#Send Result", "sendResult"),
        Column("#MsgId", "msgId"),
    )
    row = (receipt.broker_name, receipt.queue_id, receipt.status, receipt.message_id)
    out.show(Report.of(Table("messages", columns, [row]), whole=receipt))


@admin_command("checkMsgSendRT")
async def check_msg_send_rt(
    cluster: Cluster,
    out: Output,
    topic: Topic,
    amount: Annotated[int, option("-a --amount", "Messages.", click.IntRange(min=1))] = 100,
    size_bytes: Annotated[int, option("-s --size", "The size of each message in bytes.")] = 128,
) -> None:
    """Measure send times to each queue of a topic in turn."""
    found = [trial async for trial in messages.trials(cluster, topic, amount, size_bytes)]
    columns = (
        Column("#Broker Name", "brokerName"),
        Column("#QID", "queueId"),
        Column("#Send Result", "sendResult", plainly),
        Column("#RT", "rtMs", "{:.1f}".format),
    )
    rows = [(each.queue.broker_name, each.queue.queue_id, each.is_sent, each.took_ms) for each in found]
    average = messages.average_ms([each.took_ms for each in found])
    facts = Facts([Fact("Avg RT", "averageRtMs", average, "{:.2f}".format)])
    out.show(Report.of(Table("sends", columns, rows), facts))
    _fail_unless_sent([each for each in found if not each.is_sent])


@admin_command("sendMsgStatus")
async def send_msg_status(
    cluster: Cluster,
    out: Output,
    topic: Annotated[str, option("-b --brokerName", "The broker's name, and the topic named after it.")],
    size_bytes: Annotated[int, option("-s --messageSize", "Bytes.")] = 128,
    count: Annotated[int, option("-c --count", "Messages.", click.IntRange(min=1))] = 50,
) -> None:
    """Send test messages to the topic that is named after a broker."""
    failed = []
    async for trial in messages.trials(cluster, topic, count, size_bytes):
        data: dict[str, Any] = {"rtMs": trial.took_ms, "sent": trial.is_sent, "remark": trial.remark}
        data["queueId"] = trial.queue.queue_id
        out.record(data, f"rt={trial.took_ms:.1f}ms, SendResult={trial.remark} {_described(trial.queue)}")
        if not trial.is_sent:
            failed.append(trial)
    _fail_unless_sent(failed)


def _fail_unless_sent(failed: list[messages.Trial]) -> None:
    if failed:
        raise click.ClickException(
            f"{len(failed)} messages were not sent: {failed[0].remark};"
            " `mqadmin clusterList` shows the brokers"
        )
