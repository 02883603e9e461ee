"""Commands about topics: routes, offsets, creating, changing and deleting."""

from pathlib import Path
from typing import Annotated, Any

import click
import msgspec

from pyromq.admin import kv, offsets, topics
from pyromq.admin.attributes import TOPIC
from pyromq.admin.cluster import Cluster
from pyromq.admin.rates import Rates
from pyromq.cli.mqadmin.files import read_list
from pyromq.cli.mqadmin.options import PERMISSION, Broker, ClusterName, OptionsOf, Topic, flag, option
from pyromq.cli.mqadmin.output import Output
from pyromq.cli.mqadmin.report import Column, Fact, Facts, Report, ReportLines, Table, done, plainly
from pyromq.cli.mqadmin.running import addresses_of, admin_command, one_of
from pyromq.cli.mqadmin.times import to_milliseconds
from pyromq.cli.mqadmin.watching import Every, Rounds, rate_text, sparkline, watch
from pyromq.protocol.body import MessageQueue
from pyromq.protocol.requests.routes import TopicRouteData
from pyromq.protocol.requests.topics import TopicConfig


@admin_command("topicList")
async def topic_list(
    cluster: Cluster,
    out: Output,
    with_readers: Annotated[bool, flag("-c --clusterModel", "Show clusters and consumer groups.")] = False,
) -> None:
    """List the topics of all brokers."""
    if not with_readers:
        names = await topics.names(cluster)
        out.show(Report.of(ReportLines(names, {"topics": names})))
        return
    found = await topics.with_readers(cluster)
    columns = (
        Column("#Cluster Name", "clusterName"),
        Column("#Topic", "topic"),
        Column("#Consumer Group", "group"),
    )
    rows = [(each.cluster, each.topic, group) for each in found for group in each.groups or [""]]
    out.show(Report.of(Table("topics", columns, rows), whole={"topics": found}))


@admin_command("topicRoute")
async def topic_route(
    cluster: Cluster,
    out: Output,
    topic: Topic,
    as_list: Annotated[bool, flag("-l --list", "Print a table even in a pipe.")] = False,
) -> None:
    """Show which brokers hold a topic, and with how many queues."""
    route = await cluster.route(topic)
    if not as_list and not out.is_terminal:
        out = Output(as_json=True, is_terminal=False)  # java: JSON unless a list is asked for
    queues = {data.broker_name: data for data in route.queue_datas}
    rows: list[tuple[Any, ...]] = []
    for data in sorted(route.broker_datas, key=lambda each: each.broker_name):
        held = queues.get(data.broker_name)
        if held is not None:
            addresses = ", ".join(f"{key}={text}" for key, text in sorted(data.broker_addrs.items()))
            rows.append(
                (
                    data.cluster,
                    data.broker_name,
                    f"{{{addresses}}}",
                    held.read_queue_nums,
                    held.write_queue_nums,
                    held.perm,
                )
            )
    columns = (
        Column("#ClusterName", "clusterName"),
        Column("#BrokerName", "brokerName"),
        Column("#BrokerAddrs", "brokerAddrs"),
        Column("#ReadQueue", "readQueue"),
        Column("#WriteQueue", "writeQueue"),
        Column("#Perm", "perm"),
    )
    totals = ReportLines(
        [f"Total: brokers={len(rows)} readQueues={_sum(rows, 3)} writeQueues={_sum(rows, 4)}"]
    )
    out.show(Report.of(Table("brokers", columns, rows), totals, whole=_without_nothing(route)))


def _without_nothing(route: TopicRouteData) -> dict[str, Any]:
    """java: null members are omitted."""
    values: dict[str, Any] = msgspec.to_builtins(route)
    values["brokerDatas"] = [_given(data) for data in values["brokerDatas"]]
    return _given(values)


def _given(values: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in values.items() if value is not None}


def _sum(rows: list[tuple[Any, ...]], index: int) -> int:
    return sum(row[index] for row in rows)


@admin_command("topicStatus")
async def topic_status(
    cluster: Cluster,
    out: Output,
    topic: Topic,
    routed_as: Annotated[
        str | None, option("-c --cluster", "Use the route of this topic or cluster instead.")
    ] = None,
    every_s: Every = None,
    rounds: Rounds = None,
) -> None:
    """Show the first and last offset of each queue of a topic; with --watch, also how fast it grows."""
    rates: Rates[MessageQueue] = Rates()

    async def look() -> Report:
        stats = await topics.stats(cluster, topic, routed_as)
        ends = {queue: float(each.max_offset) for queue, each in stats.offset_table.items()}
        rates.read(ends, cluster.clock.monotonic())
        columns = [
            Column("#Broker Name", "brokerName"),
            Column("#QID", "queueId"),
            Column("#Min Offset", "minOffset"),
            Column("#Max Offset", "maxOffset"),
            Column("#Last Updated", "lastUpdated", lambda ms: to_milliseconds(ms) if ms > 0 else ""),
        ]
        rows: list[list[Any]] = [
            [queue.broker_name, queue.queue_id, each.min_offset, each.max_offset, each.last_update_timestamp]
            for queue, each in sorted(stats.offset_table.items())
        ]
        if every_s is not None:
            columns += [Column("#In/s", "inPerSecond", rate_text), Column("#Trend", "trend", sparkline)]
            for row, queue in zip(rows, sorted(stats.offset_table), strict=True):
                row += [rates.rate(queue), rates.history(queue)]
        tps = Fact("Topic Put TPS", "topicPutTps", stats.topic_put_tps)
        return Report.of(Table("queues", columns, rows), Facts([tps]))

    await watch(out, look, every_s, rounds)


@admin_command("topicClusterList")
async def topic_cluster_list(cluster: Cluster, out: Output, topic: Topic) -> None:
    """List the clusters whose brokers hold a topic."""
    names = await topics.clusters_of(cluster, topic)
    out.show(Report.of(ReportLines(names, {"clusters": names})))


@admin_command("updateTopic")
async def update_topic(
    cluster: Cluster,
    out: Output,
    *,
    broker: Broker = None,
    cluster_name: ClusterName = None,
    topic: Topic,
    settings: Annotated[dict[str, Any], OptionsOf(TOPIC)],
    unit: Annotated[bool, option("-u --unit", "Whether it belongs to a unit.")] = False,
    unit_sub: Annotated[bool, option("-s --hasUnitSub", "Whether units subscribe to it.")] = False,
    attributes: Annotated[
        str | None, option("-a --attributes", "Attributes to set and remove: +a=b,+c=d,-e")
    ] = None,
) -> None:
    """Create or change a topic, on one broker or on all masters of a cluster."""
    addresses = await addresses_of(cluster, broker, cluster_name)
    sys_flag = topics.UNIT_FLAG * unit | topics.UNIT_SUBSCRIPTION_FLAG * unit_sub
    wanted = TopicConfig(topic_name=topic, topic_sys_flag=sys_flag, **settings)
    await topics.put(cluster, addresses, wanted, attributes)
    lines = [f"create topic to {address} success." for address in addresses]
    if wanted.order:
        conf = await _fix_order(cluster, topic, wanted.write_queue_nums, broker, cluster_name)
        lines.append(f"set {'broker' if broker else 'cluster'} orderConf. isOrder=true, orderConf=[{conf}]")
    asked = msgspec.structs.replace(wanted, attributes=_signed(attributes))
    lines.append(_described(asked))
    out.show(Report.of(ReportLines(lines, {"addresses": addresses, "topicConfig": asked})))


def _signed(attributes: str | None) -> dict[str, str]:
    """java: a change of attributes is shown with the signs on their names"""
    parts = (part.strip().partition("=") for part in (attributes or "").split(",") if part.strip())
    return {name: value for name, _, value in parts}


async def _fix_order(
    cluster: Cluster, topic: str, queues: int, broker: str | None, cluster_name: str | None
) -> str:
    if broker is not None:
        name = await cluster.broker_name(broker) if ":" in broker else broker
        return await kv.add_order(cluster, topic, name, queues)
    names = [member.broker_name for member in await cluster.masters(cluster_name)]
    conf = ";".join(f"{name}:{queues}" for name in names)
    await kv.put_order(cluster, topic, conf)
    return conf


def _described(config: TopicConfig) -> str:
    values = msgspec.to_builtins(config)
    return "TopicConfig [" + ", ".join(f"{key}={plainly(value)}" for key, value in values.items()) + "]"


@admin_command("updateTopicList")
async def update_topic_list(
    cluster: Cluster,
    out: Output,
    *,
    broker: Broker = None,
    cluster_name: ClusterName = None,
    file: Annotated[Path, option("-f --filename", "A JSON list of topics, or a file of `exportMetadata`.")],
) -> None:
    """Create or change the topics in a JSON list, or in a file that `exportMetadata -b` wrote."""
    one_of(broker, cluster_name)
    wanted = read_list(file, TopicConfig, "topicConfigTable")
    addresses = await addresses_of(cluster, broker, cluster_name)
    await topics.put_many(cluster, addresses, wanted)
    lines = [f"submit batch of topic config to {address} success." for address in addresses]
    names = [each.topic_name for each in wanted]
    out.show(Report.of(ReportLines(lines, {"addresses": addresses, "topics": names})))


@admin_command("updateTopicPerm")
async def update_topic_perm(
    cluster: Cluster,
    out: Output,
    *,
    broker: Broker = None,
    cluster_name: ClusterName = None,
    topic: Topic,
    perm: Annotated[int, option("-p --perm", "2 allows writing, 4 reading, 6 both.", PERMISSION)],
) -> None:
    """Change the permission of a topic, and nothing else."""
    addresses = await addresses_of(cluster, broker, cluster_name)
    await cluster.route(topic)
    before = {address: await topics.set_permission(cluster, address, topic, perm) for address in addresses}
    lines = [
        f"update topic perm from {old} to {perm} in {address} success." for address, old in before.items()
    ]
    out.show(Report.of(ReportLines(lines, {"topic": topic, "perm": perm, "before": before})))


@admin_command("updateOrderConf")
async def update_order_conf(
    cluster: Cluster,
    out: Output,
    *,
    topic: Topic,
    conf: Annotated[str | None, option("-v --orderConf", "The queues: broker1:num;broker2:num")] = None,
    method: Annotated[str, option("-m --method", "The operation.", click.Choice(["put", "get", "delete"]))],
) -> None:
    """Set, get or delete the fixed queues of an ordered topic: they keep the order while brokers are down."""
    if method == "put":
        if not conf:
            raise click.UsageError("-m put needs the queues: -v broker1:num;broker2:num")
        await kv.put_order(cluster, topic, conf)
        text = f"update orderConf success. topic=[{topic}], orderConf=[{conf}]"
    elif method == "get":
        conf = await kv.get(cluster, kv.ORDER_NAMESPACE, topic)
        text = f"get orderConf success. topic=[{topic}], orderConf=[{conf}]"
    else:
        conf = None
        await kv.delete(cluster, kv.ORDER_NAMESPACE, topic)
        text = f"delete orderConf success. topic=[{topic}]"
    out.show(done(text, topic=topic, orderConf=conf))


@admin_command("purgeQueue")
async def purge_queue(
    cluster: Cluster,
    out: Output,
    *,
    broker: Broker = None,
    cluster_name: ClusterName = None,
    topic: Topic,
    queue_id: Annotated[int | None, option("-q --queueId", "This queue only.")] = None,
    offset: Annotated[
        int | None, option("-o --offset", "Keep the messages from this offset on; needs -q.")
    ] = None,
) -> None:
    """Purge queues: messages before an offset are no longer delivered. Without -o, all of them are purged."""
    if offset is not None and queue_id is None:
        raise click.UsageError("--offset needs the queue: -q")
    rows = [
        (address, each, first)
        for address in await addresses_of(cluster, broker, cluster_name)
        for each, first in (
            await topics.purge(cluster, address, topic, queue_id, -1 if offset is None else offset)
        ).items()
    ]
    columns = (Column("#Broker", "broker"), Column("#QID", "queueId"), Column("#Min Offset", "minOffset"))
    out.show(Report.of(Table("queues", columns, rows)))


@admin_command("deleteTopic")
async def delete_topic(
    cluster: Cluster,
    out: Output,
    topic: Topic,
    cluster_name: Annotated[str, option("-c --clusterName", "The cluster it is in.")],
) -> None:
    """Delete a topic and its messages, on all masters of a cluster and in all name servers."""
    addresses = await topics.delete(cluster, topic, cluster_name)
    lines = [
        f"delete topic [{topic}] from cluster [{cluster_name}] success.",
        f"delete topic [{topic}] from NameServer success.",
    ]
    out.show(Report.of(ReportLines(lines, {"topic": topic, "addresses": addresses})))


@admin_command("allocateMQ")
async def allocate_mq(
    cluster: Cluster,
    out: Output,
    topic: Topic,
    members: Annotated[str, option("-i --ipList", "The members: ip1,ip2")],
) -> None:
    """Show which queues each member would get from the average allocation strategy."""
    named = [name for name in map(str.strip, members.split(",")) if name]
    if not named:
        raise click.UsageError("-i is empty: expected ip1,ip2")
    division = offsets.divide_evenly(offsets.readable_queues(topic, await cluster.route(topic)), named)
    columns = (
        Column("#Member", "member"),
        Column("#Broker Name", "brokerName"),
        Column("#QID", "queueId"),
    )
    rows = [
        (member, queue.broker_name, queue.queue_id) for member, queues in division.items() for queue in queues
    ]
    if not out.is_terminal:
        out = Output(as_json=True, is_terminal=False)  # java: always JSON
    out.show(Report.of(Table("result", columns, rows), whole={"result": division}))
