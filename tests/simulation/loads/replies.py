"""Requests and replies: a reply may be lost while something is broken, but none is for another request."""

import asyncio
from collections.abc import Iterator
from contextlib import suppress

from tests.simulation.contents import Contents
from tests.simulation.loads.load import RunningLoad

from pyromq import Message, PyroError, ReceivedMessage, aio

_GROUP = "answerers"
_LAST_TRIES = 20


class RepliesLoad(RunningLoad):
    def start(self) -> None:
        self.sender("producer", self._ask())
        self.member("member", self._answer)

    @property
    def is_delivered(self) -> bool:
        return True

    def judge(self, contents: list[Contents]) -> Iterator[tuple[str, str]]:
        return iter(())

    async def _ask(self) -> None:
        async with self.producer("p") as producer:
            while not self.is_over:
                await self._ask_once(producer)
                await self.pause()
            for _ in range(_LAST_TRIES):
                if await self._ask_once(producer):
                    return
                await asyncio.sleep(1.0)
            self.recorder.violation("no reply", f"after {_LAST_TRIES} requests, when everything had healed")

    async def _ask_once(self, producer: aio.Producer) -> bool:
        body = self.next_body("question")
        with suppress(PyroError):
            reply = await producer.request(Message(self.topic, body.encode()), 2.0)
            if reply.body.decode() != f"answer to {body}":
                self.recorder.violation("a reply to another request", f"{body!r} got {reply.body!r}")
            self.recorder.acknowledged()
            return True
        return False

    async def _answer(self) -> None:
        async with (
            self.producer("answers") as producer,
            aio.PushConsumer(
                _GROUP, self.cluster.name_server_address, start_from="first", **self.options()
            ) as consumer,
        ):

            async def take(message: ReceivedMessage) -> None:
                with suppress(PyroError):
                    await producer.reply(message, b"answer to " + message.body)

            consumer.subscribe(self.topic, "*", take)
            await asyncio.Event().wait()
