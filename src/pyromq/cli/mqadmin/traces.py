"""The command that shows the traces of a message."""

from collections.abc import Sequence
from typing import Annotated

from pyromq.admin import messages, traces
from pyromq.admin.cluster import Cluster
from pyromq.admin.failures import NotFound
from pyromq.admin.traces import Trace
from pyromq.cli.mqadmin.options import option
from pyromq.cli.mqadmin.output import Output
from pyromq.cli.mqadmin.report import Column, Part, Report, Table
from pyromq.cli.mqadmin.running import admin_command
from pyromq.cli.mqadmin.times import time, to_seconds
from pyromq.protocol.names import TRACE_TOPIC


@admin_command("queryMsgTraceById")
async def query_msg_trace_by_id(
    cluster: Cluster,
    out: Output,
    message_id: Annotated[str, option("-i --msgId", "The unique id that its producer gave it.")],
    topic: Annotated[str, option("-t --traceTopic", "The topic that holds the traces.")] = TRACE_TOPIC,
    begin_ms: Annotated[
        int, option("-b --beginTimestamp", "Only traces stored at this time or later.", time)
    ] = 0,
    end_ms: Annotated[
        int | None, option("-e --endTimestamp", "Only traces stored at this time or earlier.", time)
    ] = None,
    limit: Annotated[int, option("-c --maxNum", "The maximum number of trace messages.")] = 64,
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
        Column("#Type", "type", of=lambda _: kind),
        Column(group_title, "group", of="group"),
        Column("#ClientHost", "clientHost", of="client_host"),
        Column(time_title, "time", to_seconds, of="time"),
        Column("#CostTimes", "costMs", lambda cost_ms: f"{cost_ms}ms", of="cost_ms"),
        Column("#Status", "isOk", lambda is_ok: "success" if is_ok else "failed", of="is_ok"),
    )
    return Table.of(key, found, columns)
