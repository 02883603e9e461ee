"""Recurring work: one durable schedule, however many processes start, crash and stop.

A tick is a timed message: a name, and when it is due. Its due time is a multiple of the interval, or follows
from the cron expression, so all processes agree on it. Whoever handles a tick sends the next one first. All
ticks of a name go to one queue, which one member reads in order: of several ticks with the same due time it
handles the first. A process that starts sends a tick, too; so does one that handles a tick again after a
crash. None of them adds a schedule. Brokers time messages for some days at most: a tick comes every day, and
may find that no turn is due.
"""

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple, Protocol, TypeVar, Unpack

import msgspec

from pyromq.client.application_log import application_log
from pyromq.client.consumer.push import PushConsumer
from pyromq.client.cron import Cron
from pyromq.client.opened import Opened
from pyromq.client.producer import Producer
from pyromq.client.settings import ClientOptions
from pyromq.client.values import Message, ReceivedMessage
from pyromq.errors import ConfigError

J = TypeVar("J", bound=Callable[[datetime], object])

_MIN_INTERVAL = timedelta(milliseconds=100)


class Tick(msgspec.Struct, frozen=True):
    name: str
    due_ms: int


class Job(NamedTuple):
    function: Callable[[datetime], Any]
    next_after: Callable[[int], int]
    """The first turn after a moment, in milliseconds."""


def next_multiple(interval_ms: int) -> Callable[[int], int]:
    return lambda moment_ms: (moment_ms // interval_ms + 1) * interval_ms


_next_day = next_multiple(24 * 60 * 60 * 1000)


class SendTick(Protocol):
    def __call__(self, message: Message, *, sharding_key: str, deliver_at: datetime) -> Awaitable[object]: ...


class Ticks:
    """One process's handling of ticks."""

    def __init__(self, topic: str, send: SendTick, now_ms: Callable[[], int]) -> None:
        self._topic = topic
        self._send = send
        self._now_ms = now_ms
        self.jobs: dict[str, Job] = {}
        self._done: dict[str, int] = {}
        """The last tick of each name that was handled here."""

    async def begin(self) -> None:
        """Send the first tick of each job; if its schedule is under way, that is one more copy of a tick."""
        for name, job in self.jobs.items():
            await self._put_next(name, job, self._now_ms())

    async def handle(self, message: ReceivedMessage) -> None:
        tick = message.decode(Tick)
        job = self.jobs.get(tick.name)
        if job is None:
            application_log.warning("a schedule has ended, no job here has its name name=%s", tick.name)
            return
        if tick.due_ms <= self._done.get(tick.name, -1):
            return  # a copy
        # After an outage one turn makes up for all that were missed.
        turn_ms, now_ms = job.next_after(tick.due_ms - 1), max(tick.due_ms, self._now_ms())
        await self._put_next(tick.name, job, now_ms)
        self._done[tick.name] = tick.due_ms
        if turn_ms > now_ms:
            return
        try:
            await _called(job.function, _moment(turn_ms))
        except Exception:
            application_log.exception(
                "a recurring job failed, its next turn comes as planned name=%s", tick.name
            )

    async def _put_next(self, name: str, job: Job, now_ms: int) -> None:
        tick = Tick(name, min(job.next_after(now_ms), _next_day(now_ms)))
        message = Message.of(self._topic, tick, keys=[tick.name])
        await self._send(message, sharding_key=tick.name, deliver_at=_moment(tick.due_ms))


class Schedule(Opened):
    """`@schedule.every(timedelta(minutes=5))` over `async def clean_up(due: datetime)`; plain functions, too.

    All processes of a group have the same jobs; one of them runs each turn. Needs brokers with timers.
    """

    def __init__(
        self,
        group: str,
        namesrv: str | None = None,
        *,
        topic: str | None = None,
        **options: Unpack[ClientOptions],
    ) -> None:
        """`topic`: where the ticks are; by default the group's name with `-schedule`."""
        self.group = group
        self.topic = topic or f"{group}-schedule"
        self._producer = Producer(group, namesrv, **options)
        self._consumer = PushConsumer(group, namesrv, ordered=True, start_from="first", **options)
        self._ticks = Ticks(self.topic, self._producer.send, lambda: self._clock_ms())
        self._consumer.subscribe(self.topic, "*", self._ticks.handle)

    def __repr__(self) -> str:
        return f"<Schedule {self.group} of {', '.join(sorted(self._ticks.jobs)) or 'nothing'}>"

    def _clock_ms(self) -> int:
        return self._producer._started().session.clock.now_ms()

    def every(self, interval: timedelta, *, name: str | None = None) -> Callable[[J], J]:
        """Call a function at every multiple of the interval (since 1970, UTC), with the time that it is due.

        `name`: of the schedule; by default the function's. A turn that fails is logged.
        """
        if not issubclass(type(interval), timedelta) or interval < _MIN_INTERVAL:
            raise ConfigError("interval", interval, f"a timedelta of at least {_MIN_INTERVAL}")
        return self._job(name, next_multiple(round(interval / timedelta(milliseconds=1))))

    def cron(self, expression: str, *, tz: str = "UTC", name: str | None = None) -> Callable[[J], J]:
        """Call a function at the times of a cron expression, as in "0 3 * * mon-fri", in a time zone.

        The fields are minute, hour, day of the month, month, day of the week. A time that a change of the
        clocks skips is an hour later; one that comes twice counts once, unless the hour is `*`.
        """
        return self._job(name, Cron(expression, tz).next_after)

    def _job(self, name: str | None, next_after: Callable[[int], int]) -> Callable[[J], J]:
        def decorate(function: J) -> J:
            called: str = name or getattr(function, "__name__", None) or repr(function)
            if called in self._ticks.jobs:
                raise ConfigError("name", called, "a name that no other job of the schedule has")
            self._ticks.jobs[called] = Job(function, next_after)
            return function

        return decorate

    async def start(self) -> None:
        """Done by `async with`. Jobs that are added later run after the next start."""
        await self._producer.start()
        try:
            await self._ticks.begin()
            await self._consumer.start()
        except BaseException:
            await self._producer.close()
            raise

    async def close(self) -> None:
        """Finish the running job; other processes take over."""
        try:
            await self._consumer.close()
        finally:
            await self._producer.close()


async def _called(function: Callable[[datetime], Any], due: datetime) -> None:
    if inspect.iscoroutinefunction(function):
        await function(due)
        return
    result = await asyncio.to_thread(function, due)
    if inspect.isawaitable(result):
        await result


def _moment(at_ms: int) -> datetime:
    return datetime.fromtimestamp(at_ms / 1000, UTC)
