"""The lite topics of a topic of type LITE, page by page as brokers have them: there may be a million."""

from typing import Any

from pyromq.admin import lite
from pyromq.console.page import Data
from pyromq.console.pages.topic import known_topic
from pyromq.console.visit import Visit
from pyromq.protocol.requests.lite import GetLiteTopicInfoResponseBody

_MINUTE_MS = 60_000


async def show(visit: Visit) -> Data:
    """`?q=` shows those that begin with it, `?begin=` continues there."""
    name, q = visit.path["topic"], visit.text("q")
    begin = visit.text("begin") or q or None
    (parents,) = await visit.cluster.known([lite.parent(visit.cluster, name)])
    (found,) = await visit.cluster.known([lite.page(visit.cluster, name, begin, visit.page_size)])
    known = known_topic(visit) | {"q": q, "is_lite": found is not None}
    if found is None:
        return known | {"parents": {}, "lite_topics": [], "next": None}
    ttls = {broker: each.ttl for broker, each in (parents or {}).items()}
    names = {each: brokers for each, brokers in found.names.items() if each.startswith(q)}
    # They are in order: after the first one that begins differently there are no others.
    after = found.next if len(names) == len(found.names) else None
    told = await lite.many(visit.cluster, name, names)
    rows = [row for each, brokers in told.items() for row in _rows(each, brokers, ttls)]
    return known | {"parents": parents or {}, "lite_topics": rows, "next": after}


def _rows(
    name: str, brokers: dict[str, GetLiteTopicInfoResponseBody | None], ttls: dict[str, int]
) -> list[dict[str, Any]]:
    """A lite topic on each of its brokers: usually there is one."""
    rows = []
    for broker, info in brokers.items():
        at = None if info is None else info.topic_offset
        ttl = ttls.get(broker, -1)
        rows.append(
            {
                "name": name,
                "broker": broker,
                "first": None if at is None else at.min_offset,
                "end": None if at is None else at.max_offset,
                "messages": None if at is None else at.max_offset - at.min_offset,
                "newest_ms": None if at is None else at.last_update_timestamp,
                "expires_ms": None if at is None or ttl < 0 else at.last_update_timestamp + ttl * _MINUTE_MS,
                "subscribers": [] if info is None else info.subscriber,
            }
        )
    return rows


async def one(visit: Visit) -> Data:
    """One lite topic: where it begins and ends, and the clients that subscribe to it."""
    name, wanted = visit.path["topic"], visit.path["lite"]
    (parents,) = await visit.cluster.known([lite.parent(visit.cluster, name)])
    (found,) = await visit.cluster.known([lite.lite_topic(visit.cluster, name, wanted)])
    rows: list[dict[str, Any]] = []
    if found:
        ttls = {broker: each.ttl for broker, each in (parents or {}).items()}
        having = {
            broker: info
            for broker, info in found.items()
            if info.subscriber or (info.topic_offset is not None and info.topic_offset.max_offset > 0)
        }
        rows = _rows(wanted, dict(having), ttls)
    clients = [
        {"broker": row["broker"], "client": each.client_id, "group": each.group}
        for row in rows
        for each in row["subscribers"]
    ]
    return known_topic(visit) | {"lite_topic": wanted, "rows": rows, "clients": clients}
