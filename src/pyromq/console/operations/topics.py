"""Topics: made, changed and deleted."""

from typing import Any, ClassVar, Literal, get_args

from pyromq.admin import topics
from pyromq.admin.attributes import TOPIC, Attribute
from pyromq.admin.cluster import Cluster
from pyromq.admin.failures import NotFound
from pyromq.console.operations.operation import Done, Operation, OperationPlan, Row, Surroundings, mqadmin
from pyromq.console.operations.settings import with_fields
from pyromq.console.security.roles import UserRole
from pyromq.errors import PyroError, Refused
from pyromq.protocol.catalogue import Answer
from pyromq.protocol.codes import ResponseCode
from pyromq.protocol.requests.topics import TopicConfig

MessageType = Literal["", "NORMAL", "FIFO", "DELAY", "TRANSACTION", "LITE"]
_MESSAGE_TYPE = "message.type"


_Fields: Any = with_fields("topic", TOPIC)


class PutTopic(_Fields, frozen=True, kw_only=True):  # type: ignore[misc, call-arg]
    """Create a topic, or change one."""

    NAME: ClassVar[str] = "topics.put"
    SECTION: ClassVar[str] = "topics"
    SUBJECT: ClassVar[str] = "topic"
    ATTRIBUTES: ClassVar[tuple[Attribute, ...]] = TOPIC
    COMMAND: ClassVar[str] = "updateTopic -t"

    message_type: MessageType = ""

    def changes(self, now: TopicConfig) -> dict[str, str]:
        found: dict[str, str] = super().changes(now)
        return found | ({f"+{_MESSAGE_TYPE}": self.message_type} if self.message_type else {})

    def more_flags(self) -> dict[str, object]:
        return {"-a": _joined(self.changes(self.new()))}

    @classmethod
    def shown(cls, config: TopicConfig) -> dict[str, str]:
        kind = config.attributes.get(_MESSAGE_TYPE, "")
        found: dict[str, str] = super().shown(config)
        return found | {"message_type": kind if kind in get_args(MessageType) else ""}

    @classmethod
    async def config(cls, cluster: Cluster, address: str, name: str) -> TopicConfig | None:
        return await config_at(cluster, address, name)

    def new(self) -> TopicConfig:
        return TopicConfig(topic_name=self.topic)

    async def put(
        self, cluster: Cluster, addresses: list[str], wanted: TopicConfig, changes: dict[str, str]
    ) -> dict[str, Answer]:
        return await topics.put(cluster, addresses, wanted, _joined(changes))


def _joined(changes: dict[str, str]) -> str | None:
    return ",".join(f"{key}={value}" for key, value in changes.items()) or None


class DeleteTopic(Operation, frozen=True, kw_only=True):
    NAME: ClassVar[str] = "topics.delete"
    ROLE: ClassVar[UserRole] = UserRole.ADMIN
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

    async def plan(self, around: Surroundings) -> OperationPlan:
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
        return OperationPlan(rows, {"messages": sum(row["messages"] for row in rows)}, ", ".join(readers))

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
    ROLE: ClassVar[UserRole] = UserRole.ADMIN
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

    async def plan(self, around: Surroundings) -> OperationPlan:
        rows: list[Row] = []
        for topic in self.touched():
            plan = await DeleteTopic(topic=topic).plan(around)
            rows.append({"topic": topic, "messages": plan.before["messages"], "groups": plan.warning})
        return OperationPlan(rows)

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
