"""The list of topics, from the snapshot: opening it sends no requests to the cluster."""

from pyromq.console.clusters import ShownCluster
from pyromq.console.listing import Key, listed
from pyromq.console.page import Data
from pyromq.console.visit import Visit
from pyromq.console.watch.values import TopicView

KEYS: dict[str, Key[TopicView]] = {
    "active": lambda topic: bool(topic.in_per_s or topic.out_per_s or topic.worst_lag),
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
    return not (topic.is_system or topic.is_derived)


def known_topics(shown: ShownCluster, *, with_system: bool) -> list[TopicView]:
    """Made once for each snapshot: there may be ten thousand."""
    every = shown.snapshot.topics.values()
    return shown.kept_list(
        ("topics", with_system), lambda: [topic for topic in every if with_system or is_own(topic)]
    )


async def show(visit: Visit) -> Data:
    shown, with_system, kind = visit.shown, visit.flag("system"), visit.text("type")
    assert shown is not None
    every = known_topics(shown, with_system=with_system)
    kinds = shown.kept_list(("kinds", with_system), lambda: sorted({topic.kind for topic in every}))
    only = (lambda topic: topic.kind == kind) if kind else None
    page = listed(visit, every, KEYS, name=lambda topic: topic.name, sort="-active", only=only)
    return {"topics": page.rows, "list": page, "kinds": kinds, "kind": kind, "system": with_system}
