"""Handlers that fail: the body of a message says what becomes of it.

One group gets single messages, and its handler raises any exception. The other one gets batches, and names
copies of the messages that failed. A failed message comes again or goes to the dead letters; the rest of its
batch does not.
"""

import asyncio
import copy
from collections.abc import Iterator

from tests.simulation.contents import Contents
from tests.simulation.loads.load import RunningLoad

from pyromq import GiveUp, ReceivedMessage, RetryLater
from pyromq.protocol.names import dlq_topic
from pyromq.protocol.record import decode_record
from pyromq.store.message_store import MessageStore

_SINGLE, _BATCHES = "single-failers", "batch-failers"
_LONGEST_S = 0.2
_FATES = ("fine", "fine", "again", "dead")


class FailingLoad(RunningLoad):
    def start(self) -> None:
        for group in (_SINGLE, _BATCHES):
            self.reads(group)
        self._named: set[tuple[str, str]] = set()
        """By group: the messages that a handler has failed with."""
        self.sender("producer", self.produce("p"))
        for number in (1, 2):
            self.member(f"member {number}", self._take_one_by_one)
            self.member(f"batch member {number}", self._take_batches)

    def next_body(self, producer: str) -> str:
        return f"{self.chance.choice(_FATES)}-{super().next_body(producer)}"

    async def _take_one_by_one(self) -> None:
        async def take(message: ReceivedMessage) -> None:
            await self._begin(_SINGLE, [message])
            if _fails(message):
                self._failed(_SINGLE, [message])
                raise ValueError(message.body)
            self.finished(_SINGLE, message)

        async with self.consumer(_SINGLE, max_retries=1) as consumer:
            consumer.subscribe(self.topic, "*", take)
            await asyncio.Event().wait()

    async def _take_batches(self) -> None:
        async def take(messages: list[ReceivedMessage]) -> None:
            await self._begin(_BATCHES, messages)
            failed = [each for each in messages if _fails(each)]
            self._failed(_BATCHES, failed)
            for message in messages:
                if message not in failed:
                    self.finished(_BATCHES, message)
            # Some of them may only come again: then all of them do.
            if any(_fate(each) == "again" for each in failed):
                raise RetryLater(delay_level=1, only=list(map(copy.copy, failed)))
            if failed:
                raise GiveUp(only=list(map(copy.copy, failed)))

        async with self.consumer(_BATCHES, batch_size=8) as consumer:
            consumer.subscribe(self.topic, "*", take)
            await asyncio.Event().wait()

    async def _begin(self, group: str, messages: list[ReceivedMessage]) -> None:
        for message in messages:
            self.delivered(group, message)
            if message.reconsume_times and (group, message.body.decode()) not in self._named:
                self.recorder.violation("came again, but had not failed", f"{group}: {message.body!r}")
        await asyncio.sleep(self.chance.uniform(0.0, _LONGEST_S))

    def _failed(self, group: str, messages: list[ReceivedMessage]) -> None:
        for message in messages:
            self._named.add((group, message.body.decode()))
            self.settled(group, message)
            if _fate(message) == "dead":
                self._got[group].add(message.body.decode())

    @property
    def is_delivered(self) -> bool:
        broker = self.broker_of_master()
        if not super().is_delivered or broker is None:
            return False
        dead = {
            each.body
            for each in self.history.sent
            if each.offset is not None and each.body.startswith("dead")
        }
        return all(dead <= _letters(broker.store, group) for group in (_SINGLE, _BATCHES))

    def judge(self, contents: list[Contents]) -> Iterator[tuple[str, str]]:
        yield from super().judge(contents)
        for each in contents:
            for group in (_SINGLE, _BATCHES):
                letters = {message.body.decode() for message in each.messages(dlq_topic(group))}
                for body in sorted(letters):
                    if not body.startswith("dead"):
                        yield "a dead letter that can be handled", f"{body!r} of {group} at {each.broker}"
                for sent in self.history.sent:
                    if sent.offset is not None and sent.body.startswith("dead") and sent.body not in letters:
                        yield "no dead letter", f"{sent.body!r} of {group} at {each.broker}"


def _letters(store: MessageStore, group: str) -> set[str]:
    """The dead letters; some may be there twice."""
    topic = dlq_topic(group)
    places = (
        store.queues.log_offset(topic, 0, offset) for offset in range(store.queues.next_offset(topic, 0))
    )
    records = (store.log.record_at(place) for place in places if place is not None)
    return {decode_record(record).body.decode() for record in records if record is not None}


def _fate(message: ReceivedMessage) -> str:
    return message.body.decode().partition("-")[0]


def _fails(message: ReceivedMessage) -> bool:
    return {"fine": False, "again": not message.reconsume_times, "dead": True}[_fate(message)]
