"""Brokers die by SIGKILL, hang and are added while messages flow: nothing that was acknowledged is lost, and
ordered queues stay ordered."""

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest
from tests.support.broker_cluster import BrokerClient
from tests.support.client_cluster import ClientCluster, client_cluster

from pyromq import Message, MessageQueue, PyroError, ReceivedMessage, aio
from pyromq.remoting.addresses import parse_address

TIMEOUT_S = 100.0
TOPIC = "Orders"
QUEUES = 2

ORDERED = pytest.mark.parametrize("ordered", [False, True], ids=["concurrent", "ordered"])


class Flow:
    """Numbers on their way: to each queue one after the other, the next when the last was acknowledged."""

    def __init__(self, namesrv: str, *, ordered: bool) -> None:
        self._namesrv = namesrv
        self._is_ordered = ordered
        self._changed = asyncio.Condition()
        self._is_over = False
        self._senders: list[asyncio.Task[None]] = []
        self._producer: aio.Producer
        self.acknowledged: dict[MessageQueue, int] = {}
        self.received: dict[MessageQueue, list[int]] = defaultdict(list)
        self.failures = 0

    @asynccontextmanager
    async def running(self, queues: Iterable[MessageQueue]) -> AsyncIterator["Flow"]:
        async with AsyncExitStack() as stack:
            self._producer = await stack.enter_async_context(aio.Producer("tills", self._namesrv))
            for _ in range(2):
                member = aio.PushConsumer(
                    "billing", self._namesrv, start_from="first", ordered=self._is_ordered
                )
                member.subscribe(TOPIC, "*", self._take)
                await stack.enter_async_context(member)
            self.send_to(queues)
            try:
                yield self
            finally:
                self._is_over = True
                await asyncio.gather(*self._senders)

    def send_to(self, queues: Iterable[MessageQueue]) -> None:
        self._senders += [asyncio.create_task(self._send(queue)) for queue in queues]

    async def _send(self, queue: MessageQueue) -> None:
        number = 0
        while not self._is_over:
            message = Message(TOPIC, str(number).encode())
            try:
                await self._producer.send(message, queue=queue, timeout_s=0.5)
            except PyroError:
                # Perhaps stored, but nobody said so: once more.
                await self._note(failed=True)
                continue
            self.acknowledged[queue] = number
            number += 1

    async def _note(self, *, failed: bool = False) -> None:
        async with self._changed:
            self.failures += failed
            self._changed.notify_all()

    async def _take(self, message: ReceivedMessage) -> None:
        self.received[message.queue].append(int(message.body))
        await self._note()

    async def wait_received(self, queues: Iterable[MessageQueue], more: int = 10) -> None:
        """So many more of each of these."""
        wanted = {queue: len(self.received[queue]) + more for queue in queues}
        async with self._changed:
            await self._changed.wait_for(
                lambda: all(len(self.received[queue]) >= count for queue, count in wanted.items())
            )

    async def wait_failed(self, more: int = 5) -> None:
        wanted = self.failures + more
        async with self._changed:
            await self._changed.wait_for(lambda: self.failures >= wanted)

    async def finish(self) -> None:
        """Send no more, and wait until everything that was acknowledged has come."""
        self._is_over = True
        await asyncio.gather(*self._senders)
        async with self._changed:
            await self._changed.wait_for(
                lambda: all(
                    set(range(last + 1)) <= set(self.received[queue])
                    for queue, last in self.acknowledged.items()
                )
            )
        if self._is_ordered:
            for numbers in self.received.values():
                seen_first = list(dict.fromkeys(numbers))
                assert seen_first == sorted(seen_first)


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[ClientCluster]:
    async with asyncio.timeout(TIMEOUT_S), client_cluster(tmp_path) as running:
        yield running


async def create(name: str, address: str) -> list[MessageQueue]:
    async with BrokerClient(parse_address(address)) as client:
        await client.create_topic(TOPIC, QUEUES)
    return [MessageQueue(TOPIC, name, number) for number in range(QUEUES)]


@ORDERED
async def test_a_broker_that_is_killed_and_comes_back_loses_nothing(
    cluster: ClientCluster, ordered: bool
) -> None:
    process, address = await cluster.add_broker_process("broker-a")
    mortal = await create("broker-a", address)
    lasting = await create("broker-b", (await cluster.add_broker("broker-b")).advertised_address)
    async with Flow(cluster.namesrv, ordered=ordered).running([*mortal, *lasting]) as flow:
        await flow.wait_received([*mortal, *lasting])
        process.kill()
        await process.wait()
        await flow.wait_failed()
        await flow.wait_received(lasting)
        await cluster.add_broker_process("broker-a")
        await flow.wait_received([*mortal, *lasting])
        await flow.finish()


@ORDERED
async def test_a_broker_behind_a_silent_network_loses_nothing(cluster: ClientCluster, ordered: bool) -> None:
    broker, proxy = await cluster.add_broker_behind_proxy("broker-a")
    cut_off = await create("broker-a", broker.advertised_address)
    near = await create("broker-b", (await cluster.add_broker("broker-b")).advertised_address)
    async with Flow(cluster.namesrv, ordered=ordered).running([*cut_off, *near]) as flow:
        for _ in range(3):
            await flow.wait_received([*cut_off, *near])
            proxy.stall()
            await flow.wait_failed()
            await flow.wait_received(near)
            proxy.flow()
        await flow.wait_received([*cut_off, *near])
        await flow.finish()


@ORDERED
async def test_the_queues_of_a_new_broker_are_consumed_at_once(cluster: ClientCluster, ordered: bool) -> None:
    old = await create("broker-a", (await cluster.add_broker("broker-a")).advertised_address)
    async with Flow(cluster.namesrv, ordered=ordered).running(old) as flow:
        await flow.wait_received(old)
        new = await create("broker-b", (await cluster.add_broker("broker-b")).advertised_address)
        flow.send_to(new)
        await flow.wait_received([*old, *new])
        await flow.finish()
    assert flow.received.keys() == {*old, *new}
