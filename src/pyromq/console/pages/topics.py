"""The list of topics, from the snapshot: opening it asks nobody anything."""

from typing import Any

from pyromq.admin.topics import is_derived
from pyromq.console.listing import Key, listed
from pyromq.console.page import Data
from pyromq.console.visit import Visit
from pyromq.console.watch.values import TopicView

KEYS: dict[str, Key[TopicView]] = {
    "name": lambda topic: topic.name,
    "kind": lambda topic: topic.kind,
    "queues": lambda topic: topic.queues,
    "messages": lambda topic: topic.messages,
    "in": lambda topic: topic.in_per_s,
    "out": lambda topic: topic.out_per_s,
    "lag": lambda topic: topic.worst_lag,
}


def is_own(topic: TopicView) -> bool:
    """Whether people made it: neither the brokers nor a group's retries and dead letters did."""
    return not topic.is_system and not is_derived(topic.name)


async def show(visit: Visit) -> Data:
    with_system, kind = visit.flag("system"), visit.text("type")
    every = [topic for topic in visit.snapshot.topics.values() if with_system or is_own(topic)]
    wanted = [topic for topic in every if not kind or topic.kind == kind]
    page = listed(visit, wanted, KEYS, name=lambda topic: topic.name, sort="name")
    kinds: list[Any] = sorted({topic.kind for topic in every})
    return {"topics": page.rows, "list": page, "kinds": kinds, "kind": kind, "system": with_system}
