"""Exports to files, in the form that Apache's tool writes."""

from pathlib import Path
from typing import Annotated, Any

from pyromq.admin import exports
from pyromq.admin.cluster import Cluster
from pyromq.cli.mqadmin.files import write_json
from pyromq.cli.mqadmin.options import Broker, ClusterName, flag, option
from pyromq.cli.mqadmin.output import Output
from pyromq.cli.mqadmin.report import done
from pyromq.cli.mqadmin.running import addresses_of, admin_command

_Cluster = Annotated[str, option("-c --clusterName", "The cluster.")]
_HERE = Path("/tmp/rocketmq/export")
_Directory = Annotated[Path, option("-f --filePath", "The directory to write to.", metavar="DIR")]


def _tell(out: Output, path: Path) -> None:
    out.show(done(f"export {path} success", path=str(path)))


@admin_command("exportConfigs")
async def export_configs(
    cluster: Cluster, out: Output, cluster_name: _Cluster, directory: _Directory = _HERE
) -> None:
    """Write the main settings of a cluster's brokers to configs.json."""
    _tell(out, write_json(directory, "configs.json", await exports.configs(cluster, cluster_name)))


@admin_command("exportMetadata")
async def export_metadata(
    cluster: Cluster,
    out: Output,
    broker: Broker = None,
    cluster_name: ClusterName = None,
    directory: _Directory = _HERE,
    only_topics: Annotated[bool, flag("-t --topic", "Only topics, to topic.json.")] = False,
    only_groups: Annotated[
        bool, flag("-g --subscriptionGroup", "Only groups, to subscriptionGroup.json.")
    ] = False,
    derived: Annotated[bool, flag("-s --specialTopic", "Include retry and dead-letter topics.")] = False,
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
async def export_metrics(
    cluster: Cluster, out: Output, cluster_name: _Cluster, directory: _Directory = _HERE
) -> None:
    """Write the rates, totals and clients of a cluster's masters to metrics.json."""
    _tell(out, write_json(directory, "metrics.json", await exports.metrics(cluster, cluster_name)))
