"""Operations on lite topics, at the masters of the brokers that have their parent topic."""

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple, TypeVar

from pyromq.admin.cluster import Cluster
from pyromq.admin.failures import NotFound
from pyromq.protocol.catalogue import Answer, Request
from pyromq.protocol.names import MASTER_ID, lite_queue
from pyromq.protocol.requests.lite import (
    GetBrokerLiteInfo,
    GetBrokerLiteInfoResponseBody,
    GetLiteClientInfo,
    GetLiteClientInfoResponseBody,
    GetLiteGroupInfo,
    GetLiteGroupInfoResponseBody,
    GetLiteTopicInfo,
    GetLiteTopicInfoResponseBody,
    GetParentTopicInfo,
    GetParentTopicInfoResponseBody,
    ListLiteTopics,
    TriggerLiteDispatch,
)
from pyromq.protocol.requests.topics import DeleteTopicFromBroker

A = TypeVar("A", bound=Answer)

_NAMES_AT_ONCE: Final = 1000


async def masters(cluster: Cluster, topic: str) -> dict[str, str]:
    """The address of each master that has a topic, by the name of the broker."""
    route = await cluster.route(topic)
    return {
        data.broker_name: data.broker_addrs[MASTER_ID]
        for data in sorted(route.broker_datas, key=lambda each: each.broker_name)
        if MASTER_ID in data.broker_addrs
    }


async def _ask(cluster: Cluster, topic: str, request: Request[A]) -> dict[str, A]:
    found = await masters(cluster, topic)
    return {name: await cluster.ask(address, request) for name, address in found.items()}


async def brokers(cluster: Cluster, addresses: Sequence[str]) -> dict[str, GetBrokerLiteInfoResponseBody]:
    """The lite topics of brokers in numbers, by address."""
    return {address: (await cluster.ask(address, GetBrokerLiteInfo())).body for address in addresses}


async def parent(cluster: Cluster, topic: str) -> dict[str, GetParentTopicInfoResponseBody]:
    answers = await _ask(cluster, topic, GetParentTopicInfo(topic=topic))
    return {name: answer.body for name, answer in answers.items()}


async def lite_topic(
    cluster: Cluster, topic: str, lite_topic: str
) -> dict[str, GetLiteTopicInfoResponseBody]:
    answers = await _ask(cluster, topic, GetLiteTopicInfo(parent_topic=topic, lite_topic=lite_topic))
    return {name: answer.body for name, answer in answers.items()}


async def client(
    cluster: Cluster, topic: str, group: str, client_id: str
) -> dict[str, GetLiteClientInfoResponseBody]:
    request = GetLiteClientInfo(parent_topic=topic, group=group, client_id=client_id)
    return {name: answer.body for name, answer in (await _ask(cluster, topic, request)).items()}


async def group(
    cluster: Cluster, topic: str, group: str, lite_topic: str | None, top: int
) -> dict[str, GetLiteGroupInfoResponseBody]:
    request = GetLiteGroupInfo(group=group, lite_topic=lite_topic, top_k=top)
    return {name: answer.body for name, answer in (await _ask(cluster, topic, request)).items()}


async def dispatch(
    cluster: Cluster, topic: str, group: str, client_id: str | None, broker_name: str | None
) -> list[str]:
    """Have brokers, or one of them, look through the lite topics of a group for messages; their names."""
    found = await masters(cluster, topic)
    if broker_name is not None:
        if broker_name not in found:
            raise NotFound(f"no broker {broker_name} has the topic {topic}; known: {', '.join(found)}")
        found = {broker_name: found[broker_name]}
    for address in found.values():
        await cluster.change(address, TriggerLiteDispatch(group=group, client_id=client_id))
    return list(found)


class LitePage(NamedTuple):
    names: dict[str, list[str]]
    """Lite topics that have messages, in order, each with the brokers that have it."""
    next: str | None
    """Where the next page begins; None after the last one."""


async def page(cluster: Cluster, topic: str, begin: str | None, count: int) -> LitePage:
    """At most `count` lite topics, from the first one that is not before `begin`."""
    found: dict[str, list[str]] = {}
    nexts: list[str] = []
    request = ListLiteTopics(topic=topic, begin=begin, max_count=count)
    for broker_name, answer in (await _ask(cluster, topic, request)).items():
        for name in answer.body.lite_topics:
            found.setdefault(name, []).append(broker_name)
        if answer.body.next is not None:
            nexts.append(answer.body.next)
    # Brokers come differently far: what is behind the end of one of them waits for the next page.
    ordered = sorted(found)
    after = min([*ordered[count : count + 1], *nexts], default=None)
    return LitePage({name: found[name] for name in ordered if after is None or name < after}, after)


async def names(cluster: Cluster, topic: str) -> dict[str, list[str]]:
    """The lite topics that have messages, each with the brokers that have it."""
    found, begin = await page(cluster, topic, None, _NAMES_AT_ONCE)
    while begin is not None:
        more, begin = await page(cluster, topic, begin, _NAMES_AT_ONCE)
        found |= more
    return found


async def many(
    cluster: Cluster, topic: str, names: Mapping[str, Sequence[str]]
) -> dict[str, dict[str, GetLiteTopicInfoResponseBody | None]]:
    """Lite topics at the brokers that have them; None where a broker does not answer."""
    addresses = await masters(cluster, topic)
    wanted = [(name, broker) for name, having in names.items() for broker in having if broker in addresses]
    answers = await cluster.known(
        cluster.ask(addresses[broker], GetLiteTopicInfo(parent_topic=topic, lite_topic=name))
        for name, broker in wanted
    )
    told: dict[str, dict[str, GetLiteTopicInfoResponseBody | None]] = {name: {} for name in names}
    for (name, broker), answer in zip(wanted, answers, strict=True):
        told[name][broker] = None if answer is None else answer.body
    return told


async def delete(cluster: Cluster, topic: str, lite_topic: str) -> list[str]:
    """Delete a lite topic, with the offsets of its groups; the names of the brokers that had it."""
    had = (await _has(cluster, topic, lite_topic)).items()
    for _, address in had:
        await cluster.change(address, DeleteTopicFromBroker(topic=lite_queue(topic, lite_topic)))
    return [name for name, _ in had]


async def _has(cluster: Cluster, topic: str, name: str) -> dict[str, str]:
    addresses = await masters(cluster, topic)
    found = await lite_topic(cluster, topic, name)
    return {
        broker: addresses[broker]
        for broker, info in found.items()
        if info.topic_offset is not None and info.topic_offset.max_offset > 0
    }
