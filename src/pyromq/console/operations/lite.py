"""Lite topics: deleted. They are made by their first message."""

from typing import ClassVar

from pyromq.admin import lite
from pyromq.admin.failures import NotFound
from pyromq.console.operations.operation import Done, Operation, OperationPlan, Row, Surroundings, mqadmin
from pyromq.console.security.roles import UserRole


class DeleteLiteTopic(Operation, frozen=True, kw_only=True):
    NAME: ClassVar[str] = "lite.delete"
    ROLE: ClassVar[UserRole] = UserRole.ADMIN
    TYPED: ClassVar[str] = "lite_topic"
    SECTION: ClassVar[str] = "topics"

    topic: str
    lite_topic: str

    def touched(self) -> tuple[str, ...]:
        return (self.topic,)

    def line(self, namesrv: str) -> str:
        return mqadmin("deleteLiteTopic", namesrv, {"-p": self.topic, "-l": self.lite_topic})

    async def plan(self, around: Surroundings) -> OperationPlan:
        found = await lite.lite_topic(around.cluster, self.topic, self.lite_topic)
        rows: list[Row] = [
            {"broker": broker, "messages": at.max_offset - at.min_offset}
            for broker, info in found.items()
            if (at := info.topic_offset) is not None and at.max_offset > 0
        ]
        if not rows:
            raise NotFound(f"the topic {self.topic} has no lite topic {self.lite_topic}")
        groups = sorted({each.group for info in found.values() for each in info.subscriber if each.group})
        return OperationPlan(rows, {"messages": sum(row["messages"] for row in rows)}, ", ".join(groups))

    async def run(self, around: Surroundings) -> Done:
        brokers = await lite.delete(around.cluster, self.topic, self.lite_topic)
        if not brokers:
            raise NotFound(f"the topic {self.topic} has no lite topic {self.lite_topic}")
        return Done([{"broker": each} for each in brokers], ("topics", self.topic, "lite"))
