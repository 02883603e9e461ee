"""What clients reported about a message: when it was sent, and when and how each group consumed it.

Reports are messages of a topic of their own, found by the id of the message they are about.
"""

import msgspec

from pyromq.admin import messages
from pyromq.admin.cluster import Cluster
from pyromq.admin.failures import NotFound
from pyromq.admin.messages import Receipt
from pyromq.client.trace_records import FIELD, RECORD, MessageKind, sent_record
from pyromq.cluster.routes import route_addresses
from pyromq.protocol import names
from pyromq.protocol.catalogue import Int64
from pyromq.protocol.record import StoredMessage

SENT, CONSUMED = "Pub", "SubAfter"

_GROUP_OF_CONSUMED = 8


class Trace(msgspec.Struct, frozen=True, rename="camel"):
    """One thing that was done with a message, and by whom."""

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
    """All that was reported about a message, oldest report first."""
    found = await messages.by_key(cluster, topic, message_id, limit, begin_ms, end_ms)
    return [trace for report in found for trace in traces_in(report, message_id)]


def traces_in(report: StoredMessage, message_id: str) -> list[Trace]:
    """What a report says about one message; it may be about others as well."""
    records = report.body.decode("utf-8", "replace").split(RECORD)
    told = (_trace(record.split(FIELD), message_id, report.born_host.ip_text) for record in records)
    return [trace for trace in told if trace is not None]


def _trace(fields: list[str], message_id: str, client_host: str) -> Trace | None:
    """None for what is about another message, or about nothing we know."""
    try:
        if fields[0] == SENT and fields[5] == message_id:
            # java: the place in the log came later, between the kind of message and the outcome
            outcome = fields[13] if len(fields) > 13 else fields[12]
            return Trace(SENT, fields[3], client_host, int(fields[1]), int(fields[10]), outcome == "true")
        if fields[0] == CONSUMED and fields[2] == message_id:
            # java: so did the time and the group
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
    """Send one message and a report about it, as producers do that trace what they send."""
    try:
        await cluster.route(names.TRACE_TOPIC)
    except NotFound as missing:
        raise NotFound(
            f"nothing was sent: {missing}; brokers with traceTopicEnable=true have it from their start"
        ) from None
    start = cluster.clock.monotonic()
    receipt = await messages.send(
        cluster, topic, body, tags=tags, keys=keys, broker_name=broker_name, queue_id=queue_id
    )
    cost_ms = round((cluster.clock.monotonic() - start) * 1000)
    record = sent_record(
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
    await messages.send(cluster, names.TRACE_TOPIC, record.encode(), keys=about)
    return receipt
