"""The tools that look. None of them changes anything, or names another tool to use next."""

from collections import Counter
from typing import Any

from pyromq.admin import (
    access,
    access_overview,
    brokers,
    browsing,
    connections,
    diagnosis,
    groups,
    messages,
    progress,
    route_differences,
    throughput,
    topics,
    traces,
    tracks,
)
from pyromq.admin.cluster import Cluster
from pyromq.admin.failures import NotFound
from pyromq.cluster.routes import route_addresses
from pyromq.console.secrets import masked as without_secret
from pyromq.mcp.desk import UNTRUSTED, Desk, plain, rows
from pyromq.protocol import names
from pyromq.protocol.dead_letters import origin_topic

_FIGURES = ("brokerVersionDesc", "putTps", "getTransferredTps", "commitLogDiskRatio", "bootTimestamp")
_LOOK_S = 10.0


class ReadingTools:
    """Each public method is a tool; its docstring is what an assistant reads."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    def _of(self, name: str) -> Cluster:
        return self._desk.cluster(name)

    async def cluster_overview(self, cluster: str = "") -> dict[str, Any]:
        """Brokers of a cluster, their roles, versions and main figures; and which clusters there are."""
        found = await brokers.statuses(self._of(cluster))
        return {
            "clusters": sorted(self._desk.settings.clusters),
            "brokers": [
                {
                    **plain(each.member),
                    "answers": each.figures is not None,
                    "figures": {name: each.text(name) for name in _FIGURES},
                }
                for each in found
            ],
        }

    async def name_server_differences(self, cluster: str = "") -> dict[str, Any]:
        """Whether all name servers know the same brokers and routes."""
        found: dict[str, Any] = plain(await route_differences.of_name_servers(self._of(cluster)))
        return found

    async def list_topics(self, cluster: str = "", limit: int = 50) -> dict[str, Any]:
        """Topics and the groups that read them."""
        return rows(await topics.with_readers(self._of(cluster)), limit)

    async def describe_topic(self, topic: str, cluster: str = "") -> dict[str, Any]:
        """Settings, offsets of each queue, readers and rates of a topic."""
        asked = self._of(cluster)
        address = next(iter(route_addresses(await asked.route(topic)).values()))
        table = (await topics.stats(asked, topic)).offset_table
        return {
            "settings": plain(await topics.config(asked, address, topic)),
            "queues": [
                {**plain(queue), "first": each.min_offset, "end": each.max_offset}
                for queue, each in sorted(table.items())
            ],
            "readers": await topics.readers(asked, topic),
            "throughput": plain(await throughput.of_topic(asked, topic)),
        }

    async def list_groups(self, cluster: str = "", limit: int = 50) -> dict[str, Any]:
        """Consumer groups: members, lag and rates."""
        return rows(await groups.summaries(self._of(cluster)), limit)

    async def describe_group(self, group: str, cluster: str = "", limit: int = 100) -> dict[str, Any]:
        """Settings of a group on each broker, and its offset and lag in each queue."""
        asked = self._of(cluster)
        settings = [
            {"broker": member.broker_name, "settings": plain(config)}
            for member, config in await groups.configs_of(asked, group)
        ]
        found = await progress.of_group(asked, group, with_clients=True)
        return {
            "settings": settings,
            "lag": found.diff_total,
            "in_flight": found.inflight_total,
            "queues": rows(found.queues, limit),
        }

    async def diagnose_group(self, group: str, cluster: str = "") -> dict[str, Any]:
        """Diagnoses a consumer group: members, subscriptions, owners of queues, progress."""
        found = await diagnosis.of_group(self._of(cluster), group)
        return {
            "members": [
                {"client_id": each.client_id, "answers": each.running is not None} for each in found.members
            ],
            "findings": [plain(each) for each in found.findings],
        }

    async def consumer_stacks(self, group: str, client_id: str, cluster: str = "") -> dict[str, Any]:
        """A group member's report about itself, with the stacks of its threads."""
        found = await connections.running_info(self._of(cluster), group, client_id, stacks=True)
        told: dict[str, Any] = plain(found)
        return told

    async def find_messages(
        self, topic: str, key: str = "", message_id: str = "", cluster: str = "", limit: int = 10
    ) -> dict[str, Any]:
        """Messages of a topic by key or id, or the newest ones."""
        asked = self._of(cluster)
        fields = {"topic": topic, "key": key, "message_id": message_id}
        if self._desk.settings.show_bodies:
            await self._desk.audit("find_messages", cluster, fields, outcome="ok")
        if message_id:
            found = [await messages.by_id(asked, topic, message_id)]
        elif key:
            found = await messages.by_key(asked, topic, key)
        else:
            found = await self._newest(asked, topic, limit)
        return {"note": UNTRUSTED, **rows(map(self._desk.message, found), limit)}

    async def message_history(self, topic: str, message_id: str, cluster: str = "") -> dict[str, Any]:
        """Which groups have consumed a message, and its traces, if clients write some."""
        asked = self._of(cluster)
        message = await messages.by_id(asked, topic, message_id)
        told = await tracks.of_message(asked, message)
        try:
            traced = await traces.of_message(asked, message_id)
        except NotFound:
            traced = []  # no client has ever written one
        return {"groups": [plain(each) for each in told], "traces": [plain(each) for each in traced]}

    async def dead_letters(self, group: str, cluster: str = "", limit: int = 20) -> dict[str, Any]:
        """The newest messages that a group gave up, and how many of them came from which topic."""
        asked = self._of(cluster)
        found = await self._newest(asked, names.dlq_topic(group), limit)
        return {
            "note": UNTRUSTED,
            "by_topic": dict(Counter(origin_topic(each) or "unknown" for each in found)),
            **rows(map(self._desk.message, found), limit),
        }

    async def broker_config(self, broker_name: str, cluster: str = "") -> dict[str, str]:
        """The settings of a broker's master; values that look like secrets are hidden."""
        asked = self._of(cluster)
        config = await brokers.config(asked, await asked.broker_address(broker_name))
        return {name: without_secret(name, value) for name, value in sorted(config.items())}

    async def access_check(
        self, user: str, action: str, resource: str, source_ip: str, cluster: str = ""
    ) -> dict[str, Any]:
        """Whether access control allows a user an action, as "Pub" on "Topic:orders", and by which rule."""
        need = access.need_in(action, resource)
        return rows(await access_overview.check(self._of(cluster), user, need, source_ip), 100)

    async def disabled_tools(self) -> dict[str, str]:
        """Which tools and parts of answers are off, and the switch that turns each on."""
        settings = self._desk.settings
        off = {} if settings.show_bodies else {"bodies of messages": "--show-bodies"}
        if not settings.allow_changes:
            off |= {"tools that change something": "--allow-changes"}
        elif not settings.config_keys:
            off |= {"plan_broker_config": "--config-key, once for each setting that may be changed"}
        return off

    async def _newest(self, cluster: Cluster, topic: str, limit: int) -> list[Any]:
        limits = browsing.Limits(rows=max(1, min(limit, 100)), seconds=_LOOK_S)
        found = await browsing.look(cluster, topic, browsing.Wanted(limits=limits))
        return [each.message for each in found.found]
