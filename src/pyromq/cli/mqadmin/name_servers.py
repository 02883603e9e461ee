"""Commands about name servers: settings, key-value entries, write permissions, and where they disagree."""

from typing import Annotated

from pyromq.admin import kv, name_servers, route_differences
from pyromq.admin.cluster import Cluster
from pyromq.cli.mqadmin.options import option
from pyromq.cli.mqadmin.output import Output
from pyromq.cli.mqadmin.report import Column, Facts, Report, ReportLines, Table, done
from pyromq.cli.mqadmin.running import admin_command

_Namespace = Annotated[str, option("-s --namespace", "The namespace.")]
_Key = Annotated[str, option("-k --key", "The key.")]
_Value = Annotated[str, option("-v --value", "The value.")]
_Broker = Annotated[str, option("-b --brokerName", "The broker's name.")]


@admin_command("getNamesrvConfig")
async def get_namesrv_config(cluster: Cluster, out: Output) -> None:
    """Show the settings of every name server."""
    found = await name_servers.config(cluster)
    out.show(
        Report(
            [
                Facts.of(settings, "{0:<50}=  {1}", address, f"============{address}============")
                for address, settings in found.items()
            ]
        )
    )


@admin_command("updateNamesrvConfig")
async def update_namesrv_config(cluster: Cluster, out: Output, key: _Key, value: _Value) -> None:
    """Change a setting of every name server."""
    answers = await name_servers.update_config(cluster, key, value)
    remarks = {address: remark for address, remark in answers.items() if remark}
    lines = [f"update name server config success!{', '.join(answers)}", f"{key} : {value}"]
    lines += [f"{address}: {remark}" for address, remark in remarks.items()]
    values = {"key": key, "value": value, "addresses": list(answers), "remarks": remarks}
    out.show(Report.of(ReportLines(lines, values)))


@admin_command("updateKvConfig")
async def update_kv_config(
    cluster: Cluster, out: Output, namespace: _Namespace, key: _Key, value: _Value
) -> None:
    """Set a key of a namespace, in every name server."""
    await kv.put(cluster, namespace, key, value)
    out.show(
        done("create or update kv config to namespace success.", namespace=namespace, key=key, value=value)
    )


@admin_command("deleteKvConfig")
async def delete_kv_config(cluster: Cluster, out: Output, namespace: _Namespace, key: _Key) -> None:
    """Remove a key of a namespace, in every name server."""
    await kv.delete(cluster, namespace, key)
    out.show(done("delete kv config from namespace success.", namespace=namespace, key=key))


@admin_command("wipeWritePerm")
async def wipe_write_perm(cluster: Cluster, out: Output, broker_name: _Broker) -> None:
    """Remove the write permission of a broker: producers use other brokers, consumers keep reading it.

    Only the name servers know it: it ends when they restart, or another broker becomes master. `mqadmin
    drainBroker` lasts."""
    counts = await name_servers.wipe_write_permission(cluster, broker_name)
    out.show(_permissions("wipe", broker_name, counts))


@admin_command("addWritePerm")
async def add_write_perm(cluster: Cluster, out: Output, broker_name: _Broker) -> None:
    """Restore the write permission of a broker."""
    counts = await name_servers.add_write_permission(cluster, broker_name)
    out.show(_permissions("add", broker_name, counts))


def _permissions(what: str, broker_name: str, counts: dict[str, int]) -> Report:
    lines = [
        f"{what} write perm of broker[{broker_name}] in name server[{address}] OK, {count}"
        for address, count in counts.items()
    ]
    return Report.of(ReportLines(lines, {"brokerName": broker_name, "topics": counts}))


@admin_command("namesrvDiff")
async def namesrv_diff(cluster: Cluster, out: Output) -> None:
    """Show brokers, addresses, topics and queues on which the name servers differ."""
    found = await route_differences.of_name_servers(cluster)
    columns = (
        Column("#Kind", "kind"),
        Column("#Name", "name"),
        Column("#Name Server", "nameServer"),
        Column("#Knows", "knows", lambda known: "-" if known is None else known.replace("\n", "; ")),
    )
    rows = [
        (each.kind, each.name, server, known)
        for each in found.differences
        for server, known in each.known.items()
    ]
    lines = [f"{server} did not answer: {problem}" for server, problem in found.silent.items()]
    lines.append(
        f"{len(found.servers)} name servers compared, {found.topics} topics,"
        f" {len(found.differences)} differences"
    )
    if not found.has_compared_routes:
        lines.append("routes were not compared, only names: not all of these are name servers of PyroMQ")
    if found.not_asked:
        lines.append(f"the routes of {found.not_asked} more differing topics were not asked for")
    facts = {
        "servers": found.servers,
        "silent": found.silent,
        "topics": found.topics,
        "hasComparedRoutes": found.has_compared_routes,
        "notAsked": found.not_asked,
    }
    parts = [Table("differences", columns, rows)] if rows or out.as_json else []
    out.show(Report([*parts, ReportLines(lines, facts)]))
