"""The command that shows the traces of a message."""

from collections.abc import Sequence

import click

from pyromq.admin import messages, traces
from pyromq.admin.cluster import Cluster
from pyromq.admin.failures import NotFound
from pyromq.admin.traces import Trace
from pyromq.cli.mqadmin.output import Output
from pyromq.cli.mqadmin.report import Column, Part, Report, Table
from pyromq.cli.mqadmin.running import COUNT, TEXT, admin_command
from pyromq.cli.mqadmin.times import time, to_seconds
from pyromq.protocol.names import TRACE_TOPIC


@admin_command("queryMsgTraceById")
@click.option(
    "-i", "--msgId", "message_id", type=TEXT, required=True, help="The unique id that its producer gave it."
)
@click.option(
    "-t",
    "--traceTopic",
    "topic",
    type=TEXT,
    default=TRACE_TOPIC,
    show_default=True,
    help="The topic that holds the traces.",
)
@click.option(
    "-b",
    "--beginTimestamp",
    "begin_ms",
    type=time,
    default=0,
    help="Only traces stored at this time or later.",
)
@click.option("-e", "--endTimestamp", "end_ms", type=time, help="Only traces stored at this time or earlier.")
@click.option(
    "-c",
    "--maxNum",
    "limit",
    type=COUNT,
    default=64,
    show_default=True,
    help="The maximum number of trace messages.",
)
async def query_msg_trace_by_id(
    cluster: Cluster,
    out: Output,
    message_id: str,
    topic: str,
    begin_ms: int,
    end_ms: int | None,
    limit: int,
) -> None:
    """Show when a message was sent, and when each group consumed it, as traced by the clients."""
    last_ms = messages.FOREVER_MS if end_ms is None else end_ms
    found = await traces.of_message(
        cluster, message_id, topic=topic, begin_ms=begin_ms, end_ms=last_ms, limit=limit
    )
    if not found:
        raise NotFound(
            f"topic {topic} has no trace of message {message_id};"
            " clients write traces only if tracing is enabled, and with a short delay"
        )
    sent = [trace for trace in found if trace.kind == traces.SENT]
    groups = dict.fromkeys(trace.group for trace in found if trace.kind == traces.CONSUMED)
    parts: list[Part] = [_table("sent", "Pub", "#ProducerGroup", "#SendTime", sent)] if sent else []
    for group in groups:
        consumed = [trace for trace in found if trace.kind == traces.CONSUMED and trace.group == group]
        parts.append(_table("consumed", "Sub", "#ConsumerGroup", "#ConsumerTime", consumed))
    out.show(Report.of(*parts, whole={"traces": found}))


def _table(key: str, kind: str, group_title: str, time_title: str, found: Sequence[Trace]) -> Table:
    columns = (
        Column("#Type", "type"),
        Column(group_title, "group"),
        Column("#ClientHost", "clientHost"),
        Column(time_title, "time", to_seconds),
        Column("#CostTimes", "costMs", lambda cost_ms: f"{cost_ms}ms"),
        Column("#Status", "isOk", lambda is_ok: "success" if is_ok else "failed"),
    )
    rows = [(kind, each.group, each.client_host, each.time, each.cost_ms, each.is_ok) for each in found]
    return Table(key, columns, rows)
