"""How a process sends tasks. Queue `mail` of the framework TASKIQ is the topic and the group `TASKIQ_mail`.

A task for later is a timed message. If its time is further away than brokers allow, it comes to a worker in
between, which sends it again: its property `task-eta` says when it is to run, `task-due` when it comes.
"""

import asyncio
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any

import msgspec

from pyromq.client.producer import Producer
from pyromq.client.values import Message, ReceivedMessage, SendResult
from pyromq.clock import Clock, clock_of
from pyromq.errors import Refused
from pyromq.tasks.names import as_key, as_tag, legal
from pyromq.tasks.options import split_task_options

ETA, DUE = "task-eta", "task-due"


class OutgoingTask(msgspec.Struct, frozen=True, kw_only=True):
    """A task to be sent; `eta_ms`: when it is to run, in milliseconds since 1970."""

    queue: str
    body: bytes
    id: str
    name: str
    priority: int | None = None
    eta_ms: int | None = None
    properties: Mapping[str, str] = {}


class TaskLink:
    """Of one process and one event loop. Options are those of `TaskOptions` and of `ClientSettings`."""

    def __init__(
        self,
        framework: str,
        namesrv: str | Iterable[str] | None,
        given: Mapping[str, Any],
        *,
        max_priority: int | None = None,
    ) -> None:
        self.framework = framework
        self.max_priority = max_priority
        self.options, client = split_task_options(given, f"options of {framework.lower()}")
        self.client: dict[str, Any] = {"namesrv": namesrv, **client}
        """Arguments of every client of the cluster."""
        self._declared: dict[str, asyncio.Task[None]] = {}
        self.producer = Producer(
            f"{framework}-PRODUCERS", max_message_bytes=self.options.max_message_bytes, **self.client
        )
        self.clock: Clock

    def __repr__(self) -> str:
        return f"<TaskLink {self.framework} {self.producer!r}>"

    async def start(self) -> None:
        self.clock = clock_of(asyncio.get_running_loop())
        await self.producer.start()

    async def close(self) -> None:
        await self.producer.close()

    def topic_of(self, queue: str) -> str:
        """The group has the same name."""
        return f"{self.framework}_{legal(queue)}"

    async def declare(self, queue: str) -> str:
        """Returns the topic, which is created if it is missing; once in a process."""
        topic = self.topic_of(queue)
        if topic not in self._declared:
            self._declared[topic] = asyncio.create_task(self._create(topic), name=f"declare {topic}")
        try:
            await asyncio.shield(self._declared[topic])
        except BaseException:
            if self._declared[topic].done():
                self._declared.pop(topic, None)
            raise
        return topic

    async def _create(self, topic: str) -> None:
        levels = self.max_priority
        with suppress(Refused):  # an account may not create topics: then it is there, or the send fails
            await self.producer.declare_topic(
                topic,
                queues=self.options.queues if levels is None else levels + 1,
                message_type="NORMAL" if levels is None else "PRIORITY",
            )

    def message(self, task: OutgoingTask, *, is_timed: bool = True) -> Message:
        """Not `is_timed`: the message comes at once, and a worker sends it again for its time."""
        now_ms = self.clock.now_ms()
        eta_ms = task.eta_ms if task.eta_ms is not None and task.eta_ms > now_ms else None
        properties, due_ms, priority = dict(task.properties), None, None
        if eta_ms is not None:
            properties[ETA] = str(eta_ms)
            if is_timed:
                due_ms = min(eta_ms, now_ms + round(self.options.max_delay_s * 1000))
                properties[DUE] = str(due_ms)
        if self.max_priority is not None and due_ms is None:
            priority = max(0, min(task.priority or 0, self.max_priority))
        return Message(
            self.topic_of(task.queue),
            task.body,
            tags=as_tag(task.name),
            keys=as_key(task.id),
            properties=properties,
            deliver_at_ms=due_ms,
            priority=priority,
        )

    async def send(self, task: OutgoingTask) -> SendResult:
        await self.declare(task.queue)
        return await self.producer.send(self.message(task))

    async def send_again(self, queue: str, message: ReceivedMessage, own: Iterable[str] = ()) -> None:
        """A copy, for its time; `own`: the framework's properties."""
        copy = OutgoingTask(
            queue=queue,
            body=message.body,
            id=" ".join(message.keys[:1]),
            name=message.tags or "",
            priority=message.priority,
            eta_ms=number_in(message, ETA),
            properties={name: value for name in own if (value := message.get(name)) is not None},
        )
        await self.send(copy)


def number_in(message: ReceivedMessage, name: str) -> int | None:
    """A property that is a number; None without it."""
    text = message.get(name)
    return int(text) if text is not None and text.isdecimal() else None
