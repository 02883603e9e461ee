"""A job queue with retries, delays and a schedule: `python examples/job_queue.py [name server]`.

A job is a message: its function is chosen by name. A job that fails comes again after a pause that grows, one
that nobody knows becomes a dead letter. A job with a schedule sends its own successor, which the broker holds
until its time.
"""

import asyncio
import sys
from collections import Counter
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from pyromq.aio import GiveUp, Message, Producer, PushConsumer, ReceivedMessage, RetryLater, typed

TOPIC = "Jobs"
Function = Callable[..., Awaitable[None]]


class Job(msgspec.Struct, kw_only=True, omit_defaults=True):
    name: str
    arguments: dict[str, Any] = {}
    due: datetime | None = None
    every_s: float | None = None


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
        await self._send(Job(name=name, arguments=arguments, due=_from_now(after)))

    async def put_every(self, name: str, interval: timedelta, **arguments: Any) -> None:
        """The first time now, then again and again; a worker that is down delays it, but skips no turn."""
        job = Job(name=name, arguments=arguments, due=datetime.now(UTC), every_s=interval.total_seconds())
        await self._send(job)

    async def _send(self, job: Job) -> None:
        await self._producer.send(Message.of(TOPIC, job, keys=[job.name]), deliver_at=job.due)

    async def _work(self, job: Job, message: ReceivedMessage) -> None:
        function = self._functions.get(job.name)
        if function is None:
            raise GiveUp(f"no job is called {job.name}")
        if job.every_s is not None and job.due is not None and message.reconsume_times == 0:
            # From the time it was due, not from now: the schedule does not drift.
            after = msgspec.structs.replace(job, due=job.due + timedelta(seconds=job.every_s))
            await self._send(after)
        try:
            await function(**job.arguments)
        except Exception as problem:
            # Level 1 is a second, 2 are five, 3 ten; with `max_retries` the last failure is a dead letter.
            raise RetryLater(repr(problem), delay_level=min(message.reconsume_times + 1, 18)) from problem


def _from_now(after: timedelta | None) -> datetime | None:
    return None if after is None else datetime.now(UTC) + after


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

    async with jobs:
        await jobs.put("resize", picture="cat.png")
        await jobs.put("resize", after=timedelta(seconds=1), picture="dog.png")
        await jobs.put("mail", to="ada@example.org")
        await jobs.put("nonsense")
        await jobs.put_every("tick", timedelta(seconds=1))
        async with changed:
            await changed.wait_for(lambda: len(done) == 4 and done["tick"] >= 3)
    async with PushConsumer("job-undertakers", namesrv=namesrv, start_from="first") as undertaker:
        async for message in undertaker.subscribe("%DLQ%workers"):
            print(f"dead letter: {message.decode(Job).name}")
            break


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
