"""Operations on topics: listing, offsets, creating, changing, deleting."""

from collections.abc import Collection

import msgspec

from pyromq.admin.attributes import as_changes
from pyromq.admin.cluster import Cluster, members_of
from pyromq.admin.failures import NotFound
from pyromq.cluster.routes import route_addresses
from pyromq.protocol import names as meanings
from pyromq.protocol.catalogue import Answer
from pyromq.protocol.codes import ResponseCode
from pyromq.protocol.requests.groups import GetGroupsOfTopic
from pyromq.protocol.requests.inspection import GetTopicStats, TopicStatsTable
from pyromq.protocol.requests.routes import DeleteTopicFromNameServer, GetAllTopics
from pyromq.protocol.requests.topics import (
    CreateOrUpdateTopic,
    CreateOrUpdateTopics,
    CreateTopicListRequestBody,
    DeleteTopicFromBroker,
    GetAllTopicConfigs,
    GetSystemTopicsFromBroker,
    GetTopicConfig,
    PurgeQueue,
    TopicConfig,
)

UNIT_FLAG, UNIT_SUBSCRIPTION_FLAG = 1, 2
"""Bits of a topic's system flag."""

_PAGE = 2000


class TopicReaders(msgspec.Struct, frozen=True, rename="camel"):
    """A topic, its cluster and the groups that read it."""

    cluster: str
    topic: str
    groups: list[str]


async def names(cluster: Cluster) -> list[str]:
    """Every topic that any broker has registered."""
    return sorted((await cluster.ask_name_server(GetAllTopics())).body.topic_list)


async def with_readers(cluster: Cluster) -> list[TopicReaders]:
    """Every topic except retry and dead-letter topics, with its cluster and the groups that read it."""
    wanted = [name for name in await names(cluster) if not is_derived(name)]
    clusters = {member.broker_name: member.cluster for member in members_of(await cluster.info())}

    async def describe(topic: str) -> TopicReaders:
        addresses = route_addresses(await cluster.route(topic))
        of = next((clusters[name] for name in addresses if name in clusters), "")
        return TopicReaders(of, topic, await readers(cluster, topic))

    found = await cluster.known(map(describe, wanted))
    return [
        TopicReaders("", topic, []) if each is None else each
        for topic, each in zip(wanted, found, strict=True)
    ]


async def readers(cluster: Cluster, topic: str, *, some_will_do: bool = False) -> list[str]:
    """The groups that read a topic, on any of its brokers, or on those that answer."""
    addresses = route_addresses(await cluster.route(topic)).values()
    answers = await cluster.ask_each(addresses, GetGroupsOfTopic(topic=topic), some_will_do=some_will_do)
    return sorted({group for answer in answers.values() for group in answer.body.group_list})


async def clusters_of(cluster: Cluster, topic: str) -> list[str]:
    holders = {data.broker_name for data in (await cluster.route(topic)).broker_datas}
    info = await cluster.info()
    return sorted(name for name, brokers in info.cluster_addr_table.items() if holders.intersection(brokers))


async def stats(
    cluster: Cluster, topic: str, routed_as: str | None = None, *, some_will_do: bool = False
) -> TopicStatsTable:
    """The first and last offset of each queue, or of those on brokers that answer. Light queues have no
    route: `routed_as` names one to use."""
    addresses = route_addresses(await cluster.route(routed_as or topic)).values()
    answers = await cluster.ask_each(addresses, GetTopicStats(topic=topic), some_will_do=some_will_do)
    whole = TopicStatsTable()
    for answer in answers.values():
        whole.offset_table |= answer.body.offset_table
        whole.topic_put_tps += answer.body.topic_put_tps
    return whole


async def configs(cluster: Cluster, address: str) -> dict[str, TopicConfig]:
    """The topics of one broker, fetched in pages."""
    found: dict[str, TopicConfig] = {}
    while True:
        answer = await cluster.ask(address, GetAllTopicConfigs(topic_seq=len(found), max_topic_num=_PAGE))
        page = answer.body.topic_config_table
        before = len(found)
        found |= page
        # java: brokers before 5.3 know no pages and send everything at once
        if answer.total_topic_num is None or len(found) >= answer.total_topic_num or len(found) == before:
            return found


async def user_configs(cluster: Cluster, address: str, *, derived: bool = False) -> dict[str, TopicConfig]:
    """The topics of one broker without system topics; with retry and dead-letter topics if `derived`."""
    system = set((await cluster.ask(address, GetSystemTopicsFromBroker())).body.topic_list)
    return {
        name: config
        for name, config in (await configs(cluster, address)).items()
        if name not in system
        and name not in meanings.SYSTEM_TOPICS
        and not name.startswith(meanings.SYSTEM_TOPIC_PREFIX)
        and (derived or not is_derived(name))
    }


async def config(cluster: Cluster, address: str, topic: str) -> TopicConfig:
    """The settings of a topic on one broker."""
    unknown = ResponseCode.REQUEST_CODE_NOT_SUPPORTED
    answer = await cluster.ask_unless(unknown, address, GetTopicConfig(topic=topic))
    if answer is not None:
        return answer.body
    found = (await configs(cluster, address)).get(topic)
    if found is None:
        raise NotFound(f"broker {address} has no topic {topic}; `mqadmin topicList` lists all topics")
    return found


async def put(
    cluster: Cluster, addresses: Collection[str], wanted: TopicConfig, attributes: str | None = None
) -> dict[str, Answer]:
    """Create or change a topic on brokers; `attributes` is a list like `+key=value,-key`."""
    return await cluster.ask_each(addresses, CreateOrUpdateTopic.of(wanted, attributes=attributes))


async def put_many(
    cluster: Cluster, addresses: Collection[str], wanted: list[TopicConfig]
) -> dict[str, Answer]:
    for each in wanted:
        each.attributes = as_changes(each.attributes)
    body = CreateTopicListRequestBody(topic_config_list=wanted)
    return await cluster.ask_each(addresses, CreateOrUpdateTopics(body=body))


async def set_permission(cluster: Cluster, address: str, topic: str, permission: int) -> int:
    """Change the permission of a topic on one broker; returns the old one."""
    wanted = await config(cluster, address, topic)
    before = wanted.perm
    wanted.perm = permission
    await put(cluster, [address], wanted)
    return before


async def purge(
    cluster: Cluster, address: str, topic: str, queue_id: int | None = None, offset: int = -1
) -> dict[int, int]:
    """Let one queue of a topic on a broker begin at an offset, or all queues; a negative offset stands for
    the end. Returns the first message that is left, by queue."""
    if queue_id is None:
        name = await cluster.broker_name(address)
        table = (await stats(cluster, topic)).offset_table
        wanted = [
            queue.queue_id
            for queue, ends in sorted(table.items())
            if queue.broker_name == name and ends.max_offset > 0
        ]
    else:
        wanted = [queue_id]
    return {
        each: (await cluster.change(address, PurgeQueue(topic=topic, queue_id=each, offset=offset))).offset
        for each in wanted
    }


async def delete(cluster: Cluster, topic: str, cluster_name: str) -> list[str]:
    """Delete a topic on the masters of a cluster and in all name servers; returns the brokers' addresses."""
    addresses = [member.address for member in await cluster.masters(cluster_name)]
    await cluster.ask_each(addresses, DeleteTopicFromBroker(topic=topic), is_change=True)
    await forget_route(cluster, topic, cluster_name)
    return addresses


async def forget_route(cluster: Cluster, topic: str, cluster_name: str | None = None) -> None:
    await cluster.ask_name_servers(DeleteTopicFromNameServer(topic=topic, cluster_name=cluster_name))


def is_derived(topic: str) -> bool:
    """Whether a topic holds a group's retries or dead letters."""
    return topic.startswith((meanings.RETRY_PREFIX, meanings.DLQ_PREFIX))
