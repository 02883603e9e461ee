"""Schedules of Taskiq. One for a time is a timed message at the broker: no scheduler is needed for it.

Recurring ones are records of a topic, which a scheduler follows without polling. Brokers delete old messages,
so it writes those of yesterday anew.
"""

import asyncio
import logging
from datetime import UTC
from typing import Any
from uuid import uuid4

from taskiq import ScheduleSource
from taskiq.kicker import AsyncKicker
from taskiq.scheduler.scheduled_task import ScheduledTask

from pyromq.client.reader import Reader
from pyromq.client.values import Message, ReceivedMessage
from pyromq.errors import PyroError, StateError
from pyromq.taskiq.broker import AT_MS, IN_TOPIC, TaskiqBroker
from pyromq.tasks.keyed import FORGOTTEN, KeyedTopic

_log = logging.getLogger(__name__)

DEFAULT_TOPIC = "TASKIQ-SCHEDULES"
_AT_A_TIME, _RECURRING, _MARK = "AT-A-TIME", "RECURRING", "MARK"
_DAY_MS = 24 * 60 * 60 * 1000
_READ_TIMEOUT_S = 30.0


class TaskiqSchedules(ScheduleSource):
    """A source for `TaskiqScheduler(broker, [TaskiqSchedules(broker)])`, and for `schedule_by_time`."""

    def __init__(self, broker: TaskiqBroker, *, topic: str = DEFAULT_TOPIC) -> None:
        self._broker = broker
        self._topic = topic
        self._records: KeyedTopic | None = None
        self._starting = asyncio.Lock()
        self._reader: Reader | None = None
        self._following: asyncio.Task[None] | None = None
        self._recurring: dict[str, tuple[int, bytes]] = {}
        """A schedule as read, and when it was stored."""

    def __repr__(self) -> str:
        return f"<TaskiqSchedules in {self._topic}: {len(self._recurring)}>"

    async def startup(self) -> None:
        """Taskiq's scheduler starts its sources before their broker."""
        await self._started()

    async def shutdown(self) -> None:
        records, reader, self._records, self._reader = self._records, self._reader, None, None
        if self._following is not None:
            self._following.cancel()
            await asyncio.gather(self._following, return_exceptions=True)
            self._following = None
        if reader is not None:
            await reader.close()
        if records is not None:
            await records.close()

    async def _started(self) -> KeyedTopic:
        async with self._starting:
            if self._records is None:
                records = KeyedTopic(self._topic, self._broker.client_options, queues=1)
                await records.start()
                self._records = records
            return self._records

    async def add_schedule(self, schedule: ScheduledTask) -> None:
        records = await self._started()
        if schedule.time is None:
            body = schedule.model_dump_json().encode()
            await records.put(schedule.schedule_id, body, _RECURRING)
            self._recurring[schedule.schedule_id] = (self._broker.link.clock.now_ms(), body)
            return
        task_id = schedule.task_id or self._broker.id_generator()
        at = schedule.time if schedule.time.tzinfo is not None else schedule.time.replace(tzinfo=UTC)
        labels: dict[str, Any] = {AT_MS: round(at.timestamp() * 1000), IN_TOPIC: self._topic}
        kicker: AsyncKicker[Any, Any] = AsyncKicker(schedule.task_name, self._broker, dict(schedule.labels))
        kicker = kicker.with_labels(schedule_id=schedule.schedule_id, **labels).with_task_id(task_id)
        with self._broker.answer_to(task_id) as answer:
            await kicker.kiq(*schedule.args, **schedule.kwargs)
            sent = answer()
        handle = sent.recall_handle if sent is not None else None
        await records.put(schedule.schedule_id, (handle or "-").encode(), _AT_A_TIME)

    async def delete_schedule(self, schedule_id: str) -> None:
        """A worker that gets the task of a deleted schedule drops it, if the broker cannot take it back."""
        records = await self._started()
        found = await records.find(schedule_id)
        await records.forget(schedule_id)
        self._recurring.pop(schedule_id, None)
        if found and found[0].tags == _AT_A_TIME and found[0].body != b"-":
            try:
                await records.producer.recall(found[0].body.decode())
            except PyroError as problem:
                _log.info("a worker will drop the task of the schedule id=%s: %s", schedule_id, problem)

    async def get_schedules(self) -> list[ScheduledTask]:
        """The recurring ones: brokers deliver the others."""
        records = await self._started()
        if self._following is None:
            await self._read_all(records)
        elif self._following.done():
            self._following.result()
            raise StateError(f"{self!r} is closed")
        now_ms = self._broker.link.clock.now_ms()
        for schedule_id, (stored_ms, body) in list(self._recurring.items()):
            if stored_ms < now_ms - _DAY_MS:
                await records.put(schedule_id, body, _RECURRING)
                self._recurring[schedule_id] = now_ms, body
        return [ScheduledTask.model_validate_json(body) for _, body in self._recurring.values()]

    async def _read_all(self, records: KeyedTopic) -> None:
        """Up to a mark at the end of each queue; from then on it is followed."""
        reader = self._reader = Reader(self._topic, start_from="first", **self._broker.client_options)
        await reader.start()
        marks = {uuid4().hex: queue for queue in await records.producer.queues(self._topic)}
        for mark, queue in marks.items():
            await records.producer.send(Message(self._topic, b"-", tags=_MARK, keys=mark), queue=queue)
        left = set(marks)
        async with asyncio.timeout(_READ_TIMEOUT_S):
            while left:
                for message in await reader.receive(1000):
                    self._apply(message)
                    left.difference_update(message.keys)
        self._following = asyncio.create_task(self._follow(reader), name=f"follow {self._topic}")

    async def _follow(self, reader: Reader) -> None:
        async for message in reader:
            self._apply(message)

    def _apply(self, message: ReceivedMessage) -> None:
        (key,) = message.keys
        if message.tags == _RECURRING:
            self._recurring[key] = message.stored_ms, bytes(message.body)
        elif message.tags == FORGOTTEN:
            self._recurring.pop(key, None)
