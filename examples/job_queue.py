"""A job queue with retries, delays and a schedule: `python examples/job_queue.py [name server]`.

A job is a message: its function is chosen by name. A job that fails comes again after a pause that grows, one
that nobody knows becomes a dead letter. A schedule puts a job into the queue again and again: one schedule,
however many processes run this program, and however they end.

Prints `resized cat.png`, `tick` three times and the like, and at last `dead letter: nonsense`.
"""

import asyncio
import sys
from collections import Counter
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from typing import Any

import msgspec

from pyromq.aio import GiveUp, Message, Producer, PushConsumer, ReceivedMessage, RetryLater, Schedule, typed

TOPIC = "Jobs"
Function = Callable[..., Awaitable[None]]


class Job(msgspec.Struct, kw_only=True, omit_defaults=True):
    name: str
    arguments: dict[str, Any] = {}


class JobQueue:
    def __init__(self, namesrv: str) -> None:
        self._producer = Producer("job-makers", namesrv=namesrv)
        self._consumer = PushConsumer("workers", namesrv=namesrv, start_from="first", concurrency=4)
        self._functions: dict[str, Function] = {}
        self._consumer.subscribe(TOPIC, "*", typed(Job)(self._work))

    async def __aenter__(self) -> "JobQueue":
        await self._producer.start()
        await self._consumer.start()
        return self

    async def __aexit__(self, *problem: object) -> None:
        await self._consumer.close()  # running jobs finish
        await self._producer.close()

    def job(self, function: Function) -> Function:
        """Register a function under its name."""
        self._functions[function.__name__] = function
        return function

    async def put(self, name: str, *, after: timedelta | None = None, **arguments: Any) -> None:
        job = Job(name=name, arguments=arguments)
        await self._producer.send(Message.of(TOPIC, job, keys=[name]), delay=after)

    async def _work(self, job: Job, message: ReceivedMessage) -> None:
        function = self._functions.get(job.name)
        if function is None:
            raise GiveUp(f"no job is called {job.name}")
        try:
            await function(**job.arguments)
        except Exception as problem:
            # A second, two, four …; with `max_retries` the last failure is a dead letter.
            pause = timedelta(seconds=2.0 ** min(message.reconsume_times, 12))
            raise RetryLater(repr(problem), delay=pause) from problem


async def main(namesrv: str = "127.0.0.1:9876") -> None:
    jobs, done = JobQueue(namesrv), Counter[str]()
    changed = asyncio.Condition()

    async def report(line: str) -> None:
        print(line, flush=True)
        async with changed:
            done[line] += 1
            changed.notify_all()

    @jobs.job
    async def resize(picture: str) -> None:
        await report(f"resized {picture}")

    @jobs.job
    async def mail(to: str, attempts: list[str] = []) -> None:  # noqa: B006 (one process remembers)
        attempts.append(to)
        if len(attempts) < 2:
            raise ConnectionError("the mail server is away")
        await report(f"mailed {to} at attempt {len(attempts)}")

    @jobs.job
    async def tick() -> None:
        await report("tick")

    schedule = Schedule("job-schedule", namesrv=namesrv)

    @schedule.every(timedelta(seconds=1))
    async def put_tick(due: datetime) -> None:
        await jobs.put("tick")

    async with jobs, schedule:
        await jobs.put("resize", picture="cat.png")
        await jobs.put("resize", after=timedelta(seconds=1), picture="dog.png")
        await jobs.put("mail", to="ada@example.org")
        await jobs.put("nonsense")
        async with changed:
            await changed.wait_for(lambda: len(done) == 4 and done["tick"] >= 3)
    async with PushConsumer("job-undertakers", namesrv=namesrv, start_from="first") as undertaker:
        async for message in undertaker.subscribe("%DLQ%workers"):
            print(f"dead letter: {message.decode(Job).name}")
            break


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
