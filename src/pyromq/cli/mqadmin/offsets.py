"""Commands that reset the offsets of groups: to a time, to the end, to those of another group."""

from typing import Annotated

import click

from pyromq.admin import offsets, resets
from pyromq.admin.cluster import Cluster
from pyromq.admin.offsets import TO_THE_END, Moved
from pyromq.cli.mqadmin.options import IGNORED, Topic, option
from pyromq.cli.mqadmin.output import Output
from pyromq.cli.mqadmin.report import Column, Report, ReportLines, Table, done, plainly
from pyromq.cli.mqadmin.running import address_of, admin_command
from pyromq.cli.mqadmin.times import time, to_milliseconds

_Group = Annotated[str, option("-g --group", "The group.")]
_Force = Annotated[bool, option("-f --force", "Also move forward; false only moves back.")]


@admin_command("resetOffsetByTime")
async def reset_offset_by_time(
    cluster: Cluster,
    out: Output,
    group: _Group,
    topic: Topic,
    timestamp_ms: Annotated[
        int,
        option("-s --timestamp", "now, milliseconds, or yyyy-MM-dd#HH:mm:ss:SSS; -1 means the end.", time),
    ],
    force: _Force = True,
    _ignored: Annotated[str | None, option("-c --cluster", IGNORED)] = None,
    broker: Annotated[
        str | None, option("-b --broker", "With -q: only on this broker, by address or name.")
    ] = None,
    queue_id: Annotated[int | None, option("-q --queue", "With -b: only this queue.")] = None,
    offset: Annotated[
        int | None, option("-o --offset", "With -b and -q: this offset instead of a time.")
    ] = None,
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
    out.show(Report.of(ReportLines([heading], facts), _moves(moved)))


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
    planned = await resets.moves(
        cluster,
        group,
        topic,
        time_ms=None if timestamp_ms == TO_THE_END or offset is not None else timestamp_ms,
        offset=offset,
        broker_name=await cluster.broker_name(address),
        queue_id=queue_id,
    )
    for made in await resets.perform(cluster, group, planned):
        facts = {"group": group, "topic": topic, "queueId": queue_id, "broker": address}
        out.show(done(f"reset consumer offset to {made.wanted}", **facts, offset=made.wanted))


def _moves(moved: list[Moved]) -> Table:
    columns = [
        Column("#brokerName", "brokerName", of="queue.broker_name"),
        Column("#queueId", "queueId", of="queue.queue_id"),
    ]
    if any(each.timestamp_offset is not None for each in moved):
        columns += [
            Column("#brokerOffset", "brokerOffset", of="broker_offset"),
            Column("#consumerOffset", "consumerOffset", of="consumer_offset"),
            Column("#timestampOffset", "timestampOffset", of="timestamp_offset"),
            Column("#resetOffset", "offset", of="offset"),
        ]
    else:
        columns.append(Column("#offset", "offset", of="offset"))
    return Table.of("queues", moved, columns)


@admin_command("skipAccumulatedMessage")
async def skip_accumulated_message(
    cluster: Cluster,
    out: Output,
    group: _Group,
    topic: Topic,
    force: _Force = True,
    _ignored: Annotated[str | None, option("-c --cluster", IGNORED)] = None,
) -> None:
    """Reset a group to the end of all queues: it skips all messages that it has not consumed."""
    out.show(Report.of(_moves(await offsets.reset(cluster, group, topic, TO_THE_END, force=force))))


@admin_command("cloneGroupOffset")
async def clone_group_offset(
    cluster: Cluster,
    out: Output,
    source: Annotated[str, option("-s --srcGroup", "The group to copy from.")],
    target: Annotated[str, option("-d --destGroup", "The group to copy to.")],
    topic: Topic,
    _ignored: Annotated[str | None, option("-o --offline", IGNORED)] = None,
) -> None:
    """Copy the offsets of a group in a topic to another group."""
    cloned = await offsets.clone(cluster, source, target, topic)
    queues = [
        {"brokerName": queue.broker_name, "queueId": queue.queue_id, "offset": offset}
        for queue, offset in cloned.items()
    ]
    text = f"clone group offset success. srcGroup[{source}], destGroup=[{target}], topic[{topic}]"
    out.show(done(text, srcGroup=source, destGroup=target, topic=topic, queues=queues))
