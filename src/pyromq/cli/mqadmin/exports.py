"""Exports to files, in the form that Apache's tool writes."""

from pathlib import Path
from typing import Any

import click

from pyromq.admin import exports
from pyromq.admin.cluster import Cluster
from pyromq.cli.mqadmin.files import write_json
from pyromq.cli.mqadmin.output import Output
from pyromq.cli.mqadmin.report import done
from pyromq.cli.mqadmin.running import FILE, TEXT, addresses_of, admin_command, where_options

_CLUSTER = click.option("-c", "--clusterName", "cluster_name", type=TEXT, required=True, help="The cluster.")
_DIRECTORY = click.option(
    "-f",
    "--filePath",
    "directory",
    type=FILE,
    default="/tmp/rocketmq/export",
    show_default=True,
    metavar="DIR",
    help="The directory to write to.",
)


def _tell(out: Output, path: Path) -> None:
    out.show(done(f"export {path} success", path=str(path)))


@admin_command("exportConfigs")
@_CLUSTER
@_DIRECTORY
async def export_configs(cluster: Cluster, out: Output, cluster_name: str, directory: Path) -> None:
    """Write the main settings of a cluster's brokers to configs.json."""
    _tell(out, write_json(directory, "configs.json", await exports.configs(cluster, cluster_name)))


@admin_command("exportMetadata")
@where_options
@_DIRECTORY
@click.option("-t", "--topic", "only_topics", is_flag=True, help="Only topics, to topic.json.")
@click.option(
    "-g", "--subscriptionGroup", "only_groups", is_flag=True, help="Only groups, to subscriptionGroup.json."
)
@click.option("-s", "--specialTopic", "derived", is_flag=True, help="Include retry and dead-letter topics.")
async def export_metadata(
    cluster: Cluster,
    out: Output,
    broker: str | None,
    cluster_name: str | None,
    directory: Path,
    only_topics: bool,
    only_groups: bool,
    derived: bool,
) -> None:
    """Write the topics and groups of a broker or cluster to metadata.json; queue numbers are added up."""
    addresses = await addresses_of(cluster, broker, cluster_name)
    name = "topic.json" if only_topics else "subscriptionGroup.json" if only_groups else "metadata.json"
    content: dict[str, Any] = {}
    if not only_groups or only_topics:
        content["topicConfigTable"] = await exports.topic_table(cluster, addresses, derived=derived)
    if not only_topics:
        content["subscriptionGroupTable"] = await exports.group_table(cluster, addresses)
    content["exportTime"] = cluster.clock.now_ms()
    _tell(out, write_json(directory, name, content))


@admin_command("exportMetrics")
@_CLUSTER
@_DIRECTORY
async def export_metrics(cluster: Cluster, out: Output, cluster_name: str, directory: Path) -> None:
    """Write the rates, totals and clients of a cluster's masters to metrics.json."""
    _tell(out, write_json(directory, "metrics.json", await exports.metrics(cluster, cluster_name)))
