"""Taskiq's broker: a queue is a topic, a label `delay` is a timed message, a task that runs is renewed."""

from collections.abc import AsyncGenerator, Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from taskiq import AckableMessage, AsyncBroker, BrokerMessage

from pyromq.client.consumer.reading.popping import PoppedMessage
from pyromq.client.values import SendResult
from pyromq.errors import BadMessage, ConfigError, StateError
from pyromq.tasks.intake import Intake
from pyromq.tasks.keyed import KeyedTopic
from pyromq.tasks.link import OutgoingTask, TaskLink

SCHEDULE, SCHEDULES = "taskiq-schedule", "taskiq-schedules"
"""Properties of a task that a schedule sent: its id, and the topic of the schedules."""
AT_MS, IN_TOPIC = "rocketmq_at_ms", "rocketmq_schedules"
"""The labels of the same task."""
DEFAULT_QUEUE = "taskiq"


class TaskiqBroker(AsyncBroker):
    """`namesrv`: addresses of name servers or a URL, None: PYROMQ_URL or NAMESRV_ADDR.

    Workers read `queues`. A task goes to the first of them, or to the queue of its label `queue_name`. With
    `max_priority`, its label `priority` counts: higher numbers first. `prefetch`: how many tasks wait in a
    worker process, besides those that run. Options are those of `TaskOptions` and `ClientSettings`.
    """

    def __init__(
        self,
        namesrv: str | Iterable[str] | None = None,
        *,
        queues: str | Iterable[str] = DEFAULT_QUEUE,
        prefetch: int = 16,
        max_priority: int | None = None,
        **options: Any,
    ) -> None:
        super().__init__()
        self.queue_names = [queues] if isinstance(queues, str) else list(queues)
        if not self.queue_names:
            raise ConfigError("queues", queues, "at least one queue")
        self._prefetch = prefetch
        self._new_link = partial(TaskLink, "TASKIQ", namesrv, options, max_priority=max_priority)
        self.client_options: dict[str, Any] = self._new_link().client  # bad options stop the start
        """Of every client of the cluster."""
        self._link: TaskLink | None = None
        self._intake: Intake | None = None
        self._schedules: dict[str, KeyedTopic] = {}
        self._answers: dict[str, SendResult | None] = {}
        """Of tasks that a schedule sends now."""

    def __repr__(self) -> str:
        return f"<TaskiqBroker of {', '.join(self.queue_names)}>"

    @property
    def link(self) -> TaskLink:
        if self._link is None:
            raise StateError("the broker is not started: await broker.startup()")
        return self._link

    async def startup(self) -> None:
        if self._link is None:
            link = self._new_link()
            await link.start()
            self._link = link
        await super().startup()

    async def shutdown(self) -> None:
        """Give back what was not acknowledged, and leave."""
        await super().shutdown()
        intake, link, self._intake, self._link = self._intake, self._link, None, None
        if intake is not None:
            await intake.close()
        for topic in self._schedules.values():
            await topic.close()
        self._schedules.clear()
        if link is not None:
            await link.close()

    async def kick(self, message: BrokerMessage) -> None:
        """Send a task."""
        labels = message.labels
        at_ms = _number(AT_MS, labels.get(AT_MS)) or 0
        is_scheduled = at_ms > self.link.clock.now_ms()  # a retry has the labels, too
        task = OutgoingTask(
            queue=str(labels.get("queue_name") or self.queue_names[0]),
            body=message.message,
            id=message.task_id,
            name=message.task_name,
            priority=_number("priority", labels.get("priority")),
            eta_ms=at_ms if is_scheduled else self._eta_ms(labels.get("delay")),
            properties={SCHEDULE: str(labels["schedule_id"]), SCHEDULES: str(labels[IN_TOPIC])}
            if is_scheduled
            else {},
        )
        result = await self.link.send(task)
        if message.task_id in self._answers:
            self._answers[message.task_id] = result

    @contextmanager
    def answer_to(self, task_id: str) -> Iterator[Callable[[], SendResult | None]]:
        """The broker's answer to a task that is sent in the block."""
        self._answers[task_id] = None
        try:
            yield lambda: self._answers[task_id]
        finally:
            del self._answers[task_id]

    def _eta_ms(self, delay: Any) -> int | None:
        if delay is None:
            return None
        try:
            return self.link.clock.now_ms() + round(float(delay) * 1000)
        except (TypeError, ValueError):
            raise BadMessage(f"the label delay is {delay!r}: expected seconds") from None

    async def listen(self) -> AsyncGenerator[AckableMessage, None]:
        """Tasks for this worker. Taskiq asks for the next one when it has room."""
        self._intake = intake = Intake(
            self.link,
            self.queue_names,
            self._prefetch,
            counts_running=False,
            is_wanted=self._is_wanted,
            own=(SCHEDULE, SCHEDULES),
        )
        intake.start()
        try:
            while (taken := await intake.next()) is not None:
                yield AckableMessage(data=taken.message.body, ack=partial(intake.ack, taken))
        finally:
            await intake.stop()  # tasks that still run are acknowledged later

    async def _is_wanted(self, message: PoppedMessage) -> bool:
        """Not if its schedule was deleted."""
        schedule, topic = message.get(SCHEDULE), message.get(SCHEDULES)
        if schedule is None or topic is None:
            return True
        if topic not in self._schedules:
            schedules = KeyedTopic(topic, self.link.client, queues=1)
            await schedules.start()
            self._schedules[topic] = schedules
        return not await self._schedules[topic].is_forgotten(schedule)


def _number(label: str, value: Any) -> int | None:
    if value is None:
        return None
    try:
        return int(value)
    except (TypeError, ValueError):
        raise BadMessage(f"the label {label} is {value!r}: expected a number") from None
