"""Commands about lite topics: what brokers have, who reads them, how far groups are behind."""

from typing import Annotated

from pyromq.admin import lite
from pyromq.admin.cluster import Cluster
from pyromq.admin.failures import NotFound
from pyromq.cli.mqadmin.options import Broker, ClusterName, flag, option
from pyromq.cli.mqadmin.output import Output
from pyromq.cli.mqadmin.report import Column, Fact, Facts, Report, ReportLines, Table, done
from pyromq.cli.mqadmin.running import addresses_of, admin_command
from pyromq.cli.mqadmin.times import to_milliseconds
from pyromq.protocol.names import lite_queue
from pyromq.protocol.requests.lite import LiteLagInfo

Parent = Annotated[str, option("-p --parentTopic", "The topic of type LITE.")]
_LiteTopic = Annotated[str, option("-l --liteTopic", "The lite topic.")]
_Group = Annotated[str, option("-g --group", "The group.")]
_TIME = to_milliseconds


@admin_command("getBrokerLiteInfo")
async def get_broker_lite_info(
    cluster: Cluster,
    out: Output,
    *,
    broker: Broker = None,
    cluster_name: ClusterName = None,
    details: Annotated[bool, flag("-d --showDetail", "Show topics and groups.")] = False,
) -> None:
    """Show how many lite topics and subscriptions brokers have."""
    found = await lite.brokers(cluster, await addresses_of(cluster, broker, cluster_name))
    columns = (
        Column("#Broker", "broker"),
        Column("#Store Type", "storeType"),
        Column("#Max LMQ", "maxLmqNum"),
        Column("#Current LMQ", "currentLmqNum"),
        Column("#SubscriptionCount", "liteSubscriptionCount"),
        Column("#OrderInfoCount", "orderInfoCount"),
        Column("#CQTableSize", "cqTableSize"),
        Column("#OffsetTableSize", "offsetTableSize"),
        Column("#eventMapSize", "eventMapSize"),
    )
    rows = [
        (
            address,
            info.store_type,
            info.max_lmq_num,
            info.current_lmq_num,
            info.lite_subscription_count,
            info.order_info_count,
            info.cq_table_size,
            info.offset_table_size,
            info.event_map_size,
        )
        for address, info in found.items()
    ]
    parts: list[Table | ReportLines] = [Table("brokers", columns, rows)]
    if details:
        parts.append(
            ReportLines(
                [
                    f"{address}: Topic Meta: {info.topic_meta} Group Meta: "
                    f"{ {topic: sorted(groups) for topic, groups in info.group_meta.items()} }"
                    for address, info in found.items()
                ]
            )
        )
    out.show(Report.of(*parts, whole={"brokers": found} if details else None))


@admin_command("getParentTopicInfo")
async def get_parent_topic_info(cluster: Cluster, out: Output, parent: Parent) -> None:
    """Show how many lite topics a topic has, and which groups read them."""
    found = await lite.parent(cluster, parent)
    columns = (
        Column("#Broker Name", "brokerName"),
        Column("#TTL", "ttl"),
        Column("#Lite Count", "liteTopicCount"),
        Column("#LMQ NUM", "lmqNum"),
        Column("#GROUPS", "groups"),
    )
    rows = [
        (name, info.ttl, info.lite_topic_count, info.lmq_num, sorted(info.groups))
        for name, info in found.items()
    ]
    out.show(Report.of(Table("brokers", columns, rows, f"Parent Topic Info: [{parent}]")))


@admin_command("getLiteTopicInfo")
async def get_lite_topic_info(
    cluster: Cluster,
    out: Output,
    parent: Parent,
    lite_topic: _LiteTopic,
    clients: Annotated[bool, flag("-s --showClientId", "Show the clients that read it.")] = False,
) -> None:
    """Show the offsets of a lite topic, and how many clients read it."""
    found = await lite.lite_topic(cluster, parent, lite_topic)
    columns = (
        Column("#Broker Name", "brokerName"),
        Column("#MinOffset", "minOffset"),
        Column("#MaxOffset", "maxOffset"),
        Column("#LastUpdate", "lastUpdate", _TIME),
        Column("#Sharding", "sharding"),
        Column("#SubClientCount", "subClientCount"),
    )
    rows = [
        (
            name,
            info.topic_offset.min_offset,
            info.topic_offset.max_offset,
            info.topic_offset.last_update_timestamp,
            info.sharding_to_broker,
            len(info.subscriber),
        )
        for name, info in found.items()
        if info.topic_offset is not None
    ]
    title = f"Lite Topic Info: [{parent}] [{lite_topic}] [{lite_queue(parent, lite_topic)}]"
    parts = [Table("brokers", columns, rows, title)]
    if clients:
        readers = [
            (name, each.client_id, each.group) for name, info in found.items() for each in info.subscriber
        ]
        heads = (
            Column("#Broker Name", "brokerName"),
            Column("#ClientId", "clientId"),
            Column("#Group", "group"),
        )
        parts.append(Table("clients", heads, readers))
    out.show(Report(parts))


@admin_command("getLiteClientInfo")
async def get_lite_client_info(
    cluster: Cluster,
    out: Output,
    parent: Parent,
    group: _Group,
    client_id: Annotated[str, option("-c --clientId", "The client.")],
    names: Annotated[bool, flag("-s --showDetail", "Show the lite topics.")] = False,
) -> None:
    """Show how many lite topics a client reads."""
    found = await lite.client(cluster, parent, group, client_id)
    columns = (
        Column("#Broker", "broker"),
        Column("#LiteTopicCount", "liteTopicCount"),
        Column("#LastAccessTime", "lastAccessTime", _TIME),
    )
    rows = [(name, info.lite_topic_count, info.last_access_time) for name, info in found.items()]
    parts: list[Table | ReportLines] = [
        Table("brokers", columns, rows, f"Lite Client Info: [{parent}] [{group}] [{client_id}]")
    ]
    if names:
        told = {name: sorted(info.lite_topic_set) for name, info in found.items()}
        parts.append(ReportLines([f"Lite Topics: {each}" for each in told.values()], {"liteTopics": told}))
    out.show(Report(parts))


@admin_command("getLiteGroupInfo")
async def get_lite_group_info(
    cluster: Cluster,
    out: Output,
    *,
    parent: Parent,
    group: _Group,
    lite_topic: Annotated[str | None, option("-l --liteTopic", "This lite topic only.")] = None,
    top: Annotated[
        int, option("-k --topK", "Number of lite topics to show, largest lag first.", type=int)
    ] = 20,
) -> None:
    """Show how far a group is behind: in one lite topic, or in all."""
    found = await lite.group(cluster, parent, group, lite_topic, top)
    parts: list[Table | Facts] = []
    if lite_topic is not None:
        columns = (
            Column("#Broker Name", "brokerName"),
            Column("#BrokerOffset", "brokerOffset"),
            Column("#ConsumeOffset", "consumeOffset"),
            Column("#LagCount", "lagCount"),
            Column("#LastUpdate", "lastUpdate", _TIME),
        )
        rows = [
            (name, at.broker_offset, at.consumer_offset, info.total_lag_count, at.last_timestamp)
            for name, info in found.items()
            if (at := info.lite_topic_offset_wrapper) is not None
        ]
        parts.append(Table("brokers", columns, rows, f"Lite Group Info: [{group}] [{parent}]"))
    times = [info.earliest_unconsumed_timestamp for info in found.values()]
    oldest = min((each for each in times if each >= 0), default=-1)
    parts.append(
        Facts(
            [
                Fact(
                    "Total Lag Count", "totalLagCount", sum(each.total_lag_count for each in found.values())
                ),
                Fact("Min Unconsumed Timestamp", "minUnconsumedTimestamp", oldest),
            ]
        )
    )
    if lite_topic is None:
        by_count = [(name, each) for name, info in found.items() for each in info.lag_count_top_k]
        by_time = [(name, each) for name, info in found.items() for each in info.lag_timestamp_top_k]
        by_count.sort(key=lambda each: -each[1].lag_count)
        by_time.sort(key=lambda each: each[1].earliest_unconsumed_timestamp)
        parts += [_lags("lagCountTopK", by_count[:top]), _lags("lagTimestampTopK", by_time[:top])]
    out.show(Report(parts))


def _lags(key: str, lags: list[tuple[str, LiteLagInfo]]) -> Table:
    columns = (
        Column("#Broker Name", "brokerName"),
        Column("#Lite Topic", "liteTopic"),
        Column("#LagCount", "lagCount"),
        Column("#UnconsumedTimestamp", "earliestUnconsumedTimestamp", _TIME),
    )
    rows = [(name, at.lite_topic, at.lag_count, at.earliest_unconsumed_timestamp) for name, at in lags]
    return Table(key, columns, rows)


@admin_command("triggerLiteDispatch")
async def trigger_lite_dispatch(
    cluster: Cluster,
    out: Output,
    *,
    parent: Parent,
    group: _Group,
    client_id: Annotated[str | None, option("-c --clientId", "This client only.")] = None,
    broker_name: Annotated[str | None, option("-b --brokerName", "This broker only.")] = None,
) -> None:
    """Make brokers check the lite topics of a group for messages."""
    names = await lite.dispatch(cluster, parent, group, client_id, broker_name)
    lines = [f"Group And Topic Info: [{group}] [{parent}]", *(f"{name}: dispatched" for name in names)]
    out.show(Report.of(ReportLines(lines, {"group": group, "brokers": names})))


@admin_command("listLiteTopics")
async def list_lite_topics(cluster: Cluster, out: Output, parent: Parent) -> None:
    """List the lite topics of a topic that have messages."""
    found = await lite.names(cluster, parent)
    columns = Column("#Lite Topic", "liteTopic"), Column("#Brokers", "brokers")
    out.show(Report.of(Table("liteTopics", columns, list(found.items()))))


@admin_command("deleteLiteTopic")
async def delete_lite_topic(cluster: Cluster, out: Output, parent: Parent, lite_topic: _LiteTopic) -> None:
    """Delete a lite topic and the offsets of its groups. Its messages stay in the parent topic."""
    brokers = await lite.delete(cluster, parent, lite_topic)
    if not brokers:
        raise NotFound(
            f"the topic {parent} has no lite topic {lite_topic}; `mqadmin listLiteTopics` shows all of them"
        )
    out.show(done(f"delete lite topic [{lite_topic}] of [{parent}] success.", brokers=brokers))
