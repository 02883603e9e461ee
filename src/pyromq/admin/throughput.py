"""Messages in and out, by topic and group, over the last minute and day."""

import msgspec

from pyromq.admin import brokers, topics
from pyromq.admin.cluster import Cluster
from pyromq.admin.offsets import lag, total_diff
from pyromq.protocol.names import MASTER_ID
from pyromq.protocol.requests.routes import TopicRouteData


class Throughput(msgspec.Struct, frozen=True, rename="camel"):
    """The rates of a topic and one of its groups; `group` is None for a topic without consumers."""

    topic: str
    group: str | None
    accumulation: int
    in_tps: float
    out_tps: float
    in_last_day: int
    out_last_day: int


async def of_topic(cluster: Cluster, topic: str) -> list[Throughput]:
    """One entry for each group of a topic, or one for the topic alone."""
    route = await cluster.route(topic)
    in_tps, in_last_day = await _sums(cluster, route, brokers.TOPIC_PUT_NUMS, topic)
    found: list[Throughput] = []
    for group in await topics.readers(cluster, topic):
        out_tps, out_last_day = await _sums(cluster, route, brokers.GROUP_GET_NUMS, f"{topic}@{group}")
        (stats,) = await cluster.known([lag(cluster, group, topic)])
        behind = 0 if stats is None else max(0, total_diff(stats))
        found.append(Throughput(topic, group, behind, in_tps, out_tps, in_last_day, out_last_day))
    return found or [Throughput(topic, None, 0, in_tps, 0.0, in_last_day, 0)]


async def of_cluster(
    cluster: Cluster, topic: str | None = None, *, active_only: bool = False
) -> list[Throughput]:
    """One entry for each group of every topic except retry and dead-letter topics, or of one topic;
    with `active_only` without those that had no message in a day."""
    if topic is not None:
        await cluster.route(topic)
        wanted = [topic]
    else:
        wanted = [name for name in await topics.names(cluster) if not topics.is_derived(name)]
    found = await of_topics(cluster, wanted)
    return [each for each in found if not active_only or each.in_last_day or each.out_last_day]


async def of_topics(cluster: Cluster, wanted: list[str]) -> list[Throughput]:
    found = await cluster.known(of_topic(cluster, topic) for topic in wanted)
    return [line for lines in found if lines is not None for line in lines]


async def _sums(cluster: Cluster, route: TopicRouteData, name: str, key: str) -> tuple[float, int]:
    """The rate and the last day of a counter, summed over all masters of a route."""
    masters = [data.broker_addrs[MASTER_ID] for data in route.broker_datas if MASTER_ID in data.broker_addrs]
    counters = await cluster.known(brokers.counter(cluster, address, name, key) for address in masters)
    there = [counter for counter in counters if counter is not None]
    rate = sum(counter.stats_minute.tps for counter in there if counter.stats_minute is not None)
    return rate, sum(map(brokers.last_day, there))
