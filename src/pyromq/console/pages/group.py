"""One group. Each tab is its own page and asks only for what it shows."""

import asyncio
from shlex import join

from pyromq.admin import browsing, connections, dead_letters, diagnosis, groups, progress
from pyromq.admin.attributes import GROUP
from pyromq.admin.failures import NotFound
from pyromq.console.bodies import row_of
from pyromq.console.charts import chart, span_of
from pyromq.console.operations.offsets import UNDO_HOURS
from pyromq.console.page import Data
from pyromq.console.pages import pipelines
from pyromq.console.pages.messages import audit_look, look
from pyromq.console.visit import Visit
from pyromq.protocol.dead_letters import SETTLED
from pyromq.protocol.names import dlq_topic

_LOOKED_BACK = 5000


def _known(visit: Visit) -> Data:
    name = visit.path["group"]
    return {"group": name, "view": visit.snapshot.groups.get(name)}


async def show(visit: Visit) -> Data:
    """Lag by topic, and where it goes."""
    name = visit.path["group"]
    if name not in visit.snapshot.groups and not visit.snapshot.is_first:
        await groups.configs_of(visit.cluster, name)
    pictured = chart(visit, span_of(visit), ("group", name, "lag"))
    runs = await pipelines.those(visit, lambda run: run.group == name)
    return _known(visit) | {"chart": pictured, "span": visit.text("span", "1h"), "runs": runs}


async def queues(visit: Visit) -> Data:
    name, why = visit.path["group"], ""
    try:
        found = await progress.of_group(visit.cluster, name, visit.text("topic") or None, with_clients=True)
    except NotFound as nothing:
        found, why = None, str(nothing)
    rows = [] if found is None else [{"progress": each, "lag": each.diff} for each in found.queues]
    return _known(visit) | {"queues": rows, "why": why, "topic": visit.text("topic")}


async def members(visit: Visit) -> Data:
    """The members of the group, what each holds, and what is wrong with them."""
    name, why = visit.path["group"], ""
    try:
        found = await connections.status(visit.cluster, name, stacks=visit.flag("stacks"))
        joined = await connections.consumers(visit.cluster, name)
    except NotFound as nothing:
        return _known(visit) | {"members": [], "why": str(nothing), "findings": []}
    places = {each.client_id: each for each in joined.connection_set}
    rows = [
        {
            "client": member.client_id,
            "version": member.version,
            "language": places[member.client_id].language if member.client_id in places else None,
            "address": places[member.client_id].client_addr if member.client_id in places else None,
            "is_answering": member.running is not None,
            "queues": [] if member.running is None else sorted(map(str, member.running.mq_table)),
            "held": None
            if member.running is None
            else sum(held.cached_msg_count for held in member.running.mq_table.values()),
            "subscriptions": []
            if member.running is None
            else sorted(
                f"{each.topic} {each.sub_string or ''}".strip() for each in member.running.subscription_set
            ),
            "stack": None if member.running is None else member.running.jstack,
        }
        for member in found
    ]
    queues = await diagnosis.readable_by(visit.cluster, found)
    judged = diagnosis.judged(found, joined.message_model, queues, visit.now_ms)
    model = {"consume_type": joined.consume_type, "message_model": joined.message_model}
    return _known(visit) | {"members": rows, "why": why, "findings": judged.findings, **model}


async def offsets(visit: Visit) -> Data:
    """The resets that are possible, and those of the last day, which can be undone."""
    name = visit.path["group"]
    view = visit.snapshot.groups.get(name)
    since_ms = visit.now_ms - UNDO_HOURS * 3_600_000
    entries = await asyncio.to_thread(visit.state.audit.newest_first, _LOOKED_BACK)
    done = {each.id for each in entries if each.outcome == "ok"}
    resets = [
        {
            "id": each.id,
            "at_ms": each.at_ms,
            "who": each.who,
            "what": each.what,
            "topic": str(each.fields.get("topic", "")),
            "queues": len(each.before) if isinstance(each.before, list) else 0,
            "is_done": each.id in done,
        }
        for each in entries
        if each.at_ms >= since_ms
        and each.cluster == visit.cluster_name
        and each.what.startswith("offsets.")
        and each.fields.get("group") == name
        and not each.outcome
    ]
    topics = [] if view is None else [each.topic for each in view.topics]
    return _known(visit) | {"resets": resets, "topics": topics}


async def letters(visit: Visit) -> Data:
    """Dead letters, the newest first."""
    name = visit.path["group"]
    assert visit.session is not None
    assert visit.shown is not None
    reads = visit.person.reads_bodies
    data = _known(visit) | {
        "letters": [],
        "seen": 0,
        "stop": "",
        "why": "",
        "reads_bodies": reads,
        "go_on": "",
        "command": join(["pyromq", "pipeline", "dlq", "-g", name, "-n", visit.shown.namesrv]),
    }
    try:
        with visit.session.one_more("scans", visit.state.settings.max_scans):
            found = await look(visit, dlq_topic(name), visit.page_size)
    except NotFound as nothing:
        return data | {"why": str(nothing)}
    if reads and found.found:
        await audit_look(visit, dlq_topic(name), len(found.found))
    rows = [
        row_of(each.broker_name, each.message, visit.body_of(each.message))
        | {
            "origin_topic": dead_letters.origin_topic(each.message),
            "origin_id": dead_letters.origin_id(each.message),
            "reconsume_times": each.message.reconsume_times,
        }
        for each in found.found
        if each.message.get(SETTLED) is None
    ]
    from_here = ",".join(f"{q.broker_name}:{q.queue_id}:{at}" for q, at in found.positions.items())
    go_on = from_here if found.stop is not browsing.Stop.END else ""
    return data | {"letters": rows, "seen": found.seen, "stop": str(found.stop), "go_on": go_on}


async def settings(visit: Visit) -> Data:
    found = await groups.configs_of(visit.cluster, visit.path["group"])
    rows = [
        {"broker": member.broker_name, "address": member.address, "config": config}
        for member, config in found
    ]
    return _known(visit) | {"configs": rows, "attributes": [each for each in GROUP if each.form]}
