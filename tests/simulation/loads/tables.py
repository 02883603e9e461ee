"""Two operators at work: topics, groups and users made, changed, deleted and made again.

What was answered holds on every broker in the end. A change without an answer may have been made or not, and
may even come later: the load then takes another name.
"""

import asyncio
from collections.abc import Iterator
from typing import Any

import msgspec
from tests.simulation.cluster import BROKER_PORT, OPERATOR, Server
from tests.simulation.contents import Contents
from tests.simulation.loads.load import RunningLoad

from pyromq.admin import access, groups, topics
from pyromq.admin.cluster import Cluster
from pyromq.broker.broker import Broker
from pyromq.errors import PyroError
from pyromq.protocol.requests.access import UserInfo
from pyromq.protocol.requests.groups import SubscriptionGroupConfig
from pyromq.protocol.requests.topics import DeleteTopicFromBroker, TopicConfig
from pyromq.security.signature import Credentials

_TIMEOUT_S = 2.0
_KINDS = ("topic", "group", "user")

_FILES = {
    "topic": ("topics.json", "topicConfigTable"),
    "group": ("subscriptionGroup.json", "subscriptionGroupTable"),
}
_SHOWN = {"topic": ("write_queue_nums", "writeQueueNums"), "group": ("retry_max_times", "retryMaxTimes")}

Value = dict[str, Any]
"""What the operator sets of a topic, a group or a user."""


class TablesLoad(RunningLoad):
    def start(self) -> None:
        self._allowed: dict[tuple[str, str], list[Value | None]] = {}
        """By kind and name: what was answered last, and what was not answered; None means deleted."""
        self._changing: frozenset[tuple[str, str]] = frozenset()
        self._files: dict[tuple[Server, str], tuple[int, Any]] = {}
        self._names = self._changes = 0
        self._seen: dict[Server, tuple[object, ...]] = {}
        """What a broker depends on, when it was looked at last."""
        for number in (1, 2):
            self.sender(f"operator {number}", self._operate())

    async def _operate(self) -> None:
        async with Cluster(
            self.cluster.name_server_address,
            timeout_s=_TIMEOUT_S,
            credentials=Credentials(*OPERATOR),
            clock=self.cluster.loop.clock,
        ) as cluster:
            names = {kind: self._new_name(kind) for kind in _KINDS}
            while not self.is_over:
                master = self.cluster.master()
                if master is not None:
                    address = f"{master.host.address}:{BROKER_PORT}"
                    kind = self.chance.choice(_KINDS)
                    if not await self._change(cluster, address, kind, names[kind]):
                        names[kind] = self._new_name(kind)
                await self.pause()

    def _new_name(self, kind: str) -> str:
        self._names += 1
        return f"Made{kind.title()}{self._names}"

    async def _change(self, cluster: Cluster, address: str, kind: str, name: str) -> bool:
        """Whether it was answered."""
        allowed = self._allowed.get((kind, name), [None])
        before = allowed[0]
        value = None if before is not None and self.chance.random() < 0.3 else self._any_value(kind)
        self._changing |= {(kind, name)}
        try:
            async with asyncio.timeout(2 * _TIMEOUT_S):
                if kind == "topic":
                    await _put_topic(cluster, address, name, value)
                elif kind == "group":
                    await _put_group(cluster, address, name, value)
                else:
                    await _put_user(cluster, address, name, value, is_there=before is not None)
        except (PyroError, TimeoutError):
            self.recorder.totals.unacknowledged += 1
            self._allowed[kind, name] = [*allowed, value]
            self._changes += 1
            self._changing -= {(kind, name)}
            return False
        self._allowed[kind, name] = [value]
        self._changes += 1
        self._changing -= {(kind, name)}
        self.acknowledged("operator")
        self.look()
        return True

    def _any_value(self, kind: str) -> Value:
        number = self.chance.randint(1, 8)
        if kind == "topic":
            return {"write_queue_nums": number, "perm": self.chance.choice((2, 4, 6)), "type": _type(number)}
        if kind == "group":
            return {"retry_max_times": number, "factor": str(10 * number), "consume_enable": number < 5}
        return {"password": f"secret-{number}", "status": "enable" if number < 5 else "disable"}

    @property
    def is_delivered(self) -> bool:
        return True

    def look(self) -> None:
        """Whoever may be the next master has what was answered; topics and groups are on its disk, too."""
        group = self.cluster.recorded_group()
        for server in self.cluster.candidates(group) if group is not None else ():
            broker = self.cluster.broker(server)
            if broker is None:
                continue
            tables, syncs = broker._started.tables, server.disk.content.syncs
            versions = tables.topics.data_version, tables.groups.data_version, broker.access.users
            now = broker, *versions, syncs, self._changing, self._changes
            if now == self._seen.get(server):
                continue
            self._seen[server] = now
            for (kind, name), allowed in self._allowed.items():
                if (kind, name) in self._changing:
                    continue
                found = _found(broker, kind, name)
                if found not in allowed:
                    text = f"{kind} {name} is {found} at {server.host.name}, and must be one of {allowed}"
                    self.recorder.violation("answered, but not in sync", text)
                elif kind in _FILES and not any(
                    self._is_on_disk(server, kind, name, each) for each in allowed
                ):
                    text = f"{kind} {name} is {found} at {server.host.name}"
                    self.recorder.violation("answered, but not on disk", text)

    def _is_on_disk(self, server: Server, kind: str, name: str, value: Value | None) -> bool:
        """Whether a loss of power leaves this of it."""
        known, syncs = self._files.get((server, kind)), server.disk.content.syncs
        if known is None or known[0] != syncs:
            file, table = _FILES[kind]
            path = server.disk.root / "store" / "config" / file
            # A loss of power between two renames leaves the table in the backup, which a start reads.
            safe = server.disk.content.safe(path) or server.disk.content.safe(path.with_name(f"{file}.bak"))
            known = self._files[server, kind] = syncs, msgspec.json.decode(safe or b"{}").get(table, {})
        kept = known[1].get(name)
        if kept is None or value is None:
            return kept is value
        what, stored = _SHOWN[kind]
        return bool(value[what] == kept[stored])

    def judge(self, contents: list[Contents]) -> Iterator[tuple[str, str]]:
        for (kind, name), allowed in self._allowed.items():
            for server in self.cluster.brokers:
                broker = self.cluster.broker(server)
                if broker is not None and (found := _found(broker, kind, name)) not in allowed:
                    yield (
                        "an answered change is gone",
                        f"{kind} {name} is {found} at {server.host.name}, and must be one of {allowed}",
                    )


def _type(number: int) -> str:
    return "NORMAL" if number % 2 else "DELAY"


async def _put_topic(cluster: Cluster, address: str, name: str, value: Value | None) -> None:
    if value is None:
        await cluster.change(address, DeleteTopicFromBroker(topic=name))
        return
    queues = value["write_queue_nums"]
    wanted = TopicConfig(topic_name=name, read_queue_nums=queues, write_queue_nums=queues, perm=value["perm"])
    await topics.put(cluster, [address], wanted, f"+message.type={value['type']}")


async def _put_group(cluster: Cluster, address: str, name: str, value: Value | None) -> None:
    if value is None:
        await groups.delete(cluster, [address], name, with_offsets=True)
        return
    wanted = SubscriptionGroupConfig(
        group_name=name,
        retry_max_times=value["retry_max_times"],
        consume_enable=value["consume_enable"],
        attributes={"+priority.factor": value["factor"]},
    )
    await groups.put(cluster, [address], wanted)


async def _put_user(
    cluster: Cluster, address: str, name: str, value: Value | None, *, is_there: bool
) -> None:
    if value is None:
        await access.delete_user(cluster, [address], name)
        return
    info = UserInfo(
        username=name, password=value["password"], user_type="Normal", user_status=value["status"]
    )
    if is_there:
        await access.update_user(cluster, [address], name, info)
    else:
        await access.create_user(cluster, [address], name, info)


def _found(broker: Broker, kind: str, name: str) -> Value | None:
    tables = broker._started.tables
    if kind == "topic" and (topic := tables.topics.get(name)) is not None:
        kept = topic.attributes.get("message.type")
        return {"write_queue_nums": topic.write_queue_nums, "perm": topic.perm, "type": kept}
    if kind == "group" and (group := tables.groups.get(name)) is not None:
        return {
            "retry_max_times": group.retry_max_times,
            "factor": group.attributes.get("priority.factor"),
            "consume_enable": group.consume_enable,
        }
    if kind == "user" and (user := broker.access.users.users.get(name)) is not None:
        return {"password": user.password, "status": user.status.value}
    return None
