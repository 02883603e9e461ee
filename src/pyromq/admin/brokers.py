"""Operations on brokers: runtime figures, settings, counters, cleaning up."""

from collections.abc import Collection

import msgspec

from pyromq.admin.cluster import BrokerMember, Cluster
from pyromq.admin.name_servers import add_write_permission, require_setting, settings_of
from pyromq.config.properties import render
from pyromq.protocol import names
from pyromq.protocol.codes import ResponseCode
from pyromq.protocol.requests.inspection import (
    BrokerStatsData,
    ConsumeStatsList,
    GetBrokerConsumeStats,
    GetBrokerRuntimeInfo,
    GetBrokerStatistics,
    QueryConsumeQueue,
    QueryConsumeQueueResponseBody,
)
from pyromq.protocol.requests.popping import RollBackPopStore
from pyromq.protocol.requests.replication import GetHaStatus, HARuntimeInfo, ResetMasterFlushOffset
from pyromq.protocol.requests.settings import GetBrokerConfig, UpdateBrokerConfig
from pyromq.protocol.requests.upkeep import (
    CleanExpiredConsumeQueues,
    CleanUnusedTopics,
    DeleteExpiredCommitLog,
    SetCommitLogReadMode,
)

TOPIC_PUT_NUMS, GROUP_GET_NUMS = "TOPIC_PUT_NUMS", "GROUP_GET_NUMS"
"""Names of counters: by topic, and by `topic@group`."""


class BrokerStatus(msgspec.Struct, frozen=True, rename="camel"):
    """A broker and its figures, None if it did not answer."""

    member: BrokerMember
    figures: dict[str, str] | None

    def text(self, key: str, otherwise: str = "") -> str:
        return otherwise if self.figures is None else self.figures.get(key, otherwise)

    def number(self, key: str) -> float:
        """A figure as a number; the first, if the broker gives several."""
        first = self.text(key, "0").split(" ")[0]
        try:
            return float(first)
        except ValueError:
            return 0.0


async def statuses(cluster: Cluster, cluster_name: str | None = None) -> list[BrokerStatus]:
    """Every broker of a cluster, or of all clusters, with its figures."""
    members = await cluster.members(cluster_name)
    figures = await cluster.known(runtime_info(cluster, member.address) for member in members)
    return [BrokerStatus(member, table) for member, table in zip(members, figures, strict=True)]


async def runtime_info(cluster: Cluster, address: str) -> dict[str, str]:
    return (await cluster.ask(address, GetBrokerRuntimeInfo())).body.table


async def ha_status(cluster: Cluster, address: str) -> HARuntimeInfo:
    """How replication stands, seen from a master or a replica."""
    return (await cluster.ask(address, GetHaStatus())).body


async def reset_master_flush_offset(cluster: Cluster, address: str, offset: int) -> None:
    """Tell a replica how far its master has flushed the log."""
    await cluster.ask(address, ResetMasterFlushOffset(master_flush_offset=offset))


async def config(cluster: Cluster, address: str) -> dict[str, str]:
    return settings_of((await cluster.ask(address, GetBrokerConfig())).body)


async def update_config(cluster: Cluster, addresses: Collection[str], key: str, value: str) -> dict[str, str]:
    """Change a setting of running brokers; `NotFound` if one of them does not have it.

    Returns the remarks of the brokers that made one, by address.
    """
    answers = await cluster.ask_each(addresses, UpdateBrokerConfig(body=render({key: value})))
    # java: a broker ignores a setting it does not know and reports success
    for address in addresses:
        require_setting(f"broker {address}", await config(cluster, address), key)
    return {address: answer.remark for address, answer in answers.items() if answer.remark}


async def of_same_groups(cluster: Cluster, addresses: Collection[str]) -> list[BrokerMember]:
    """All members of the broker groups that have one at these addresses."""
    members = await cluster.members()
    chosen = {member.broker_name for member in members if member.address in addresses}
    return [member for member in members if member.broker_name in chosen]


async def set_drained(cluster: Cluster, broker_name: str, *, is_drained: bool) -> list[BrokerMember]:
    """Make a broker read-only, or writable again; returns the members of its group.

    Each keeps it in its settings, so it outlasts restarts and fail-over; `wipeWritePerm` ends with the name
    servers."""
    members = await of_same_groups(cluster, [await cluster.broker_address(broker_name)])
    permission = names.READ if is_drained else names.READ_WRITE
    await update_config(cluster, [each.address for each in members], "brokerPermission", str(permission))
    if not is_drained:
        await add_write_permission(cluster, broker_name)
    return members


async def consume_stats(
    cluster: Cluster, address: str, *, ordered_only: bool = False, timeout_s: float | None = None
) -> ConsumeStatsList:
    return (await cluster.ask(address, GetBrokerConsumeStats(is_order=ordered_only), timeout_s)).body


async def counter(cluster: Cluster, address: str, name: str, key: str) -> BrokerStatsData | None:
    """One counter over the last minute, hour and day; None if nothing was counted."""
    request = GetBrokerStatistics(stats_name=name, stats_key=key)
    # java: a broker answers SYSTEM_ERROR for a counter that does not exist
    answer = await cluster.ask_unless(ResponseCode.SYSTEM_ERROR, address, request)
    return None if answer is None else answer.body


def last_day(data: BrokerStatsData) -> int:
    """The count over the longest span that has one."""
    spans = (data.stats_day, data.stats_hour, data.stats_minute)
    return next((span.sum for span in spans if span is not None and span.sum), 0)


async def consume_queue(
    cluster: Cluster,
    address: str,
    topic: str,
    queue_id: int,
    index: int,
    count: int,
    group: str | None = None,
) -> QueryConsumeQueueResponseBody:
    """Entries of a consume queue, and whether the filter of a group matches them."""
    request = QueryConsumeQueue(
        topic=topic, queue_id=queue_id, index=index, count=count, consumer_group=group
    )
    return (await cluster.ask(address, request)).body


async def set_read_ahead(cluster: Cluster, address: str, is_on: bool) -> str | None:
    """Have a broker read its log ahead of readers, or not; returns its remark."""
    return (await cluster.ask(address, SetCommitLogReadMode(mode=0 if is_on else 1))).remark


async def export_pop_records(cluster: Cluster, addresses: Collection[str]) -> None:
    """Have brokers write the state of pops into their logs; ours always have it there."""
    await cluster.ask_each(addresses, RollBackPopStore())


# Cleaning up


async def clean_expired_queues(cluster: Cluster, addresses: Collection[str]) -> list[str]:
    return list(await cluster.ask_each(addresses, CleanExpiredConsumeQueues()))


async def delete_expired_log(cluster: Cluster, addresses: Collection[str]) -> list[str]:
    return list(await cluster.ask_each(addresses, DeleteExpiredCommitLog()))


async def clean_unused_topics(cluster: Cluster, addresses: Collection[str]) -> list[str]:
    return list(await cluster.ask_each(addresses, CleanUnusedTopics()))
