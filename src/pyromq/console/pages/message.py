"""One message: its place, body and properties, its trace, and its fate in each group."""

import asyncio

from pyromq.admin import messages, traces, tracks
from pyromq.admin.failures import NotFound
from pyromq.console.bodies import decoded_body, shown_body
from pyromq.console.page import Data
from pyromq.console.pages.messages import audit_look
from pyromq.console.visit import Visit
from pyromq.errors import PyroError
from pyromq.protocol.body import MessageQueue
from pyromq.protocol.message import shown_message_id
from pyromq.protocol.names import TRACE_TOPIC
from pyromq.protocol.record import StoredMessage


async def by_id(visit: Visit) -> Data:
    return await _shown(visit, await messages.by_id(visit.cluster, visit.path["topic"], visit.path["id"]))


async def at(visit: Visit) -> Data:
    return await _shown(visit, await at_place(visit))


async def at_place(visit: Visit) -> StoredMessage:
    path = visit.path
    queue = MessageQueue(path["topic"], path["broker"], int(path["queue"]))
    return await messages.at_queue_offset(visit.cluster, queue, int(path["offset"]))


async def _decoded(visit: Visit, message: StoredMessage) -> Data:
    """The body by the schema that it names, or why it cannot be read. If the URL asks for another form, it
    gets that only of a body without masked fields."""
    state, is_wanted = visit.state, visit.text("form") in ("", "schema")
    if state.decode is None or not (is_wanted or state.masks):
        return {}
    assert visit.session is not None
    try:
        with visit.session.one_more("scans", state.settings.max_scans):
            found = await asyncio.to_thread(state.decode, message.body)
    except PyroError as problem:
        return {"not_decoded": str(problem)}
    if found is None:
        return {}
    text = found.text.encode()
    masked = state.masks.body(text)
    if not is_wanted and masked == text:
        return {}
    body = decoded_body(found, masked, len(message.body), state.settings.max_body_bytes)
    return {"body": body, "schema": {"id": found.schema_id, "name": found.name}}


async def _shown(visit: Visit, message: StoredMessage) -> Data:
    reads = visit.person.reads_bodies
    if reads:
        await audit_look(visit, message.topic, 1)
    decoded = await _decoded(visit, message) if reads else {}
    seen, limit = visit.body_of(message), visit.state.settings.max_body_bytes
    body = decoded.pop("body", None) or (
        None if seen is None else shown_body(seen, limit, visit.text("form"))
    )
    brokers = {view.address: view.name for view in visit.snapshot.brokers}
    (told,) = await visit.cluster.known([traces.of_message(visit.cluster, shown_message_id(message))])
    (fates,) = await visit.cluster.known([tracks.of_message(visit.cluster, message)])
    try:
        await visit.cluster.route(TRACE_TOPIC)
        has_traces = True
    except NotFound:
        has_traces = False
    return {
        "topic": message.topic,
        "view": visit.snapshot.topics.get(message.topic),
        "id": shown_message_id(message),
        "offset_id": messages.offset_id(message),
        "broker": brokers.get(str(message.store_host), ""),
        "queue": message.queue_id,
        "offset": message.queue_offset,
        "stored_ms": message.store_timestamp,
        "born_ms": message.born_timestamp,
        "born_host": str(message.born_host),
        "store_host": str(message.store_host),
        "reconsume_times": message.reconsume_times,
        "properties": visit.state.masks.properties(message.property_map()),
        "body": body,
        "schema": None,
        "not_decoded": "",
        **decoded,
        "reads_bodies": reads,
        "traces": told or [],
        "has_traces": has_traces,
        "fates": fates or [],
    }
