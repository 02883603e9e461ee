"""What clients reported about a message: when it was sent, and when and how each group consumed it.

Reports are messages of a topic of their own, found by the id of the message they are about.
"""

import msgspec

from pyromq.admin import messages
from pyromq.admin.cluster import Cluster
from pyromq.protocol import names
from pyromq.protocol.catalogue import Int64
from pyromq.protocol.record import StoredMessage

SENT, CONSUMED = "Pub", "SubAfter"

_FIELD, _RECORD = "\x01", "\x02"
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
    records = report.body.decode("utf-8", "replace").split(_RECORD)
    told = (_trace(record.split(_FIELD), message_id, report.born_host.ip_text) for record in records)
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
