"""The live tail of a topic, or of several: a page with a filter, and a stream of rows that it fills itself
from.
"""

from collections.abc import AsyncIterator

import msgspec
from starlette.exceptions import HTTPException
from starlette.responses import Response

from pyromq.admin.matching import BodyFilter
from pyromq.console.page import Data
from pyromq.console.pages.messages import audit_look
from pyromq.console.security.sessions import TooMany
from pyromq.console.streams import event, streamed
from pyromq.console.tailing import TailFilter, batches
from pyromq.console.visit import Visit
from pyromq.filtering.tags import ALL

_MAX_TOPICS = 8


def wanted_of(visit: Visit) -> TailFilter:
    """The topics and the filter of the URL, as `with=A,B`; refused here if they make no sense."""
    also = (name.strip() for name in visit.text("with").split(","))
    topics = tuple(dict.fromkeys((visit.path["topic"], *filter(None, also))))
    if len(topics) > _MAX_TOPICS:
        raise HTTPException(400, f"with={visit.text('with')}: expected at most {_MAX_TOPICS} topics in all")
    wanted = TailFilter(
        visit.cluster_name,
        topics,
        visit.text("tags") or ALL,
        visit.text("sql"),
        visit.text("text"),
        visit.text("json"),
    )
    BodyFilter(wanted.text, wanted.json)
    return wanted


async def show(visit: Visit) -> Data:
    visit.require_bodies()
    wanted = wanted_of(visit)
    topic = visit.path["topic"]
    also = ",".join(wanted.topics[1:])
    return {"topic": topic, "view": visit.snapshot.topics.get(topic), "wanted": wanted, "also": also}


async def stream(visit: Visit) -> Response:
    visit.require_bodies()
    wanted = wanted_of(visit)
    for topic in wanted.topics:
        await audit_look(visit, topic, 0)
    session, state, shown = visit.session, visit.state, visit.shown
    assert session is not None
    assert shown is not None
    sent = visit.request.headers.get("last-event-id", visit.text("last"))
    last = int(sent) if sent.isdecimal() and len(sent) < 16 else 0
    await state.readers.make_room()
    if not state.readers.has_room(wanted):
        raise TooMany("readers")
    # Counted before the first byte: the third tail of a person is refused, not cut off.
    counting = session.one_more("tails", state.settings.max_tails)
    counting.__enter__()

    async def events() -> AsyncIterator[bytes]:
        try:
            with state.readers.watching(shown.cluster, wanted) as reader:
                yield b"retry: 2000\n\n"
                async for batch in batches(reader, last):
                    if state.is_stopping:
                        return
                    yield event("rows", msgspec.json.encode(batch).decode(), id=str(batch.last))
        finally:
            counting.__exit__(None, None, None)

    return streamed(events())
