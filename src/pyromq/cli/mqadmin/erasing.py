"""Commands that erase messages by key, and show how far that is."""

from typing import Annotated

import click

from pyromq.admin import erasing, messages
from pyromq.admin.cluster import Cluster
from pyromq.cli.mqadmin.options import Broker, ClusterName, Topic, flag, option
from pyromq.cli.mqadmin.output import Output
from pyromq.cli.mqadmin.report import Column, Report, ReportLines, Table
from pyromq.cli.mqadmin.running import addresses_of, admin_command
from pyromq.cli.mqadmin.times import to_seconds
from pyromq.cli.mqadmin.watching import Every, Rounds, watch

_PREVIEW = 64


@admin_command("eraseMessages")
async def erase_messages(
    cluster: Cluster,
    out: Output,
    *,
    broker: Broker = None,
    cluster_name: ClusterName = None,
    topic: Topic,
    keys: Annotated[str, option("-k --keys", "The keys, or unique ids, separated by commas.")],
    is_sure: Annotated[bool, flag("--yes", "Erase them; without it, show only what is found.")] = False,
) -> None:
    """Erase all messages with a key, in the logs of masters and replicas and in the lake tier. This cannot be
    undone. Without --yes, count the messages that are found."""
    wanted = [each for each in keys.split(",") if each]
    if not wanted:
        raise click.UsageError("-k is empty: expected key1,key2")
    addresses = await addresses_of(cluster, broker, cluster_name)
    if is_sure:
        asked = await erasing.erase(cluster, addresses, topic, wanted)
        lines = [f"{each} erases them; `mqadmin erasureStatus` shows when it is complete" for each in asked]
        out.show(Report.of(ReportLines(lines, {"brokers": asked, "topic": topic, "keys": wanted})))
        return
    rows = []
    for key in wanted:
        found = await messages.by_key(cluster, topic, key, _PREVIEW)
        found += await messages.by_unique_key(cluster, topic, key)
        places = {(each.store_host, each.log_offset) for each in found}
        rows.append((key, len(places)))
    columns = (Column("#Key", "key"), Column("#Messages", "messages"))
    hint = f"Nothing is changed yet: add --yes. At most {_PREVIEW} messages are counted for each key."
    out.show(Report.of(Table("keys", columns, rows), ReportLines([hint], {})))


@admin_command("erasureStatus")
async def erasure_status(
    cluster: Cluster,
    out: Output,
    *,
    broker: Broker = None,
    cluster_name: ClusterName = None,
    topic: Topic,
    every_s: Every = None,
    rounds: Rounds = None,
) -> None:
    """Show which keys of a topic brokers erase, and which of them are gone from their logs and the lake tier.
    A key is shown until the log begins behind its messages."""
    addresses = await addresses_of(cluster, broker, cluster_name, replicas=True)

    async def look() -> Report:
        found = await cluster.known(erasing.progress(cluster, each, topic) for each in addresses)
        silent = [address for address, keys in zip(addresses, found, strict=True) if keys is None]
        rows = [
            (
                each.broker,
                each.key,
                each.asked_ms,
                each.in_log,
                each.in_tier,
                "" if each.is_complete else each.problem,
            )
            for keys in found
            for each in keys or ()
        ]
        lines = [f"{address} does not answer" for address in silent]
        return Report.of(Table("keys", _COLUMNS, rows), ReportLines(lines, {"silent": silent}))

    await watch(out, look, every_s, rounds)


def _yes(value: bool) -> str:
    return "gone" if value else "not yet"


_COLUMNS = (
    Column("#Broker", "broker"),
    Column("#Key", "key"),
    Column("#Asked", "askedMs", to_seconds),
    Column("#Log", "inLog", _yes),
    Column("#Tier", "inTier", _yes),
    Column("#Problem", "problem"),
)
