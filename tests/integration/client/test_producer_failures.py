"""Brokers die, come and hang while messages flow: no send fails that could have succeeded elsewhere."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.support.broker_cluster import BrokerClient
from tests.support.client_cluster import ClientCluster, client_cluster, stored_messages
from tests.support.loop import turn_until
from tests.support.replicas import broker_group
from tests.support.scripted_broker import ScriptedBroker

from pyromq import aio
from pyromq.client.values import Message, MessageQueue, SendResult, SendStatus
from pyromq.cluster.routes import Route
from pyromq.cluster.sending import plan
from pyromq.errors import Refused, SendFailed
from pyromq.protocol import properties as props
from pyromq.protocol.codes import ResponseCode
from pyromq.protocol.requests.pushes import NotifyRoutesChanged
from pyromq.remoting.addresses import parse_address


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[ClientCluster]:
    async with client_cluster(tmp_path) as running:
        yield running


class Traffic:
    """Sends without a break, on several tasks, until told to stop; every failure is a failure of the test."""

    def __init__(self, producer: aio.Producer, tasks: int = 8) -> None:
        self._producer = producer
        self._is_over = False
        self._tasks = [asyncio.create_task(self._send()) for _ in range(tasks)]
        self._progress = asyncio.Condition()
        self.results: list[SendResult] = []
        self.brokers: Counter[str] = Counter()

    async def _send(self) -> None:
        while not self._is_over:
            result = await self._producer.send(Message("Orders", b"x" * 100))
            self.results.append(result)
            self.brokers[result.queue.broker_name] += 1
            async with self._progress:
                self._progress.notify_all()

    async def wait_more(self, count: int, broker_name: str | None = None) -> None:
        """Wait until that many more have arrived, at one broker or at any."""
        before = self._count(broker_name)
        async with self._progress:
            await self._progress.wait_for(
                lambda: self._count(broker_name) >= before + count or any(task.done() for task in self._tasks)
            )
        assert not any(task.done() for task in self._tasks), "a send failed"

    def _count(self, broker_name: str | None) -> int:
        return len(self.results) if broker_name is None else self.brokers[broker_name]

    async def stop(self) -> list[SendResult]:
        self._is_over = True
        await asyncio.gather(*self._tasks)
        return self.results


async def create(cluster: ClientCluster, *addresses: str) -> None:
    """Have the topic on every broker, and wait until its route says so."""
    async with aio.Producer("maker", cluster.namesrv) as producer:
        routes = producer._started().session.routes
        learned = asyncio.Event()

        def look(route: Route) -> None:
            if len(route.publish_queues) == 4 * len(addresses):
                learned.set()

        routes.on_change("Orders", look)
        for address in addresses:
            async with BrokerClient(parse_address(address)) as client:
                await client.create_topic("Orders")
        routes.refresh_soon("Orders")
        await learned.wait()


async def message_ids(*addresses: str) -> Counter[str | None]:
    held: Counter[str | None] = Counter()
    for address in addresses:
        held.update(message.get(props.UNIQ_KEY) for message in await stored_messages(address, "Orders"))
    return held


async def test_a_killed_broker_costs_no_send(cluster: ClientCluster, tmp_path: Path) -> None:
    broker = await cluster.add_broker("broker-a")
    process, address = await cluster.add_broker_process("broker-b")
    await create(cluster, broker.advertised_address, address)
    async with aio.Producer("orders", cluster.namesrv, send_timeout_s=60) as producer:
        traffic = Traffic(producer)
        await traffic.wait_more(50, "broker-a")
        await traffic.wait_more(50, "broker-b")
        process.kill()
        await process.wait()
        await traffic.wait_more(200)
        # The name server tells that broker-b is gone.
        routes = producer._started().session.routes
        await turn_until(lambda: (route := routes.cached("Orders")) and set(route.brokers) == {"broker-a"})
        results = await traffic.stop()
    assert all(result.is_ok for result in results)
    held = await message_ids(broker.advertised_address)
    acknowledged = {result.message_id for result in results if result.queue.broker_name == "broker-a"}
    assert acknowledged <= held.keys()


async def test_a_new_broker_gets_messages_at_once(cluster: ClientCluster) -> None:
    first = await cluster.add_broker("broker-a")
    async with aio.Producer("orders", cluster.namesrv, send_timeout_s=60) as producer:
        traffic = Traffic(producer)
        await traffic.wait_more(50, "broker-a")
        second = await cluster.add_broker("broker-b")
        async with BrokerClient(parse_address(second.advertised_address)) as client:
            await client.create_topic("Orders")
        await traffic.wait_more(50, "broker-b")
        results = await traffic.stop()
    held = await message_ids(first.advertised_address, second.advertised_address)
    assert {result.message_id for result in results} <= held.keys()
    assert max(held.values()) == 1, "nothing failed, so nothing is there twice"


async def test_a_broker_that_hangs_is_left_alone(cluster: ClientCluster) -> None:
    """Half of the sends meet a broker behind a partition; they are told so late, and try the other.

    A try has time enough for a busy machine: a broker that was late once would be avoided for minutes.
    """
    healthy = await cluster.add_broker("broker-a")
    hanging, proxy = await cluster.add_broker_behind_proxy("broker-b")
    await create(cluster, healthy.advertised_address, hanging.advertised_address)
    async with aio.Producer("orders", cluster.namesrv, try_timeout_s=2, send_timeout_s=60) as producer:
        traffic = Traffic(producer, tasks=4)
        await traffic.wait_more(20, "broker-a")
        await traffic.wait_more(20, "broker-b")
        proxy.stall()
        await traffic.wait_more(100, "broker-a")
        proxy.flow()
        results = await traffic.stop()
        assert producer.statistics().sender.retries >= 1
    held = await message_ids(healthy.advertised_address, f"127.0.0.1:{hanging.address[1]}")
    missing = {result.message_id for result in results} - held.keys()
    assert not missing


async def test_the_only_broker_is_waited_for(cluster: ClientCluster) -> None:
    _, proxy = await cluster.add_broker_behind_proxy("broker-a")
    async with aio.Producer("orders", cluster.namesrv, retries=0, send_timeout_s=60) as producer:
        await producer.send(Message("Orders", b"1"))
        await proxy.cut()
        sending = asyncio.create_task(producer.send(Message("Orders", b"2")))
        await turn_until(lambda: producer.statistics().sender.retries > 1)
        await proxy.start()
        assert (await sending).is_ok


async def test_a_send_waits_for_the_next_master_while_there_are_only_replicas(tmp_path: Path) -> None:
    async with (
        broker_group(tmp_path) as group,
        group.replica(),
        aio.Producer("tills", group.names) as producer,
    ):
        async with group.master() as master:
            await producer.send(Message("Orders", b"before"), timeout_s=60)
            await turn_until(lambda: len(master.replication.master.links) == 1)
        said = ""
        while "no master" not in said:  # on a busy machine the first attempts may not know it yet
            with pytest.raises(SendFailed) as refused:
                await producer.send(Message("Orders", b"in vain"), timeout_s=0.5)
            said = str(refused.value)
        sending = asyncio.create_task(producer.send(Message("Orders", b"meanwhile"), timeout_s=60))
        async with group.master():
            assert (await sending).is_ok


async def test_a_cluster_that_restarts_is_waited_for(cluster: ClientCluster) -> None:
    proxies = [(await cluster.add_broker_behind_proxy(name))[1] for name in ("broker-a", "broker-b")]
    await create(cluster, *(proxy.address for proxy in proxies))
    async with aio.Producer("orders", cluster.namesrv, retries=1, send_timeout_s=60) as producer:
        await producer.send(Message("Orders", b"1"))
        for proxy in proxies:
            await proxy.cut()
        sending = asyncio.create_task(producer.send(Message("Orders", b"2")))
        await turn_until(lambda: producer.statistics().sender.retries > 2)
        await proxies[0].start()
        assert (await sending).is_ok


# Against a broker that answers as it is told to


@pytest.fixture
async def scripted() -> AsyncIterator[ScriptedBroker]:
    async with ScriptedBroker("Orders", "TBW102") as broker:
        yield broker


@pytest.fixture
async def producer(scripted: ScriptedBroker) -> AsyncIterator[aio.Producer]:
    async with aio.Producer("orders", scripted.address, send_timeout_s=60) as running:
        yield running


class Replaced:
    """A broker that is also the name server, and its successor: `replace` gives the name to that one."""

    def __init__(self, first: ScriptedBroker, second: ScriptedBroker) -> None:
        self.first, self.second = first, second

    def replace(self, *, announces: bool = True) -> None:
        self.first.other_brokers["scripted"] = self.second.address
        if announces:
            self.first.push(NotifyRoutesChanged(body=["Orders"]))


@pytest.fixture
async def replaced() -> AsyncIterator[Replaced]:
    async with (
        ScriptedBroker("Orders", watches=True) as first,
        ScriptedBroker("Orders", watches=True) as second,
    ):
        yield Replaced(first, second)


async def test_a_send_that_waits_goes_on_when_its_broker_has_another_master(
    replaced: Replaced, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plan, "FIRST_PAUSE_S", 3600)
    monkeypatch.setattr(plan, "MAX_PAUSE_S", 3600)
    replaced.first.answers.append(ResponseCode.SERVICE_NOT_AVAILABLE)
    async with aio.Producer("orders", replaced.first.address, send_timeout_s=7200) as producer:
        sent = asyncio.create_task(producer.send(Message("Orders", b"1")))
        await turn_until(lambda: producer.statistics().sender.retries)
        replaced.replace()
        assert (await sent).is_ok
    assert len(replaced.first.sent) == len(replaced.second.sent) == 1


async def test_a_broker_that_is_no_longer_master_makes_a_producer_ask_for_the_route(
    replaced: Replaced, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The name server may have lost its power, and with it the news."""
    monkeypatch.setattr(plan, "FIRST_PAUSE_S", 3600)
    monkeypatch.setattr(plan, "MAX_PAUSE_S", 3600)
    async with aio.Producer("orders", replaced.first.address, send_timeout_s=7200) as producer:
        await producer.send(Message("Orders", b"1"))
        replaced.replace(announces=False)
        replaced.first.answers.append(ResponseCode.SERVICE_NOT_AVAILABLE)
        assert (await producer.send(Message("Orders", b"2"))).is_ok
    assert (len(replaced.first.sent), len(replaced.second.sent)) == (2, 1)


async def test_a_send_to_a_master_that_hangs_goes_on_at_its_successor(replaced: Replaced) -> None:
    replaced.first.hold = asyncio.Event()
    async with aio.Producer("orders", replaced.first.address, send_timeout_s=7200) as producer:
        sent = asyncio.create_task(producer.send(Message("Orders", b"1")))
        await replaced.first.arrived.get()
        await replaced.first.heartbeats.get()
        replaced.replace()
        assert (await sent).is_ok
        replaced.first.hold.set()
    assert len(replaced.second.sent) == 1


RETRIED = [1, 2, 14, 17]
LASTING = [16, 204, 205]


@pytest.mark.parametrize("code", RETRIED)
async def test_a_refusal_that_may_be_the_brokers_own_fault_is_tried_again(
    scripted: ScriptedBroker, producer: aio.Producer, code: int
) -> None:
    scripted.answers.append(code)
    assert (await producer.send(Message("Orders", b"x"))).is_ok
    first, second = scripted.sent
    assert first.properties == second.properties, "it is the same message, with the same unique key"
    assert first.born_timestamp == second.born_timestamp


@pytest.mark.parametrize("code", [13, 29, 26, 215, *LASTING])
async def test_a_refusal_of_the_message_is_final(
    scripted: ScriptedBroker, producer: aio.Producer, code: int
) -> None:
    scripted.answers.append(code)
    with pytest.raises(Refused, match="as the script says") as caught:
        await producer.send(Message("Orders", b"x"))
    assert caught.value.code == code
    assert len(scripted.sent) == 1


async def test_a_topic_that_lost_the_queue_has_others(
    scripted: ScriptedBroker, producer: aio.Producer
) -> None:
    message = Message("Orders", b"x")
    while (await producer.send(message)).queue.queue_id != 0:
        pass  # the next one is for queue 1
    scripted.queues = 1
    scripted.answers.append(ResponseCode.INVALID_PARAMETER)
    assert (await producer.send(message)).queue.queue_id == 0
    refused, stored = scripted.sent[-2:]
    assert (refused.queue_id, stored.queue_id) == (1, 0)
    assert refused.properties == stored.properties


async def test_enough_is_enough(scripted: ScriptedBroker, producer: aio.Producer) -> None:
    scripted.answers.extend([ResponseCode.SYSTEM_BUSY] * 5)
    with pytest.raises(SendFailed, match=r"not sent in 3 attempts: scripted: [\d.:]+: code 2") as caught:
        await producer.send(Message("Orders", b"x"))
    assert len(caught.value.attempts) == 3
    assert len(scripted.sent) == 3


async def test_a_message_stored_less_safely_is_a_result(
    scripted: ScriptedBroker, producer: aio.Producer
) -> None:
    for code in (10, 11, 12):
        scripted.answers.append(code)
        result = await producer.send(Message("Orders", b"x"))
        assert result.status == SendStatus(code)
        assert not result.is_ok


async def test_a_message_stored_less_safely_is_tried_again_if_wished(scripted: ScriptedBroker) -> None:
    scripted.answers.append(ResponseCode.FLUSH_DISK_TIMEOUT)
    async with aio.Producer("orders", scripted.address, retry_unsafe_stores=True) as producer:
        assert (await producer.send(Message("Orders", b"x"))).is_ok
    assert len(scripted.sent) == 2


async def test_the_deadline_holds_and_a_single_broker_gets_all_the_time_there_is(
    scripted: ScriptedBroker,
) -> None:
    async with aio.Producer("orders", scripted.address) as producer:
        await producer.send(Message("Orders", b"x"))
        scripted.hold = asyncio.Event()
        with pytest.raises(SendFailed, match=r"in 1 attempts: scripted: .* no answer to SendMessageV2"):
            await producer.send(Message("Orders", b"x"), timeout_s=0.3)
        scripted.hold.set()


async def test_a_fixed_queue_is_tried_again_and_never_left(
    scripted: ScriptedBroker, producer: aio.Producer
) -> None:
    scripted.answers.extend([1, 1])
    queue = MessageQueue("Orders", "scripted", 1)
    assert (await producer.send(Message("Orders", b"x"), queue=queue)).queue == queue
    assert [sent.queue_id for sent in scripted.sent] == [1, 1, 1]


async def test_a_failed_send_moves_to_another_broker(scripted: ScriptedBroker) -> None:
    async with ScriptedBroker("Orders") as other:
        scripted.other_brokers["other"] = other.address
        scripted.answers.extend([1] * 100)
        async with aio.Producer("orders", scripted.address) as producer:
            results = [await producer.send(Message("Orders", b"x")) for _ in range(20)]
    assert {result.queue.broker_name for result in results} == {"other"}
    assert len(scripted.sent) == 1, "after its first failure it is left alone"


@pytest.mark.parametrize("code", LASTING)
async def test_what_one_broker_does_not_allow_another_may_but_none_is_asked_twice(
    scripted: ScriptedBroker, code: int
) -> None:
    async with ScriptedBroker("Orders") as other:
        scripted.other_brokers["other"] = other.address
        scripted.answers.append(code)
        async with aio.Producer("orders", scripted.address, avoid_slow_brokers=False) as producer:
            for _ in range(8):
                assert (await producer.send(Message("Orders", b"x"))).is_ok
            assert not scripted.answers
            scripted.answers.append(code)
            other.answers.append(code)
            asked = len(scripted.sent) + len(other.sent)
            with pytest.raises(Refused, match="as the script says"):
                await producer.send(Message("Orders", b"x"))
            assert len(scripted.sent) + len(other.sent) == asked + 2


async def test_a_broker_that_is_only_avoided_for_the_retry(scripted: ScriptedBroker) -> None:
    async with ScriptedBroker("Orders") as other:
        scripted.other_brokers["other"] = other.address
        scripted.answers.extend([1] * 100)
        async with aio.Producer("orders", scripted.address, avoid_slow_brokers=False) as producer:
            for _ in range(20):
                await producer.send(Message("Orders", b"x"))
    assert len(scripted.sent) > 5


async def test_a_batch_failing_halfway_says_how_much_is_stored(scripted: ScriptedBroker) -> None:
    scripted.answers.extend([0, 13])
    async with aio.Producer("orders", scripted.address, max_message_bytes=500) as producer:
        with pytest.raises(Refused) as caught:
            await producer.send([Message("Orders", b"x" * 300), Message("Orders", b"y" * 300)])
    assert caught.value.__notes__ == ["1 of 2 messages of the batch were stored before"]


async def test_a_cancelled_send_leaves_room_for_others(scripted: ScriptedBroker) -> None:
    scripted.hold = asyncio.Event()
    async with aio.Producer("orders", scripted.address, max_in_flight=1) as producer:
        first = asyncio.create_task(producer.send(Message("Orders", b"1")))
        await scripted.arrived.get()
        waiting = asyncio.create_task(producer.send(Message("Orders", b"2")))
        await asyncio.sleep(0)
        assert producer.statistics().waiting_for_room == 1
        waiting.cancel()
        first.cancel()
        await asyncio.gather(first, waiting, return_exceptions=True)
        scripted.hold.set()
        assert (await producer.send(Message("Orders", b"3"))).is_ok
    assert [sent.body for sent in scripted.sent] == [b"1", b"3"]
