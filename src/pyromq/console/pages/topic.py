"""One topic. Each tab is its own page and asks only for what it shows."""

from pyromq.admin import connections, topics
from pyromq.cluster.routes import route_addresses
from pyromq.console.charts import chart, span_of
from pyromq.console.page import Data
from pyromq.console.visit import Visit
from pyromq.protocol.requests.routes import TopicRouteData


def known_topic(visit: Visit) -> Data:
    """The part that every tab shows on top."""
    name = visit.path["topic"]
    assert visit.shown is not None
    visit.shown.watch.open_topic(name)
    return {"topic": name, "view": visit.snapshot.topics.get(name)}


async def show(visit: Visit) -> Data:
    name = visit.path["topic"]
    stats = await topics.stats(visit.cluster, name, some_will_do=True)
    queues = [
        {
            "broker": queue.broker_name,
            "queue": queue.queue_id,
            "first": ends.min_offset,
            "end": ends.max_offset,
            "messages": ends.max_offset - ends.min_offset,
            "newest_ms": ends.last_update_timestamp,
        }
        for queue, ends in sorted(stats.offset_table.items())
    ]
    pictured = chart(visit, span_of(visit), ("topic", name, "in"), ("topic", name, "out"))
    return known_topic(visit) | {"queues": queues, "chart": pictured, "span": visit.text("span", "1h")}


async def groups(visit: Visit) -> Data:
    name = visit.path["topic"]
    readers = await topics.readers(visit.cluster, name, some_will_do=True)
    known = visit.snapshot.groups
    found = [
        {
            "group": group,
            "view": known.get(group),
            "in_topic": next((each for each in known[group].topics if each.topic == name), None)
            if group in known
            else None,
        }
        for group in readers
    ]
    return known_topic(visit) | {"groups": found}


async def route(visit: Visit) -> Data:
    found: TopicRouteData = await visit.cluster.route(visit.path["topic"])
    queues = {each.broker_name: each for each in found.queue_datas}
    rows = [
        {
            "broker": data.broker_name,
            "cluster": data.cluster,
            "addresses": dict(sorted(data.broker_addrs.items())),
            "read_queues": queues[data.broker_name].read_queue_nums if data.broker_name in queues else None,
            "write_queues": queues[data.broker_name].write_queue_nums if data.broker_name in queues else None,
            "perm": queues[data.broker_name].perm if data.broker_name in queues else None,
        }
        for data in sorted(found.broker_datas, key=lambda each: each.broker_name)
    ]
    return known_topic(visit) | {"route": rows, "order": found.order_topic_conf}


async def producers(visit: Visit) -> Data:
    """All producers of the topic's brokers; with `?group=`, those of one group that are connected there."""
    name, group = visit.path["topic"], visit.text("group")
    addresses = route_addresses(await visit.cluster.route(name))
    told = await visit.cluster.known(
        connections.all_producers(visit.cluster, each) for each in addresses.values()
    )
    rows = {
        (of_group, member.client_id or "", member.remote_ip or ""): member
        for table in told
        if table is not None
        for of_group, members in table.items()
        for member in members
        if not group or of_group == group
    }
    found = [
        {
            "group": of_group,
            "client": client,
            "address": address,
            "language": member.language,
            "version": member.version,
            "seen_ms": member.last_update_timestamp,
        }
        for (of_group, client, address), member in sorted(rows.items())
    ]
    return known_topic(visit) | {
        "producers": found,
        "group": group,
        "untold": [a for a, t in zip(addresses, told, strict=True) if t is None],
    }


async def settings(visit: Visit) -> Data:
    name = visit.path["topic"]
    addresses = route_addresses(await visit.cluster.route(name))
    told = await visit.cluster.known(topics.config(visit.cluster, each, name) for each in addresses.values())
    rows = [
        {"broker": broker, "address": address, "config": config}
        for (broker, address), config in zip(addresses.items(), told, strict=True)
    ]
    return known_topic(visit) | {"configs": rows}
