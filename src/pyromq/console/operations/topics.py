"""Topics: made, changed and deleted."""

from collections.abc import Mapping
from typing import ClassVar, Literal, get_args

import msgspec

from pyromq.admin import topics
from pyromq.admin.cluster import BrokerMember, Cluster
from pyromq.admin.failures import NotFound, PartlyFailed
from pyromq.console.operations.operation import Done, Operation, Plan, Row, Surroundings, mqadmin, mqadmin_at
from pyromq.console.security.roles import Role
from pyromq.errors import PyroError, Refused
from pyromq.protocol.bodies.topics import TopicConfig
from pyromq.protocol.codes import ResponseCode

MessageType = Literal["", "NORMAL", "FIFO", "DELAY", "TRANSACTION"]
_PERMISSIONS = {"rw": 6, "r": 4, "w": 2}


class PutTopic(Operation, frozen=True, kw_only=True):
    """Create a topic, or change one. Without `at` it is on every master of the cluster."""

    NAME: ClassVar[str] = "topics.put"
    ROLE: ClassVar[Role] = Role.ADMIN
    SECTION: ClassVar[str] = "topics"

    topic: str
    queues: int = 8
    read_queues: int | None = None
    permission: Literal["rw", "r", "w"] = "rw"
    message_type: MessageType = ""
    ordered: bool = False
    in_cluster: str = ""
    at: str = ""

    def touched(self) -> tuple[str, ...]:
        return (self.topic,)

    def line(self, namesrv: str) -> str:
        attributes = f"+message.type={self.message_type}" if self.message_type else ""
        flags = {
            "-t": self.topic,
            "-r": self._read_queues,
            "-w": self.queues,
            "-p": _PERMISSIONS[self.permission],
            "-o": "true" if self.ordered else "",
            "-a": attributes,
        }
        return mqadmin_at("updateTopic", namesrv, self.in_cluster, self.at, flags)

    @property
    def _read_queues(self) -> int:
        return self.queues if self.read_queues is None else self.read_queues

    @classmethod
    async def fields_now(cls, cluster: Cluster, given: Mapping[str, str]) -> dict[str, str]:
        if not given.get("topic"):
            return {}
        masters = await masters_at(cluster, given.get("in_cluster", ""), given.get("at", ""))
        found = await cluster.known(config_at(cluster, each.address, given["topic"]) for each in masters)
        now = next((config for config in found if config is not None), None)
        if now is None:
            return {}
        kind = now.attributes.get("message.type", "")
        shown = {
            "queues": str(now.write_queue_nums),
            "permission": {value: word for word, value in _PERMISSIONS.items()}.get(now.perm, "rw"),
            "message_type": kind if kind in get_args(MessageType) else "",
            "ordered": str(now.order).lower(),
        }
        if now.read_queue_nums != now.write_queue_nums:
            shown["read_queues"] = str(now.read_queue_nums)
        return shown

    async def plan(self, around: Surroundings) -> Plan:
        rows: list[Row] = []
        before: dict[str, object] = {}
        for member in await masters_at(around.cluster, self.in_cluster, self.at):
            now = await config_at(around.cluster, member.address, self.topic)
            if now is not None:
                before[member.address] = msgspec.to_builtins(now)
            rows.append(
                {
                    "broker": member.broker_name,
                    "address": member.address,
                    "queues_now": None if now is None else now.write_queue_nums,
                    "queues_wanted": self.queues,
                    "read_queues_now": None if now is None else now.read_queue_nums,
                    "read_queues_wanted": self._read_queues,
                    "perm_now": None if now is None else now.perm,
                    "perm_wanted": _PERMISSIONS[self.permission],
                }
            )
        return Plan(rows, before)

    async def run(self, around: Surroundings) -> Done:
        wanted = TopicConfig(
            topic_name=self.topic,
            read_queue_nums=self._read_queues,
            write_queue_nums=self.queues,
            perm=_PERMISSIONS[self.permission],
            order=self.ordered,
        )
        attributes = f"+message.type={self.message_type}" if self.message_type else None
        addresses = [member.address for member in await masters_at(around.cluster, self.in_cluster, self.at)]
        try:
            done = await topics.put(around.cluster, addresses, wanted, attributes)
        except PartlyFailed as partly:
            return partly_done(partly, self)
        return Done([{"address": address} for address in done], ("topics", self.topic))


class DeleteTopic(Operation, frozen=True, kw_only=True):
    NAME: ClassVar[str] = "topics.delete"
    ROLE: ClassVar[Role] = Role.ADMIN
    TYPED: ClassVar[str] = "topic"
    SECTION: ClassVar[str] = "topics"

    topic: str
    in_cluster: str = ""

    def touched(self) -> tuple[str, ...]:
        return (self.topic,)

    def line(self, namesrv: str) -> str:
        return mqadmin("deleteTopic", namesrv, {"-c": self.in_cluster or "CLUSTER", "-t": self.topic})

    async def _clusters(self, around: Surroundings) -> list[str]:
        return [self.in_cluster] if self.in_cluster else await topics.clusters_of(around.cluster, self.topic)

    async def plan(self, around: Surroundings) -> Plan:
        stats = await topics.stats(around.cluster, self.topic)
        readers = await topics.readers(around.cluster, self.topic)
        rows: list[Row] = [
            {
                "broker": queue.broker_name,
                "queue": queue.queue_id,
                "messages": ends.max_offset - ends.min_offset,
            }
            for queue, ends in sorted(stats.offset_table.items())
        ]
        return Plan(rows, {"messages": sum(row["messages"] for row in rows)}, ", ".join(readers))

    async def run(self, around: Surroundings) -> Done:
        rows: list[Row] = []
        for name in await self._clusters(around):
            rows += [
                {"address": address} for address in await topics.delete(around.cluster, self.topic, name)
            ]
        return Done(rows, ("topics",))


class DeleteTopics(Operation, frozen=True, kw_only=True):
    """Many at once; the person types how many."""

    NAME: ClassVar[str] = "topics.delete_many"
    ROLE: ClassVar[Role] = Role.ADMIN
    TYPED: ClassVar[str] = "topics"
    LONG: ClassVar[tuple[str, ...]] = ("topics",)
    SECTION: ClassVar[str] = "topics"

    topics: str

    def touched(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(self.topics.split()))

    def typed(self) -> str:
        return str(len(self.touched()))

    def line(self, namesrv: str) -> str:
        return "\n".join(DeleteTopic(topic=topic).line(namesrv) for topic in self.touched())

    async def plan(self, around: Surroundings) -> Plan:
        rows: list[Row] = []
        for topic in self.touched():
            plan = await DeleteTopic(topic=topic).plan(around)
            rows.append({"topic": topic, "messages": plan.before["messages"], "groups": plan.warning})
        return Plan(rows)

    async def run(self, around: Surroundings) -> Done:
        rows: list[Row] = []
        failed: dict[str, str] = {}
        for topic in self.touched():
            try:
                await DeleteTopic(topic=topic).run(around)
                rows.append({"topic": topic})
            except PyroError as problem:
                failed[topic] = str(problem)
        return Done(rows, (), failed, {"topics": " ".join(failed)} if failed else {})


async def config_at(cluster: Cluster, address: str, topic: str) -> TopicConfig | None:
    """The topic on one broker; None if it does not have it."""
    try:
        return await topics.config(cluster, address, topic)
    except NotFound:
        return None
    except Refused as refusal:
        if refusal.code != ResponseCode.TOPIC_NOT_EXIST:
            raise
        return None


async def masters_at(cluster: Cluster, in_cluster: str, at: str) -> list[BrokerMember]:
    """The masters of one cluster, or of all; with `at`, those at these addresses alone."""
    found = await cluster.masters(in_cluster or None)
    wanted = {each.strip() for each in at.split(",") if each.strip()}
    chosen = [member for member in found if not wanted or member.address in wanted]
    if not chosen:
        raise NotFound(f"no master is registered at {at}")
    return chosen


def partly_done(partly: PartlyFailed, operation: Operation) -> Done:
    """Both halves, and the same operation for the half that failed."""
    failed = {address: str(problem) for address, problem in partly.failed.items()}
    told = operation.told_fields()
    again = {key: str(value) for key, value in told.items() if value is not None} | {"at": ",".join(failed)}
    return Done([{"address": address} for address in partly.done], (), failed, again)
