"""Finds the problems of a consumer group, from the reports of its members.

Members must subscribe alike, each queue must have one owner, and an owner must make progress. What cannot be
known, because members did not answer, is said and not guessed.
"""

from collections import defaultdict
from enum import StrEnum

import msgspec

from pyromq.admin import connections
from pyromq.admin.cluster import Cluster
from pyromq.admin.connections import ConnectedMember
from pyromq.admin.failures import NotFound
from pyromq.admin.offsets import readable_queues
from pyromq.protocol.body import MessageQueue
from pyromq.protocol.names import is_retry_topic
from pyromq.protocol.requests.membership import MessageModel


class GroupFault(StrEnum):
    OFFLINE = "offline"
    """No member is online."""
    SILENT = "silent"
    """A member did not answer."""
    DISAGREE = "disagree"
    """Members subscribe differently: each loses messages that another one should get."""
    NO_OWNER = "no-owner"
    """A queue has no reader."""
    TWO_OWNERS = "two-owners"
    """Several members read a queue."""
    NOT_PROGRESSING = "not-progressing"
    """A member holds messages of a queue and does not consume, or cannot lock or unlock it."""


class Finding(msgspec.Struct, frozen=True, rename="camel"):
    fault: GroupFault
    text: str
    queue: MessageQueue | None = None


class Diagnosis(msgspec.Struct, frozen=True, rename="camel"):
    members: list[ConnectedMember]
    findings: list[Finding]
    owners: dict[str, list[str]]
    """Queue, as text → the client ids of the members that read it."""
    subscriptions: dict[str, list[str]]
    """Client id → `topic expression`, sorted."""


async def of_group(cluster: Cluster, group: str) -> Diagnosis:
    try:
        members = await connections.status(cluster, group)
        model = (await connections.consumers(cluster, group)).message_model
    except NotFound as absence:
        return Diagnosis([], [Finding(GroupFault.OFFLINE, str(absence))], {}, {})
    queues = await readable_by(cluster, members)
    return judged(members, model, queues, cluster.clock.now_ms())


async def readable_by(cluster: Cluster, members: list[ConnectedMember]) -> set[MessageQueue]:
    """All readable queues of the topics that members subscribe to, as far as their routes are known."""
    queues: set[MessageQueue] = set()
    for topic in _topics(members):
        (route,) = await cluster.known([cluster.route(topic)])
        if route is not None:
            queues.update(readable_queues(topic, route))
    return queues


def judged(
    members: list[ConnectedMember], model: MessageModel | None, queues: set[MessageQueue], now_ms: int
) -> Diagnosis:
    """Pure. `queues` are all readable queues of the topics that the group reads."""
    findings: list[Finding] = []
    owners: defaultdict[MessageQueue, list[str]] = defaultdict(list)
    subscriptions: dict[str, list[str]] = {}
    for member in members:
        if member.running is None:
            findings.append(Finding(GroupFault.SILENT, f"{member.client_id} did not answer"))
            continue
        for queue in [*member.running.mq_table, *member.running.mq_pop_table]:
            owners[queue].append(member.client_id)
        subscriptions[member.client_id] = sorted(
            f"{each.topic} {each.sub_string or '*'}" for each in member.running.subscription_set
        )
        findings += [
            Finding(GroupFault.NOT_PROGRESSING, text) for text in connections.complaints(member, now_ms)
        ]
    if not connections.subscribe_alike(members, now_ms):
        findings.insert(0, Finding(GroupFault.DISAGREE, "its members subscribe differently"))
    pulled = {queue for member in members if member.running is not None for queue in member.running.mq_table}
    if model is MessageModel.CLUSTERING and pulled:
        for queue in sorted(pulled):
            if len(owners[queue]) > 1:
                text = f"{_named(queue)} is read by {', '.join(sorted(owners[queue]))}"
                findings.append(Finding(GroupFault.TWO_OWNERS, text, queue))
        # Queues of a silent member have an owner that is not known.
        if all(member.running is not None for member in members):
            for queue in sorted(queues - owners.keys()):
                findings.append(Finding(GroupFault.NO_OWNER, f"no consumer reads {_named(queue)}", queue))
    return Diagnosis(
        members,
        findings,
        {_named(queue): sorted(ids) for queue, ids in sorted(owners.items())},
        subscriptions,
    )


def _topics(members: list[ConnectedMember]) -> set[str]:
    return {
        each.topic
        for member in members
        if member.running is not None
        for each in member.running.subscription_set
        if not is_retry_topic(each.topic)
    }


def _named(queue: MessageQueue) -> str:
    return f"{queue.topic} {queue.broker_name}:{queue.queue_id}"
