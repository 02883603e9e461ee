"""Commands that reset the offsets of groups: to a time, to the end, to those of another group."""

from typing import Any

import click

from pyromq.admin import offsets
from pyromq.admin.cluster import Cluster
from pyromq.admin.offsets import TO_THE_END, Moved
from pyromq.cli.mqadmin.output import Output
from pyromq.cli.mqadmin.report import Column, Lines, Report, Table, done, plainly
from pyromq.cli.mqadmin.running import COUNT, TEXT, address_of, admin_command
from pyromq.cli.mqadmin.times import time, to_milliseconds
from pyromq.protocol.bodies.queues import MessageQueue

_GROUP = click.option("-g", "--group", type=TEXT, required=True, help="The group.")
_TOPIC = click.option("-t", "--topic", type=TEXT, required=True, help="The topic.")
_FORCE = click.option(
    "-f",
    "--force",
    type=bool,
    default=True,
    show_default=True,
    help="Also move forward; false only moves back.",
)


@admin_command("resetOffsetByTime")
@_GROUP
@_TOPIC
@click.option(
    "-s",
    "--timestamp",
    "timestamp_ms",
    type=time,
    required=True,
    help="now, milliseconds, or yyyy-MM-dd#HH:mm:ss:SSS; -1 means the end.",
)
@_FORCE
@click.option("-c", "--cluster", "ignored", type=TEXT, help="Ignored; accepted for existing scripts.")
@click.option("-b", "--broker", type=TEXT, help="With -q: only on this broker, by address or name.")
@click.option("-q", "--queue", "queue_id", type=COUNT, help="With -b: only this queue.")
@click.option("-o", "--offset", type=COUNT, help="With -b and -q: this offset instead of a time.")
async def reset_offset_by_time(
    cluster: Cluster,
    out: Output,
    group: str,
    topic: str,
    timestamp_ms: int,
    force: bool,
    broker: str | None,
    queue_id: int | None,
    offset: int | None,
    **_: Any,
) -> None:
    """Reset the offsets of a group to a point in time, whether its members are running or not."""
    if (broker is None) != (queue_id is None):
        raise click.UsageError("-b and -q must be given together: the broker and its queue")
    if offset is not None and queue_id is None:
        raise click.UsageError("-o is an offset of one queue: it needs -b BROKER and -q QUEUE")
    if broker is not None and queue_id is not None:
        await _reset_queue(cluster, out, group, topic, timestamp_ms, broker, queue_id, offset)
        return
    moved = await offsets.reset(cluster, group, topic, timestamp_ms, force=force)
    heading = (
        f"start reset consumer offset by specified, group[{group}], topic[{topic}], force[{plainly(force)}],"
        f" timestamp(string)[{to_milliseconds(timestamp_ms)}], timestamp(long)[{timestamp_ms}]"
    )
    facts = {"group": group, "topic": topic, "timestamp": timestamp_ms, "force": force}
    out.show(Report.of(Lines([heading], facts), _moves(moved)))


async def _reset_queue(
    cluster: Cluster,
    out: Output,
    group: str,
    topic: str,
    timestamp_ms: int,
    broker: str,
    queue_id: int,
    offset: int | None,
) -> None:
    address = await address_of(cluster, broker)
    queue = MessageQueue(topic, await cluster.broker_name(address), queue_id)
    if offset is None:
        offset = await offsets.search(cluster, address, queue, timestamp_ms)
    await offsets.reset_queue(cluster, address, group, queue, offset)
    facts = {"group": group, "topic": topic, "queueId": queue_id, "broker": address, "offset": offset}
    out.show(done(f"reset consumer offset to {offset}", **facts))


def _moves(moved: list[Moved]) -> Table:
    columns = [Column("#brokerName", "brokerName"), Column("#queueId", "queueId")]
    if any(each.timestamp_offset is not None for each in moved):
        columns += [
            Column("#brokerOffset", "brokerOffset"),
            Column("#consumerOffset", "consumerOffset"),
            Column("#timestampOffset", "timestampOffset"),
            Column("#resetOffset", "offset"),
        ]
        rows: list[tuple[Any, ...]] = [
            (
                each.queue.broker_name,
                each.queue.queue_id,
                each.broker_offset,
                each.consumer_offset,
                each.timestamp_offset,
                each.offset,
            )
            for each in moved
        ]
    else:
        columns.append(Column("#offset", "offset"))
        rows = [(each.queue.broker_name, each.queue.queue_id, each.offset) for each in moved]
    return Table("queues", columns, rows)


@admin_command("skipAccumulatedMessage")
@_GROUP
@_TOPIC
@_FORCE
@click.option("-c", "--cluster", "ignored", type=TEXT, help="Ignored; accepted for existing scripts.")
async def skip_accumulated_message(
    cluster: Cluster, out: Output, group: str, topic: str, force: bool, **_: Any
) -> None:
    """Reset a group to the end of all queues: it skips all messages that it has not consumed."""
    out.show(Report.of(_moves(await offsets.reset(cluster, group, topic, TO_THE_END, force=force))))


@admin_command("cloneGroupOffset")
@click.option("-s", "--srcGroup", "source", type=TEXT, required=True, help="The group to copy from.")
@click.option("-d", "--destGroup", "target", type=TEXT, required=True, help="The group to copy to.")
@_TOPIC
@click.option("-o", "--offline", "ignored", type=TEXT, help="Ignored; accepted for existing scripts.")
async def clone_group_offset(
    cluster: Cluster, out: Output, source: str, target: str, topic: str, **_: Any
) -> None:
    """Copy the offsets of a group in a topic to another group."""
    cloned = await offsets.clone(cluster, source, target, topic)
    queues = [
        {"brokerName": queue.broker_name, "queueId": queue.queue_id, "offset": offset}
        for queue, offset in cloned.items()
    ]
    text = f"clone group offset success. srcGroup[{source}], destGroup=[{target}], topic[{topic}]"
    out.show(done(text, srcGroup=source, destGroup=target, topic=topic, queues=queues))
