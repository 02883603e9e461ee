"""Producers and consumers under which a cluster is broken; whatever they do and see goes into a history.

A producer sends to one queue, one message after the other. Consumers of three groups read everything: one in
order, one in any order, and one by pop.
"""

import asyncio
import io
import time
from collections import defaultdict
from contextlib import AsyncExitStack
from typing import Any

from tests.campaign.history import Delivered, History, Sent
from tests.campaign.side_load import SideLoad

from pyromq import Message, MessageQueue, PyroError, ReceivedMessage, aio

TOPIC = "Orders"
GROUPS = {"billing": True, "reports": False, "audit": False}
"""By name: whether it reads in order."""
_POPS = "audit"
_INVISIBLE_S = 5.0

_MEMBERS = 2
_SEND_TIMEOUT_S = 1.5
_BETWEEN_SENDS_S = 0.01
_AFTER_FAILURE_S = 0.02
_BODY_BYTES = 200
_CLOSE_TIMEOUT_S = 60.0


class Load:
    """`async with Load(...) as load`; `load.history` is kept up to date."""

    def __init__(
        self, namesrv: str, broker_name: str, queues: int, *, has_side: bool = True, **producer: Any
    ) -> None:
        """`producer`: settings of the producer that are not as users have them."""
        self._has_side = has_side
        self.history = History(groups=dict(GROUPS))
        self._namesrv = namesrv
        self._producer = producer
        self._queues = [MessageQueue(TOPIC, broker_name, number) for number in range(queues)]
        self._began = time.monotonic()
        self._is_over = False
        self._side = SideLoad(namesrv, self.history, lambda: self._is_over)
        self._senders: list[asyncio.Task[None]] = []
        self._stack = AsyncExitStack()
        self._acknowledged: dict[int, int] = defaultdict(int)
        self._got: dict[str, set[str]] = {group: set() for group in GROUPS}

    @property
    def now(self) -> float:
        """Seconds since the beginning."""
        return time.monotonic() - self._began

    async def __aenter__(self) -> "Load":
        producer = await self._stack.enter_async_context(
            aio.Producer(
                "tills", self._namesrv, instance_name="producer", connect_timeout_s=1.0, **self._producer
            )
        )
        for group, ordered in GROUPS.items():
            for number in range(_MEMBERS):
                await self._stack.enter_async_context(self._member(group, number, ordered))
        if self._has_side:
            await self._side.start(self._stack)
        self._began = time.monotonic()
        self._senders = [asyncio.create_task(self._send(producer, queue)) for queue in self._queues]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._is_over = True
        await asyncio.gather(*self._senders, self._side.stop())
        closing = asyncio.create_task(self._stack.aclose())
        await asyncio.wait([closing], timeout=_CLOSE_TIMEOUT_S)
        if not closing.done():
            raise AssertionError(f"the clients did not close in {_CLOSE_TIMEOUT_S:.0f} s:\n{_all_tasks()}")
        closing.result()

    def _member(self, group: str, number: int, ordered: bool) -> aio.PushConsumer:
        consumer = aio.PushConsumer(
            group,
            self._namesrv,
            start_from="first",
            ordered=ordered,
            instance_name=f"{group}{number}",
            commit_interval_s=1.0,
            rebalance_interval_s=2.0,
            connect_timeout_s=1.0,
            stop_grace_s=5.0,
            mode="pop" if group == _POPS else "pull",
            invisible_s=_INVISIBLE_S,
        )

        async def take(message: ReceivedMessage) -> None:
            body = message.body.rstrip().decode()
            place = message.queue.queue_id, message.queue_offset
            is_retry = message.reconsume_times > 0
            self.history.delivered.append(Delivered(body, group, *place, self.now, is_retry))
            self._got[group].add(body)

        consumer.subscribe(TOPIC, "*", take)
        return consumer

    async def _send(self, producer: aio.Producer, queue: MessageQueue) -> None:
        name, number = f"p{queue.queue_id}", 0
        while not self._is_over:
            body = f"{name}-{number}"
            number += 1
            began, offset = self.now, None
            message = Message(TOPIC, body.ljust(_BODY_BYTES).encode())
            try:
                result = await producer.send(message, queue=queue, timeout_s=_SEND_TIMEOUT_S)
                offset = result.queue_offset if result.is_ok else None
            except PyroError:
                pass
            self.history.sent.append(Sent(body, name, queue.queue_id, began, self.now, offset))
            if offset is not None:
                self._acknowledged[queue.queue_id] += 1
            await asyncio.sleep(_AFTER_FAILURE_S if offset is None else _BETWEEN_SENDS_S)

    # How a round ends

    async def wait_acknowledged(self, more: int = 3) -> None:
        """Until each queue takes messages again."""
        wanted = {queue.queue_id: self._acknowledged[queue.queue_id] + more for queue in self._queues}
        while any(self._acknowledged[queue] < count for queue, count in wanted.items()):  # noqa: ASYNC110
            await asyncio.sleep(0.05)

    async def finish(self, timeout_s: float) -> None:
        """Send no more, and wait until the groups have got all that was acknowledged, if they ever do."""
        self._is_over = True
        await asyncio.gather(*self._senders)
        self.history.ended = self.now
        await self._side.stop()
        wanted = {sent.body for sent in self.history.sent if sent.offset is not None}
        deadline = self.now + timeout_s
        while self.now < deadline and not (  # noqa: ASYNC110
            self._side.is_delivered and all(wanted <= got for got in self._got.values())
        ):
            await asyncio.sleep(0.05)


def _all_tasks() -> str:
    """What everybody waits for."""
    out = io.StringIO()
    for task in asyncio.all_tasks():
        task.print_stack(file=out)
    return out.getvalue()
