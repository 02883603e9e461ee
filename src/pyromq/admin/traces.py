"""Traces that clients write: when a message was sent, and when and how each group consumed it.

Traces are messages of the trace topic; their key is the id of the traced message.
"""

import msgspec

from pyromq.admin import messages
from pyromq.admin.cluster import Cluster
from pyromq.admin.failures import NotFound
from pyromq.admin.messages import Receipt
from pyromq.client.trace_records import FIELD, RECORD, MessageKind, SentRecord
from pyromq.cluster.routes import route_addresses
from pyromq.protocol import names
from pyromq.protocol.catalogue import Int64
from pyromq.protocol.record import StoredMessage

SENT, CONSUMED = "Pub", "SubAfter"

_GROUP_OF_CONSUMED = 8


class Trace(msgspec.Struct, frozen=True, rename="camel"):
    kind: str
    group: str
    client_host: str
    time: Int64
    cost_ms: int
    is_ok: bool


async def of_message(
    cluster: Cluster,
    message_id: str,
    *,
    topic: str = names.TRACE_TOPIC,
    begin_ms: int = 0,
    end_ms: int = messages.FOREVER_MS,
    limit: int = 64,
) -> list[Trace]:
    """All traces of a message, oldest first."""
    found = await messages.by_key(cluster, topic, message_id, limit, begin_ms, end_ms)
    return [trace for report in found for trace in traces_in(report, message_id)]


def traces_in(report: StoredMessage, message_id: str) -> list[Trace]:
    """The traces of one message in a trace message, which may hold others as well."""
    records = report.body.decode("utf-8", "replace").split(RECORD)
    told = (_trace(record.split(FIELD), message_id, report.born_host.ip_text) for record in records)
    return [trace for trace in told if trace is not None]


def _trace(fields: list[str], message_id: str, client_host: str) -> Trace | None:
    """None for a trace of another message, or of an unknown kind."""
    try:
        if fields[0] == SENT and fields[5] == message_id:
            # java: later versions added the offset id between the kind of message and the outcome
            outcome = fields[13] if len(fields) > 13 else fields[12]
            return Trace(SENT, fields[3], client_host, int(fields[1]), int(fields[10]), outcome == "true")
        if fields[0] == CONSUMED and fields[2] == message_id:
            # java: later versions added the time and the group
            has_group = len(fields) > _GROUP_OF_CONSUMED
            time_ms, group = (int(fields[7]), fields[_GROUP_OF_CONSUMED]) if has_group else (0, "")
            return Trace(CONSUMED, group, client_host, time_ms, int(fields[3]), fields[4] == "true")
    except (IndexError, ValueError):
        return None
    return None


async def send_traced(
    cluster: Cluster,
    topic: str,
    body: bytes,
    *,
    tags: str | None = None,
    keys: str | None = None,
    broker_name: str | None = None,
    queue_id: int | None = None,
) -> Receipt:
    """Send one message and its trace, as a tracing producer does."""
    try:
        await cluster.route(names.TRACE_TOPIC)
    except NotFound as missing:
        raise NotFound(
            f"nothing was sent: {missing}; brokers with traceTopicEnable=true create it at their start"
        ) from None
    start = cluster.clock.monotonic()
    receipt = await messages.send(
        cluster, topic, body, tags=tags, keys=keys, broker_name=broker_name, queue_id=queue_id
    )
    cost_ms = round((cluster.clock.monotonic() - start) * 1000)
    record = SentRecord(
        at_ms=cluster.clock.now_ms() - cost_ms,
        region=names.DEFAULT_REGION,
        group=messages.SENDER_GROUP,
        topic=topic,
        message_id=receipt.message_id,
        tags=tags,
        keys=keys,
        store_host=route_addresses(await cluster.route(topic))[receipt.broker_name],
        body_bytes=len(body),
        cost_ms=cost_ms,
        kind=MessageKind.NORMAL,
        offset_message_id=receipt.offset_message_id,
        is_ok=receipt.status == "SEND_OK",
    )
    about = " ".join(filter(None, (receipt.message_id, keys)))
    await messages.send(cluster, names.TRACE_TOPIC, record.text().encode(), keys=about)
    return receipt
