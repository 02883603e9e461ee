"""Messages: sent, sent again, redelivered to a member, and brought back from the dead letters."""

from typing import ClassVar, Literal

from pyromq.admin import browsing, dead_letters, messages
from pyromq.admin.failures import NotFound
from pyromq.admin.messages import Receipt
from pyromq.console.operations.operation import Done, Operation, OperationPlan, Row, Surroundings, mqadmin
from pyromq.console.security.roles import UserRole
from pyromq.errors import ConfigError, PyroError
from pyromq.protocol.dead_letters import SETTLED
from pyromq.protocol.names import dlq_topic
from pyromq.protocol.properties import DELAY, KEYS, TAGS, TIMER_DELAY_SEC
from pyromq.protocol.record import StoredMessage

MAX_LETTERS = 500


def _row(receipt: Receipt) -> Row:
    return {
        "broker": receipt.broker_name,
        "queue": receipt.queue_id,
        "offset": receipt.queue_offset,
        "message_id": receipt.message_id,
        "status": receipt.status,
    }


class SendMessageOperation(Operation, frozen=True, kw_only=True):
    NAME: ClassVar[str] = "messages.send"
    ROLE: ClassVar[UserRole] = UserRole.OPERATOR
    LONG: ClassVar[tuple[str, ...]] = ("body", "properties")
    SECTION: ClassVar[str] = "topics"

    topic: str
    body: str = ""
    tags: str = ""
    keys: str = ""
    properties: str = ""
    delay_level: int | None = None
    delay_seconds: int | None = None
    broker: str = ""
    queue: int | None = None

    def touched(self) -> tuple[str, ...]:
        return (self.topic,)

    def line(self, namesrv: str) -> str:
        if self._properties():
            return ""
        flags: dict[str, object] = {
            "-t": self.topic,
            "-p": self.body,
            "-c": self.tags,
            "-k": self.keys,
            "-b": self.broker,
            "-i": self.queue,
        }
        return mqadmin("sendMessage", namesrv, flags)

    def _properties(self) -> dict[str, str]:
        found: dict[str, str] = {}
        for line in self.properties.splitlines():
            name, equals, value = line.partition("=")
            if not equals:
                raise ConfigError("properties", line, "one name=value on each line")
            found[name.strip()] = value.strip()
        if self.delay_level is not None:
            found[DELAY] = str(self.delay_level)
        if self.delay_seconds is not None:
            found[TIMER_DELAY_SEC] = str(self.delay_seconds)
        return found

    async def plan(self, around: Surroundings) -> OperationPlan:
        route = await around.cluster.route(self.topic)
        queues = messages.writable_queues(self.topic, route, self.broker or None)
        return OperationPlan([{"topic": self.topic, "queues": len(queues), "size": len(self.body.encode())}])

    async def run(self, around: Surroundings) -> Done:
        receipt = await messages.send_with(
            around.cluster,
            self.topic,
            self.body.encode(),
            {**self._properties(), TAGS: self.tags or None, KEYS: self.keys or None},
            broker_name=self.broker or None,
            queue_id=self.queue,
        )
        return Done([_row(receipt)], ("topics", self.topic, "messages", receipt.message_id))


class SendAgain(Operation, frozen=True, kw_only=True):
    NAME: ClassVar[str] = "messages.again"
    ROLE: ClassVar[UserRole] = UserRole.OPERATOR
    SECTION: ClassVar[str] = "topics"

    topic: str
    id: str

    def touched(self) -> tuple[str, ...]:
        return (self.topic,)

    def line(self, namesrv: str) -> str:
        return mqadmin("queryMsgById", namesrv, {"-t": self.topic, "-i": self.id, "-s": "true"})

    async def plan(self, around: Surroundings) -> OperationPlan:
        found = await messages.by_id(around.cluster, self.topic, self.id)
        return OperationPlan([{"topic": found.topic, "queue": found.queue_id, "offset": found.queue_offset}])

    async def run(self, around: Surroundings) -> Done:
        found = await messages.by_id(around.cluster, self.topic, self.id)
        receipt = await messages.resend(around.cluster, found)
        return Done([_row(receipt)], ("topics", self.topic, "messages", receipt.message_id))


class Redeliver(Operation, frozen=True, kw_only=True):
    """Have one member of a group consume a message now."""

    NAME: ClassVar[str] = "messages.redeliver"
    ROLE: ClassVar[UserRole] = UserRole.OPERATOR
    SECTION: ClassVar[str] = "topics"

    topic: str
    id: str
    group: str
    client: str

    def touched(self) -> tuple[str, ...]:
        return (self.group,)

    def line(self, namesrv: str) -> str:
        flags = {"-t": self.topic, "-i": self.id, "-g": self.group, "-d": self.client}
        return mqadmin("queryMsgById", namesrv, flags)

    async def plan(self, around: Surroundings) -> OperationPlan:
        found = await messages.by_id(around.cluster, self.topic, self.id)
        return OperationPlan([{"topic": found.topic, "queue": found.queue_id, "offset": found.queue_offset}])

    async def run(self, around: Surroundings) -> Done:
        found = await messages.by_id(around.cluster, self.topic, self.id)
        result = await messages.consume_directly(around.cluster, self.group, self.client, found)
        status = None if result.consume_result is None else str(result.consume_result)
        return Done([{"client": self.client, "status": status, "remark": result.remark}])


class ResendLetters(Operation, frozen=True, kw_only=True):
    """Dead letters of a group: those named, or the `newest`."""

    NAME: ClassVar[str] = "dlq.resend"
    ROLE: ClassVar[UserRole] = UserRole.OPERATOR
    LONG: ClassVar[tuple[str, ...]] = ("ids",)
    SECTION: ClassVar[str] = "dlq"

    group: str
    to: Literal["topic", "group"] = "group"
    ids: str = ""
    newest: int = 50

    def touched(self) -> tuple[str, ...]:
        return (self.group,)

    async def _letters(self, around: Surroundings) -> list[StoredMessage]:
        topic = dlq_topic(self.group)
        if named := self.ids.split():
            return [await messages.by_id(around.cluster, topic, each) for each in named[:MAX_LETTERS]]
        if self.newest < 1:
            raise ConfigError("newest", self.newest, "1 or more dead letters")
        limits = browsing.Limits(rows=min(self.newest, MAX_LETTERS))
        look = await browsing.look(around.cluster, topic, browsing.Wanted(limits=limits))
        return [each.message for each in look.found if each.message.get(SETTLED) is None]

    async def plan(self, around: Surroundings) -> OperationPlan:
        rows: list[Row] = [
            {
                "topic": dead_letters.origin_topic(each) or None,
                "message_id": dead_letters.origin_id(each),
                "queue": each.queue_id,
                "offset": each.queue_offset,
            }
            for each in await self._letters(around)
        ]
        return OperationPlan(rows, {"letters": len(rows)})

    async def run(self, around: Surroundings) -> Done:
        rows: list[Row] = []
        failed: dict[str, str] = {}
        letters = await self._letters(around)
        if not letters:
            raise NotFound(f"group {self.group} has no dead letters")
        for letter in letters:
            try:
                receipt = await dead_letters.resend(
                    around.cluster, self.group, letter, to_group=self.to == "group"
                )
                rows.append(_row(receipt))
            except PyroError as problem:
                failed[messages.offset_id(letter)] = str(problem)
        again = {"group": self.group, "to": self.to, "ids": " ".join(failed)} if failed else {}
        return Done(rows, (), failed, again)
