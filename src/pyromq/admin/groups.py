"""Operations on consumer groups: settings on each broker, and summaries."""

from collections.abc import Collection

import msgspec

from pyromq.admin.attributes import as_changes
from pyromq.admin.cluster import BrokerMember, Cluster
from pyromq.admin.connections import consumers
from pyromq.admin.failures import NotFound, nearest
from pyromq.admin.offsets import lag, total_diff, totals
from pyromq.admin.topics import forget_route, names
from pyromq.errors import Refused
from pyromq.protocol import names as meanings
from pyromq.protocol.catalogue import Answer
from pyromq.protocol.codes import ResponseCode
from pyromq.protocol.requests.groups import (
    CreateOrUpdateGroup,
    CreateOrUpdateGroups,
    DeleteGroup,
    GetAllGroupConfigs,
    GetGroupConfig,
    SubscriptionGroupConfig,
    SubscriptionGroupList,
)
from pyromq.protocol.requests.membership import ConsumeType, MessageModel
from pyromq.protocol.requests.popping import SetMessageRequestMode, SetMessageRequestModeRequestBody
from pyromq.protocol.requests.topics import DeleteTopicFromBroker

_PAGE = 2000


class GroupSummary(msgspec.Struct, frozen=True, rename="camel"):
    """A summary of a group; without members it has no version, type or model."""

    group: str
    count: int
    version: int | None
    consume_type: ConsumeType | None
    message_model: MessageModel | None
    consume_tps: float
    diff_total: int


async def names_of_groups(cluster: Cluster) -> list[str]:
    """The groups that have consumed: those with a retry topic, in their order, then others with offsets."""
    prefix = meanings.RETRY_PREFIX
    retrying = [topic.removeprefix(prefix) for topic in await names(cluster) if topic.startswith(prefix)]
    masters = [member for member in await cluster.members() if member.is_master]
    tables = await cluster.known(totals(cluster, member.address) for member in masters)
    with_offsets = {group for table in tables for _, group in table or ()}
    return retrying + sorted(
        group
        for group in with_offsets.difference(retrying)
        if group not in meanings.SYSTEM_GROUPS and not meanings.is_system_group(group)
    )


async def summaries(cluster: Cluster) -> list[GroupSummary]:
    """A summary of every group that has consumed."""

    async def summary(group: str) -> GroupSummary:
        (stats,) = await cluster.known([lag(cluster, group)])
        (members,) = await cluster.known([consumers(cluster, group)])
        versions = [] if members is None else [member.version for member in members.connection_set]
        return GroupSummary(
            group=group,
            count=len(versions),
            version=min(versions, default=None),
            consume_type=None if members is None else members.consume_type,
            message_model=None if members is None else members.message_model,
            consume_tps=0.0 if stats is None else stats.consume_tps,
            diff_total=0 if stats is None else total_diff(stats),
        )

    found = await cluster.known(summary(group) for group in await names_of_groups(cluster))
    return [each for each in found if each is not None]


async def configs(cluster: Cluster, address: str) -> dict[str, SubscriptionGroupConfig]:
    """The groups of one broker, fetched in pages."""
    found: dict[str, SubscriptionGroupConfig] = {}
    while True:
        answer = await cluster.ask(address, GetAllGroupConfigs(group_seq=len(found), max_group_num=_PAGE))
        before = len(found)
        found |= answer.body.subscription_group_table
        # java: brokers before 5.3 know no pages and send everything at once
        if answer.total_group_num is None or len(found) >= answer.total_group_num or len(found) == before:
            return found


async def user_configs(cluster: Cluster, address: str) -> dict[str, SubscriptionGroupConfig]:
    """The groups of one broker, without system groups."""
    return {
        name: config
        for name, config in (await configs(cluster, address)).items()
        if name not in meanings.SYSTEM_GROUPS and not meanings.is_system_group(name)
    }


async def config(cluster: Cluster, address: str, group: str) -> SubscriptionGroupConfig | None:
    """The settings of a group on one broker; None if the broker does not have it."""
    try:
        return (await cluster.ask(address, GetGroupConfig(group=group))).body
    except Refused as refusal:
        if refusal.code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST:
            return None
        if refusal.code not in (ResponseCode.REQUEST_CODE_NOT_SUPPORTED, ResponseCode.SYSTEM_ERROR):
            raise
    # java: brokers before 5.0 only answer for all groups
    return (await configs(cluster, address)).get(group)


async def configs_of(cluster: Cluster, group: str) -> list[tuple[BrokerMember, SubscriptionGroupConfig]]:
    """The settings of a group on every master that has it; `NotFound` if none has."""
    masters = await cluster.masters()
    found = [(member, await config(cluster, member.address, group)) for member in masters]
    there = [(member, settings) for member, settings in found if settings is not None]
    if not there:
        everyone = await cluster.known(configs(cluster, member.address) for member in masters)
        all_names = {name for table in everyone if table is not None for name in table}
        hint = nearest(group, all_names, "`mqadmin updateSubGroup` creates it")
        raise NotFound(f"there is no group {group}; {hint}")
    return there


async def put(
    cluster: Cluster, addresses: Collection[str], wanted: SubscriptionGroupConfig
) -> dict[str, Answer]:
    return await cluster.ask_each(addresses, CreateOrUpdateGroup(body=wanted))


async def put_many(
    cluster: Cluster, addresses: Collection[str], wanted: list[SubscriptionGroupConfig]
) -> dict[str, Answer]:
    for each in wanted:
        each.attributes = as_changes(each.attributes)
    body = SubscriptionGroupList(group_config_list=wanted)
    return await cluster.ask_each(addresses, CreateOrUpdateGroups(body=body))


async def set_mode(
    cluster: Cluster, addresses: Collection[str], mode: SetMessageRequestModeRequestBody
) -> dict[str, Answer]:
    """Set whether a group pulls or pops a topic."""
    return await cluster.ask_each(addresses, SetMessageRequestMode(body=mode))


async def delete(
    cluster: Cluster, addresses: Collection[str], group: str, *, with_offsets: bool
) -> dict[str, Answer]:
    """Delete a group on brokers; its offsets stay unless `with_offsets`."""
    request = DeleteGroup(group_name=group, clean_offset=with_offsets)
    return await cluster.ask_each(addresses, request, is_change=True)


async def delete_leftovers(cluster: Cluster, group: str, cluster_name: str) -> None:
    """Delete the retry and dead-letter topics of a group in a cluster."""
    addresses = [member.address for member in await cluster.masters(cluster_name)]
    for topic in (meanings.retry_topic(group), meanings.dlq_topic(group)):
        await cluster.ask_each(addresses, DeleteTopicFromBroker(topic=topic), is_change=True)
        await forget_route(cluster, topic, cluster_name)
