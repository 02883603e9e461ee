"""Transactions, timed and delayed messages next to the ordinary load. A body says what must become of it.

`commit-…` is committed, sometimes only when the broker asks; `rollback-…` never becomes visible; `timed-…` is
due a second or two after its send, by a time or by the first delay level.
"""

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack
from datetime import UTC, datetime, timedelta
from functools import partial
from random import Random

from tests.campaign.history import History

from pyromq import Message, PyroError, ReceivedMessage, TransactionState, aio

SIDE_TOPIC = "Payments"

_SEND_TIMEOUT_S = 1.5
_BETWEEN_SENDS_S = 0.05


class SideLoad:
    """Acknowledged bodies go into `history.decided`."""

    def __init__(self, namesrv: str, history: History, is_over: Callable[[], bool]) -> None:
        self._namesrv = namesrv
        self._history = history
        self._is_over = is_over
        self._choice = Random(0)
        self._got: set[str] = set()
        self._senders: list[asyncio.Task[None]] = []

    async def start(self, stack: AsyncExitStack) -> None:
        producer = await stack.enter_async_context(
            aio.TransactionProducer(
                "payers",
                self._namesrv,
                check=self._check,
                retries=0,
                send_timeout_s=_SEND_TIMEOUT_S,
                heartbeat_interval_s=1.0,
                instance_name="payer",
                connect_timeout_s=1.0,
            )
        )
        consumer = aio.PushConsumer(
            "books",
            self._namesrv,
            start_from="first",
            instance_name="bookkeeper",
            connect_timeout_s=1.0,
            stop_grace_s=5.0,
        )
        consumer.subscribe(SIDE_TOPIC, "*", self._take)
        await stack.enter_async_context(consumer)
        self._senders = [
            asyncio.create_task(self._pay(producer)),
            asyncio.create_task(self._remind(producer)),
        ]

    async def stop(self) -> None:
        await asyncio.gather(*self._senders)

    @property
    def is_delivered(self) -> bool:
        return self._history.due <= self._got

    async def _take(self, message: ReceivedMessage) -> None:
        self._got.add(message.body.decode())

    async def _check(self, message: ReceivedMessage) -> TransactionState:
        return _decision(message.body.decode())

    async def _pay(self, producer: aio.TransactionProducer) -> None:
        number = 0
        while not self._is_over():
            number += 1
            body = f"{self._choice.choice(('commit', 'rollback'))}-{number}"
            decision = self._choice.choice((_decision(body), TransactionState.UNKNOWN))
            try:
                result = await producer.send_in_transaction(
                    Message(SIDE_TOPIC, body.encode()), partial(_decide, decision)
                )
                if result.send_result.is_ok:
                    self._history.decided.append(body)
            except PyroError:
                pass
            await asyncio.sleep(_BETWEEN_SENDS_S)

    async def _remind(self, producer: aio.TransactionProducer) -> None:
        number = 0
        while not self._is_over():
            number += 1
            body = f"timed-{number}"
            due = datetime.now(UTC) + timedelta(milliseconds=self._choice.randrange(500, 2000))
            is_level = self._choice.random() < 0.5
            message = Message(SIDE_TOPIC, body.encode(), delay_level=1 if is_level else 0)
            try:
                result = await producer.send(message, deliver_at=None if is_level else due)
                if result.is_ok:
                    self._history.decided.append(body)
            except PyroError:
                pass
            await asyncio.sleep(_BETWEEN_SENDS_S)


def _decide(decision: TransactionState, _: Message) -> TransactionState:
    return decision


def _decision(body: str) -> TransactionState:
    return TransactionState.COMMIT if body.startswith("commit") else TransactionState.ROLLBACK
