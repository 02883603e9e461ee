"""Simple consumers that come and go: they receive, acknowledge each message, and close.

A call of `receive` that is cancelled leaves a pop at the broker. The messages that it finds are hidden from
the others, and no call has received them: they are visible again soon after their consumer was closed.
"""

import asyncio
from contextlib import suppress
from typing import Any

from tests.simulation.loads.load import SEND_TIMEOUT_S
from tests.simulation.loads.popped import PoppedLoad

from pyromq import Message, PyroError, aio

_GROUP, _LEAVERS = "receivers", "leavers"
_INVISIBLE_S, _LONG_S = 10.0, 600.0
_SOON_S = 30.0
_ON_ITS_WAY_S = 6.0
"""An answer to a pop from before the acknowledgement may come so late."""
_CALLS = 5
"""Of one consumer, before it is closed."""
_LONGEST_S = 0.2
"""So long it takes at most to handle a message."""


class ReceivedLoad(PoppedLoad):
    def start(self) -> None:
        self._acknowledged_s: dict[str, float] = {}
        self.reads(_GROUP, commits=False)
        self.sender("producer", self.produce("p"))
        self.sender("leaver", self._leave_in_the_end())
        for number in (1, 2):
            self.member(f"member {number}", self._come_and_go)

    async def _come_and_go(self) -> None:
        while True:
            async with self._consumer(_GROUP, invisible_s=_INVISIBLE_S) as consumer:
                consumer.subscribe(self.topic)
                for _ in range(_CALLS):
                    try:
                        async with asyncio.timeout(self.chance.uniform(0.1, 5.0)):
                            await self._receive(consumer)
                    except TimeoutError:
                        continue
                    except PyroError:
                        await self.pause(has_failed=True)

    async def _receive(self, consumer: aio.SimpleConsumer) -> None:
        for message in await self.receive(consumer, _GROUP):
            body, now_s = message.body.decode(), self.recorder.now_s
            if now_s - self._acknowledged_s.get(body, now_s) > _ON_ITS_WAY_S:
                self.recorder.violation("acknowledged, but came again", f"{body!r} at {now_s:.1f} s")
            self.delivered(_GROUP, message)
            self.finished(_GROUP, message)  # the call may be cancelled when the broker has it already
            await asyncio.sleep(self.chance.uniform(0.0, _LONGEST_S))
            await consumer.ack(message)
            self._acknowledged_s.setdefault(body, self.recorder.now_s)

    def _consumer(self, group: str, **options: Any) -> aio.SimpleConsumer:
        return aio.SimpleConsumer(
            group, self.cluster.name_server_address, start_from="first", **self.options(), **options
        )

    async def _leave_in_the_end(self) -> None:
        """When everything has healed: what a closed consumer has popped for nobody comes to the next one."""
        while not self.is_over:
            await self.pause()
        topic = f"{self.topic}Left"
        async with self.producer("leaver") as producer:
            await self._send(producer, topic, "first")
            async with self._consumer(_LEAVERS, invisible_s=_LONG_S) as consumer:
                consumer.subscribe(topic)
                if await self._missing(consumer, {"first"}):
                    self.recorder.violation("nothing received", f"by {_LEAVERS} in {_SOON_S} s")
                with suppress(TimeoutError):
                    async with asyncio.timeout(0.5):
                        await consumer.receive(wait_s=10.0)
                wanted = {"left 1", "left 2", "left 3"}
                for body in sorted(wanted):
                    await self._send(producer, topic, body)
                await asyncio.sleep(0.5)
        async with self._consumer(_LEAVERS, invisible_s=_LONG_S) as consumer:
            consumer.subscribe(topic)
            missing = await self._missing(consumer, wanted)
        if missing:
            text = f"{sorted(missing)} did not come within {_SOON_S} s"
            self.recorder.violation("hidden after a close", text)

    async def _send(self, producer: aio.Producer, topic: str, body: str) -> None:
        while True:
            with suppress(PyroError):
                if (await producer.send(Message(topic, body.encode()), timeout_s=SEND_TIMEOUT_S)).is_ok:
                    return
            await self.pause(has_failed=True)

    async def _missing(self, consumer: aio.SimpleConsumer, wanted: set[str]) -> set[str]:
        """What of this did not come soon."""
        missing = set(wanted)
        with suppress(TimeoutError):
            async with asyncio.timeout(_SOON_S):
                while missing:
                    with suppress(PyroError):
                        for message in await consumer.receive(wait_s=5.0):
                            missing.discard(message.body.decode())
                            await consumer.ack(message)
        return missing
