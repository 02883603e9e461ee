"""Where name servers disagree: brokers that only some know, other addresses, missing topics, other queues.

Name servers do not talk to each other; a client sees what the one it asked knows. Each is asked twice, and
for routes only where they differ. With digests of PyroMQ's name servers every difference is found, without
them missing topics and differing brokers.
"""

from collections.abc import Mapping
from typing import TypeVar

import msgspec

from pyromq.admin import figures
from pyromq.admin.cluster import Cluster, members_of
from pyromq.admin.name_servers import topics_at
from pyromq.errors import PyroError, Refused
from pyromq.protocol.codes import ResponseCode
from pyromq.protocol.requests.routes import ClusterInfo, GetClusterInfo, GetRoute, TopicRouteData

T = TypeVar("T")

MAX_ROUTES = 100
"""The routes of at most this many differing topics are fetched; the others are only named."""


class Difference(msgspec.Struct, frozen=True, rename="camel"):
    """One broker (`name/id`) or topic, as each name server knows it: None where it is unknown.

    A broker is its address; a topic is a line for each broker of its route, or empty if its routes were not
    asked for.
    """

    kind: str
    name: str
    known: dict[str, str | None]


class Differences(msgspec.Struct, frozen=True, rename="camel"):
    servers: list[str]
    """Those that answered, and were compared."""
    silent: dict[str, str]
    """The others, with the reason."""
    differences: list[Difference]
    topics: int
    """How many topics there are at any of them."""
    has_compared_routes: bool
    """Whether all of them sent digests; else only the names of topics were compared."""
    not_asked: int
    """Differing topics whose routes were not asked for."""


async def of_name_servers(cluster: Cluster, max_routes: int = MAX_ROUTES) -> Differences:
    infos: dict[str, ClusterInfo] = {}
    digests: dict[str, dict[str, str] | None] = {}
    names: dict[str, set[str]] = {}
    silent: dict[str, str] = {}
    for server in cluster.name_servers:
        try:
            infos[server] = (await cluster.ask(server, GetClusterInfo())).body
            told = digests[server] = await figures.route_digests(cluster, server)
            names[server] = set(told if told is not None else await topics_at(cluster, server))
        except PyroError as problem:
            infos.pop(server, None)
            digests.pop(server, None)
            silent[server] = str(problem)
    compared = {server: table for server, table in digests.items() if table is not None}
    has_digests = len(compared) == len(names)
    topics = (
        _differing(compared)
        if has_digests
        else _differing({s: dict.fromkeys(n, "") for s, n in names.items()})
    )
    found = [
        Difference("broker", name, {server: known.get(name) for server, known in brokers.items()})
        for brokers in [{server: _addresses(info) for server, info in infos.items()}]
        for name in _differing(brokers)
    ]
    for topic in topics[:max_routes]:
        routes = {server: await _route(cluster, server, topic) for server in names}
        found.append(Difference("topic", topic, routes))
    found += [
        Difference(
            "topic", topic, {server: "" if topic in known else None for server, known in names.items()}
        )
        for topic in topics[max_routes:]
    ]
    everything = set().union(*names.values())
    left = max(0, len(topics) - max_routes)
    return Differences(list(names), silent, found, len(everything), has_digests, left)


def _addresses(info: ClusterInfo) -> dict[str, str]:
    return {f"{member.broker_name}/{member.broker_id}": member.address for member in members_of(info)}


def _differing(tables: Mapping[str, Mapping[str, T]]) -> list[str]:
    """The names that not all tables have with the same value, sorted."""
    if len(tables) < 2:
        return []
    first, *others = tables.values()
    if all(each == first for each in others):
        return []
    anywhere = set().union(*tables.values())
    return sorted(
        name
        for name in anywhere
        if any(name not in each or each[name] != first.get(name) for each in tables.values())
    )


async def _route(cluster: Cluster, server: str, topic: str) -> str | None:
    try:
        route = (await cluster.ask(server, GetRoute(topic=topic))).body
    except Refused as refusal:
        if refusal.code != ResponseCode.TOPIC_NOT_EXIST:
            raise
        return None
    return described(route)


def described(route: TopicRouteData) -> str:
    """A line for each broker: its addresses, queues to read and to write, and permission."""
    addresses = {
        data.broker_name: " ".join(f"{id_}={address}" for id_, address in sorted(data.broker_addrs.items()))
        for data in route.broker_datas
    }
    return "\n".join(
        f"{data.broker_name} {addresses.get(data.broker_name, '')}"
        f" read={data.read_queue_nums} write={data.write_queue_nums} perm={data.perm}"
        for data in sorted(route.queue_datas, key=lambda data: data.broker_name)
    )
