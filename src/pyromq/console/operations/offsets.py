"""Offsets of groups: reset, cloned, and put back where they were."""

from datetime import datetime
from typing import Any, ClassVar, Literal

import msgspec

from pyromq.admin import offsets, resets
from pyromq.admin.failures import NotFound
from pyromq.admin.resets import Move
from pyromq.console.operations.operation import Done, Operation, OperationPlan, Row, Surroundings, mqadmin
from pyromq.console.security.roles import UserRole
from pyromq.errors import ConfigError

UNDO_HOURS = 24


def rows_of(moves: list[Move]) -> list[Row]:
    return [
        {
            "broker": move.queue.broker_name,
            "queue": move.queue.queue_id,
            "offset_now": move.now,
            "offset_wanted": move.wanted,
            "skipped": max(0, move.wanted - (move.first if move.now is None else move.now)),
            "repeated": max(0, (move.first if move.now is None else move.now) - move.wanted),
        }
        for move in moves
    ]


def moment_ms(text: str) -> int:
    """A time of a form: `2026-12-24T18:00`, UTC unless it names a zone, or milliseconds since 1970."""
    if text.isdecimal() and len(text) <= 18:
        return int(text)
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        raise ConfigError(
            "time", text, "a time such as 2026-12-24T18:00, or milliseconds since 1970"
        ) from None
    zone = "+00:00" if at.tzinfo is None else ""
    return round(datetime.fromisoformat(at.isoformat() + zone).timestamp() * 1000)


class ResetOffsets(Operation, frozen=True, kw_only=True):
    """To a time, to an offset or to the end; in one queue, or in all of the topic."""

    NAME: ClassVar[str] = "offsets.reset"
    ROLE: ClassVar[UserRole] = UserRole.OPERATOR
    SECTION: ClassVar[str] = "groups"
    CAN_BE_UNDONE: ClassVar[bool] = True

    group: str
    topic: str
    to: Literal["time", "offset", "start", "end"] = "time"
    time: str = ""
    offset: int | None = None
    broker: str = ""
    queue: int | None = None

    def touched(self) -> tuple[str, ...]:
        return (self.group,)

    def line(self, namesrv: str) -> str:
        wanted: dict[str, object] = {"-g": self.group, "-t": self.topic}
        is_one_queue = bool(self.broker) and self.queue is not None
        is_whole_topic = not self.broker and self.queue is None
        if not is_one_queue and (not is_whole_topic or self.to == "offset"):
            return ""
        if self.to == "end" and is_whole_topic:
            return mqadmin("skipAccumulatedMessage", namesrv, wanted)
        if self.to == "time" and self.time:
            wanted["-s"] = moment_ms(self.time)
        else:
            wanted["-s"] = -1 if self.to == "end" else 0
        if is_one_queue:
            wanted |= {"-b": self.broker, "-q": self.queue}
            if self.to == "offset":
                wanted["-o"] = self.offset
        return mqadmin("resetOffsetByTime", namesrv, wanted)

    async def _moves(self, around: Surroundings) -> list[Move]:
        if self.to == "time" and not self.time:
            raise ConfigError("time", "", "a time to reset to")
        if self.to == "offset" and self.offset is None:
            raise ConfigError("offset", "", "an offset to reset to")
        return await resets.moves(
            around.cluster,
            self.group,
            self.topic,
            time_ms=moment_ms(self.time) if self.to == "time" else None,
            offset=0 if self.to == "start" else self.offset if self.to == "offset" else None,
            broker_name=self.broker or None,
            queue_id=self.queue,
        )

    async def plan(self, around: Surroundings) -> OperationPlan:
        moves = await self._moves(around)
        return OperationPlan(rows_of(moves), msgspec.to_builtins(moves))

    async def run(self, around: Surroundings) -> Done:
        moves = await self._moves(around)
        return Done(rows_of(await resets.perform(around.cluster, self.group, moves)), ("groups", self.group))


class UndoReset(Operation, frozen=True, kw_only=True):
    """Back to where the group stood before a reset, queue by queue, as the audit log has it."""

    NAME: ClassVar[str] = "offsets.undo"
    ROLE: ClassVar[UserRole] = UserRole.OPERATOR
    SECTION: ClassVar[str] = "groups"
    CAN_BE_UNDONE: ClassVar[bool] = True

    group: str
    id: str

    def touched(self) -> tuple[str, ...]:
        return (self.group,)

    def _moves(self, around: Surroundings) -> list[Move]:
        entry = around.undone
        if entry is None or not entry.before or entry.fields.get("group") != self.group:
            raise NotFound(f"the audit log has no reset {self.id} of group {self.group}")
        age_ms = around.cluster.clock.now_ms() - entry.at_ms
        if age_ms > UNDO_HOURS * 3_600_000:
            raise NotFound(f"reset {self.id} is older than {UNDO_HOURS} hours")
        return [move.reversed() for move in msgspec.convert(entry.before, list[Move])]

    async def plan(self, around: Surroundings) -> OperationPlan:
        moves = self._moves(around)
        return OperationPlan(rows_of(moves), msgspec.to_builtins(moves))

    async def run(self, around: Surroundings) -> Done:
        done = await resets.perform(around.cluster, self.group, self._moves(around))
        return Done(rows_of(done), ("groups", self.group))


class CloneOffsets(Operation, frozen=True, kw_only=True):
    NAME: ClassVar[str] = "offsets.clone"
    ROLE: ClassVar[UserRole] = UserRole.OPERATOR
    SECTION: ClassVar[str] = "groups"

    source: str
    group: str
    topic: str

    def touched(self) -> tuple[str, ...]:
        return (self.group,)

    def line(self, namesrv: str) -> str:
        return mqadmin("cloneGroupOffset", namesrv, {"-s": self.source, "-d": self.group, "-t": self.topic})

    async def plan(self, around: Surroundings) -> OperationPlan:
        stats = await offsets.lag(around.cluster, self.source)
        rows: list[Row] = [
            {"broker": queue.broker_name, "queue": queue.queue_id, "offset_wanted": place.consumer_offset}
            for queue, place in sorted(stats.offset_table.items())
            if queue.topic == self.topic
        ]
        before: Any = msgspec.to_builtins(await resets.moves(around.cluster, self.group, self.topic))
        return OperationPlan(rows, before)

    async def run(self, around: Surroundings) -> Done:
        cloned = await offsets.clone(around.cluster, self.source, self.group, self.topic)
        rows: list[Row] = [
            {"broker": queue.broker_name, "queue": queue.queue_id, "offset_wanted": offset}
            for queue, offset in cloned.items()
        ]
        return Done(rows, ("groups", self.group))
