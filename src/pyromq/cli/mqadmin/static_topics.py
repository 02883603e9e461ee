"""Commands about static topics: creating them, giving them more queues, moving their queues."""

import tempfile
from pathlib import Path
from typing import Annotated, Any

import click

from pyromq.admin import static_topics
from pyromq.admin.cluster import Cluster
from pyromq.cli.mqadmin.files import read_json, write_json
from pyromq.cli.mqadmin.options import Topic, flag, option
from pyromq.cli.mqadmin.output import Output
from pyromq.cli.mqadmin.report import Column, Report, ReportLines, Table
from pyromq.cli.mqadmin.running import admin_command
from pyromq.protocol.requests.topics import TopicRemappingDetailWrapper
from pyromq.protocol.static_topics import whole

Brokers = Annotated[str | None, option("-b --brokers", "Names of brokers: broker-a,broker-b")]
Clusters = Annotated[str | None, option("-c --clusters", "All brokers of these clusters: c1,c2")]
MapFile = Annotated[
    Path | None, option("-mf --mapFile", "Carry out the plan in this file, which an earlier call wrote.")
]
Force = Annotated[
    bool,
    option("-fr --forceReplace", "Replace mappings without the checks of epochs; only for repairs with -mf."),
]
Plan = Annotated[bool, flag("--plan", "Only write the plan and show it; -mf carries it out.")]


@admin_command("updateStaticTopic")
async def update_static_topic(
    cluster: Cluster,
    out: Output,
    *,
    topic: Topic,
    total: Annotated[
        int | None, option("-qn --totalQueueNum", "How many queues it has then.", click.IntRange(min=1))
    ] = None,
    brokers: Brokers = None,
    clusters: Clusters = None,
    map_file: MapFile = None,
    force: Force = False,
    only_plan: Plan = False,
) -> None:
    """Create a static topic, or give one more queues."""
    if map_file is not None:
        plan = static_topics.verified(read_json(map_file, TopicRemappingDetailWrapper), topic)
    else:
        if total is None:
            raise click.UsageError("give the number of queues: -qn")
        known = await static_topics.holders(cluster, topic)
        targets = await _targets(cluster, brokers, clusters)
        plan = static_topics.grown(topic, total, targets, known, cluster.clock.now_ms())
        _write(static_topics.before(topic, known), plan)
    await _carry_out(cluster, out, plan, force=force, only_plan=only_plan)


@admin_command("remappingStaticTopic")
async def remapping_static_topic(
    cluster: Cluster,
    out: Output,
    *,
    topic: Topic,
    brokers: Brokers = None,
    clusters: Clusters = None,
    map_file: MapFile = None,
    force: Force = False,
    only_plan: Plan = False,
) -> None:
    """Move the queues of a static topic, so that only these brokers lead them."""
    if map_file is not None:
        plan = static_topics.verified(read_json(map_file, TopicRemappingDetailWrapper), topic)
    else:
        known = await static_topics.holders(cluster, topic)
        targets = await _targets(cluster, brokers, clusters)
        plan = static_topics.moved(topic, targets, known, cluster.clock.now_ms())
        _write(static_topics.before(topic, known), plan)
    await _carry_out(cluster, out, plan, force=force, only_plan=only_plan)


async def _targets(cluster: Cluster, brokers: str | None, clusters: str | None) -> set[str]:
    if (brokers is None) == (clusters is None):
        raise click.UsageError("give either -b BROKERS or -c CLUSTERS; `mqadmin clusterList` shows both")
    if brokers is not None:
        named = {name.strip() for name in brokers.split(",") if name.strip()}
        for name in named:
            await cluster.broker_address(name)
    else:
        wanted = [name.strip() for name in (clusters or "").split(",") if name.strip()]
        named = {member.broker_name for name in wanted for member in await cluster.masters(name)}
    if not named:
        raise click.UsageError("no broker is named")
    return named


def _path(plan: TopicRemappingDetailWrapper, suffix: str) -> tuple[Path, str]:
    # java: the same names in the same place
    return Path(tempfile.gettempdir()), f"{plan.topic}-{plan.epoch}.{suffix}"


def _write(old: TopicRemappingDetailWrapper, new: TopicRemappingDetailWrapper) -> None:
    for what, plan, suffix in (("old", old, "before"), ("new", new, "after")):
        path = write_json(*_path(plan, suffix), plan)
        click.echo(f"The {what} mapping data is written to file {path}", err=True)


async def _carry_out(
    cluster: Cluster, out: Output, plan: TopicRemappingDetailWrapper, *, force: bool, only_plan: bool
) -> None:
    if not only_plan:
        await static_topics.carry_out(cluster, plan, force=force)
    rows: list[tuple[Any, ...]] = [
        (number, items[-1].bname, items[-1].queue_id, len(items))
        for number, items in whole(
            each.mapping_detail for each in plan.broker_config_map.values() if each.mapping_detail is not None
        ).items()
    ]
    columns = (
        Column("#QID", "queueId"),
        Column("#Broker Name", "brokerName"),
        Column("#Broker QID", "brokerQueueId"),
        Column("#Parts", "parts"),
    )
    done = f"static topic {plan.topic}: epoch {plan.epoch} is in force."
    if only_plan:
        done = "Nothing is changed yet."
    out.show(Report.of(Table("queues", columns, rows), ReportLines([done], {"epoch": plan.epoch})))
