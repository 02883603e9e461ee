"""Bytes to keep: a body as it is, and dead letters as CSV or NDJSON; always attachments, never shown by a
browser.
"""

from collections.abc import AsyncIterator, Awaitable, Callable

import msgspec
from starlette.exceptions import HTTPException
from starlette.responses import Response, StreamingResponse

from pyromq.admin import browsing, dead_letters, messages
from pyromq.console.pages.message import at_place
from pyromq.console.pages.messages import audit_look
from pyromq.console.rendering import segment
from pyromq.console.visible import csv_cell
from pyromq.console.visit import Visit
from pyromq.protocol.names import dlq_topic
from pyromq.protocol.properties import KEYS, TAGS

_MAX_LETTERS = 10_000
_COLUMNS = (
    "id",
    "topic",
    "broker",
    "queue",
    "offset",
    "stored_ms",
    "tags",
    "keys",
    "reconsume_times",
    "body",
)


def _attachment(name: str) -> dict[str, str]:
    return {"Content-Disposition": f"attachment; filename*=UTF-8''{segment(name)}"}


async def body(visit: Visit) -> Response:
    """Every byte of a body, but for masked fields."""
    visit.require_bodies()
    message = await at_place(visit)
    await audit_look(visit, message.topic, 1)
    name = f"{message.topic}-{message.queue_id}-{message.queue_offset}.bin"
    return Response(visit.body_of(message), headers=_attachment(name), media_type="application/octet-stream")


async def letters(visit: Visit) -> Response:
    """The dead letters of a group, the newest first; a last line says if there are more."""
    visit.require_bodies()
    assert visit.session is not None
    group, form = visit.path["group"], visit.path["form"]
    if form not in ("csv", "ndjson"):
        raise HTTPException(404, visit.texts("error.no_page"))
    with visit.session.one_more("scans", visit.state.settings.max_scans):
        limits = browsing.Limits(rows=_MAX_LETTERS, seconds=visit.state.settings.scan_seconds)
        look = await browsing.look(visit.cluster, dlq_topic(group), browsing.Wanted(limits=limits))
    await audit_look(visit, dlq_topic(group), len(look.found))
    as_csv, masks = form == "csv", visit.state.masks

    async def lines() -> AsyncIterator[bytes]:
        if as_csv:
            yield ",".join(_COLUMNS).encode() + b"\r\n"
        for each in look.found:
            message = each.message
            row = {
                "id": dead_letters.origin_id(message) or messages.offset_id(message),
                "topic": dead_letters.origin_topic(message),
                "broker": each.broker_name,
                "queue": message.queue_id,
                "offset": message.queue_offset,
                "stored_ms": message.store_timestamp,
                "tags": message.get(TAGS) or "",
                "keys": message.get(KEYS) or "",
                "reconsume_times": message.reconsume_times,
                "body": masks.body(message.body).decode("utf-8", "backslashreplace"),
            }
            if as_csv:
                yield (",".join(csv_cell(str(row[name])) for name in _COLUMNS) + "\r\n").encode()
            else:
                properties = masks.properties(message.property_map())
                yield msgspec.json.encode(row | {"properties": properties}) + b"\n"
        if look.stop is not browsing.Stop.END:
            note = f"not all: stopped by {look.stop} after {look.seen}"
            yield (
                (csv_cell(note) + "\r\n").encode()
                if as_csv
                else msgspec.json.encode({"incomplete": note}) + b"\n"
            )

    headers = _attachment(f"{dlq_topic(group)}.{'csv' if as_csv else 'ndjson'}")
    return StreamingResponse(lines(), headers=headers, media_type="application/octet-stream")


ALL: dict[str, Callable[[Visit], Awaitable[Response]]] = {
    "/c/{cluster}/topics/{topic}/at/{broker}/{queue:int}/{offset:int}/body": body,
    "/c/{cluster}/groups/{group}/dlq.{form}": letters,
}
