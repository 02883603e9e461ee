"""Messages of a topic: by queue, offset and time, newest first; by id or key; filtered by tag, SQL, text
or JSON.
"""

import asyncio
from typing import Any

from starlette.exceptions import HTTPException

from pyromq.admin import browsing, messages
from pyromq.console.bodies import row_of
from pyromq.console.operations.offsets import moment_ms
from pyromq.console.page import Data
from pyromq.console.security.audit import AuditEntry
from pyromq.console.visit import Visit
from pyromq.filtering.tags import ALL
from pyromq.protocol.body import MessageQueue

_KEYS_PER_PAGE = 64


def positions_in(topic: str, text: str) -> dict[MessageQueue, int]:
    """Where to continue: `broker:queue:offset` for each queue."""
    found: dict[MessageQueue, int] = {}
    for part in filter(None, text.split(",")):
        broker, _, rest = part.partition(":")
        queue, _, offset = rest.partition(":")
        if not (queue.isdecimal() and offset.isdecimal() and len(queue) < 10 and len(offset) < 19):
            raise HTTPException(400, f"at={part}: expected broker:queue:offset")
        found[MessageQueue(topic, broker, int(queue))] = int(offset)
    return found


def _text(positions: dict[MessageQueue, int]) -> str:
    return ",".join(f"{queue.broker_name}:{queue.queue_id}:{at}" for queue, at in positions.items())


_SIMPLE = ("time", "to", "key", "at")
_MORE = ("broker", "queue", "offset", "tags", "sql", "text", "json", "id")


def form_of(visit: Visit) -> dict[str, Any]:
    return {name: visit.text(name) for name in (*_SIMPLE, *_MORE)} | {"order": visit.text("order", "newest")}


async def look(visit: Visit, topic: str, rows: int) -> browsing.Look:
    """The look that the URL asks for; filters on bodies need the right to read them."""
    form = form_of(visit)
    if form["text"] or form["json"]:
        visit.require_bodies()
    settings = visit.state.settings
    wanted = browsing.Wanted(
        newest_first=form["order"] != "oldest",
        broker_name=form["broker"] or None,
        queue_id=visit.number("queue"),
        from_ms=moment_ms(form["time"]) if form["time"] else None,
        until_ms=moment_ms(form["to"]) if form["to"] else None,
        from_offset=visit.number("offset"),
        positions=positions_in(topic, form["at"]),
        tags=form["tags"] or ALL,
        sql=form["sql"],
        only=visit.state.masks.filter(form["text"], form["json"]),
        limits=browsing.Limits(rows=rows, seconds=settings.scan_seconds),
    )
    return await browsing.look(visit.cluster, topic, wanted)


async def show(visit: Visit) -> Data:
    topic, form = visit.path["topic"], form_of(visit)
    assert visit.session is not None
    reads = visit.person.reads_bodies
    data: Data = {
        "topic": topic,
        "view": visit.snapshot.topics.get(topic),
        "form": form,
        "_is_narrowed": form["order"] != "newest" or any(form[name] for name in _MORE),
        "messages": [],
        "seen": None,
        "stop": "",
        "go_on": "",
        "reads_bodies": reads,
    }
    with visit.session.one_more("scans", visit.state.settings.max_scans):
        if form["key"] or form["id"]:
            found = await _named(visit, topic, form)
            return data | found
        result = await look(visit, topic, visit.page_size)
    if reads:
        await audit_look(visit, topic, len(result.found))
    rows = [row_of(each.broker_name, each.message, visit.body_of(each.message)) for each in result.found]
    go_on = _text(result.positions) if result.stop is not browsing.Stop.END else ""
    return data | {"messages": rows, "seen": result.seen, "stop": str(result.stop), "go_on": go_on}


async def _named(visit: Visit, topic: str, form: dict[str, Any]) -> Data:
    if form["id"]:
        found = [await messages.by_id(visit.cluster, topic, form["id"])]
        stop, go_on = "end", ""
    else:
        end_ms = visit.number("at", messages.FOREVER_MS) or 0
        look = await messages.newest_by_key(visit.cluster, topic, form["key"], _KEYS_PER_PAGE, end_ms)
        found, stop = look.found, "end" if look.is_whole else "rows"
        go_on = "" if look.next_end_ms is None else str(look.next_end_ms)
    reads = visit.person.reads_bodies
    if reads:
        await audit_look(visit, topic, len(found))
    brokers = {view.address: view.name for view in visit.snapshot.brokers}
    rows = [row_of(brokers.get(str(each.store_host), ""), each, visit.body_of(each)) for each in found]
    return {"messages": rows, "seen": len(found), "stop": stop, "go_on": go_on}


async def audit_look(visit: Visit, topic: str, count: int) -> None:
    """Every look at bodies is in the audit log; one that cannot be is refused."""
    entry = AuditEntry(
        who=visit.person.name,
        where_from=visit.origin.client,
        what="bodies.read",
        cluster=visit.cluster_name,
        fields={"topic": topic, "messages": count, "query": str(visit.query)[:500]},
        outcome="ok",
    )
    await asyncio.to_thread(visit.state.audit.write, entry)
