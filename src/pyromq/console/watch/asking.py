"""The questions to one broker, each one function of `admin`, and where their answers go.

A broker of ours is asked for its figures since the last answer. A broker of Apache is asked for its topics,
offsets and lags, each at its own pace, and these are decoded aside.
"""

from pyromq.admin import brokers, controllers, figures, offsets, progress, topics
from pyromq.admin.cluster import Cluster
from pyromq.console.watch.aside import Aside
from pyromq.console.watch.broker_part import BrokerPart, BrokerQueueLag, GroupOfTopic
from pyromq.console.watch.values import BrokerKind, ControlledGroup
from pyromq.protocol.requests.controller import ReplicaIdentity

LAGS_TIMEOUT_S = 30.0


async def runtime(cluster: Cluster, part: BrokerPart) -> None:
    part.runtime = await brokers.runtime_info(cluster, part.member.address)


async def controller(
    cluster: Cluster, address: str, names: list[str]
) -> tuple[bool, tuple[ControlledGroup, ...] | None]:
    """Whether this controller leads and, if so, what it knows of these broker groups."""
    if not (await controllers.metadata(cluster, address)).is_leader:
        return False, None
    table = await controllers.known_replicas(cluster, address, names)
    return True, tuple(
        ControlledGroup(
            name,
            known.master_broker_id if known.master_address else None,
            known.master_epoch,
            _ids(known.in_sync_replicas),
            _ids(known.not_in_sync_replicas),
            known.undecided or "",
        )
        for name, known in sorted(table.items())
    )


def _ids(replicas: list[ReplicaIdentity]) -> tuple[int, ...]:
    return tuple(sorted(each.broker_id for each in replicas if each.broker_id is not None))


async def bulk(cluster: Cluster, part: BrokerPart) -> bool:
    """Ask for all figures at once; False if the broker does not know the request."""
    told = await figures.since(cluster, part.member.address, part.version)
    if told is None:
        part.source = BrokerKind.APACHE
        return False
    part.take_figures(*told, cluster.clock.monotonic())
    return True


async def topic_table(cluster: Cluster, part: BrokerPart) -> None:
    part.take_topics(await topics.configs(cluster, part.member.address))


async def settings(cluster: Cluster, part: BrokerPart) -> None:
    part.settings = await brokers.config(cluster, part.member.address)


async def offset_table(aside: Aside, part: BrokerPart, now_s: float) -> None:
    address = part.member.address

    async def question(cluster: Cluster) -> dict[GroupOfTopic, int]:
        return await offsets.totals(cluster, address)

    part.take_offsets(await aside.run(question), now_s)


async def lag_table(aside: Aside, part: BrokerPart, now_s: float) -> None:
    address = part.member.address

    async def question(cluster: Cluster) -> tuple[list[BrokerQueueLag], list[str]]:
        stats = await brokers.consume_stats(cluster, address, timeout_s=LAGS_TIMEOUT_S)
        return [
            BrokerQueueLag(
                each.queue.topic,
                each.group,
                each.queue.queue_id,
                each.broker_offset,
                each.consumer_offset,
                each.last_timestamp,
            )
            for each in progress.all_queues(stats)
        ], progress.groups_in(stats)

    part.take_lags(*await aside.run(question), now_s)
