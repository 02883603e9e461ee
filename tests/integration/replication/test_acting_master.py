"""While a master is away, the replica with the lowest id stands in for it with readers, and nobody's offset
is lost when the master comes back."""

from contextlib import AsyncExitStack
from pathlib import Path
from shutil import copytree
from typing import Any
from unittest.mock import patch

import pytest
from tests.conftest import ErrorLogs
from tests.support.broker_cluster import GROUP, TOPIC, BrokerClient, running_broker
from tests.support.replicas import Group, broker_group, caught_up, until

from pyromq import Message, PyroError, ReceivedMessage, Refused, aio
from pyromq.broker.broker import Broker
from pyromq.broker.replication import acting_master
from pyromq.broker.services.delays import Delays
from pyromq.protocol.body import MessageQueue
from pyromq.protocol.codes import ResponseCode
from pyromq.protocol.requests.brokers import NotifyMinBrokerIdChange
from pyromq.protocol.requests.groups import CreateOrUpdateGroup, SubscriptionGroupConfig
from pyromq.protocol.requests.offsets import QueryConsumerOffset, UpdateConsumerOffset
from pyromq.protocol.requests.ordering import LockBatchRequestBody, LockQueues
from pyromq.protocol.requests.replication import ExchangeHaInfo, GetHaStatus, ResetMasterFlushOffset
from pyromq.protocol.requests.routes import GetRoute, TopicRouteData
from pyromq.remoting.dialer import Dialer

READ_ONLY = 4
ACTING: dict[str, Any] = {"slave_acting_master": True, "total_replicas": 2, "group_period_ms": 50}


def acts(broker: Broker) -> bool:
    return broker.replication.acting_master.is_acting


def offsets(broker: Broker) -> int:
    return broker._started.tables.offsets.query(GROUP, TOPIC, 0)


def commit(offset: int) -> UpdateConsumerOffset:
    return UpdateConsumerOffset(consumer_group=GROUP, topic=TOPIC, queue_id=0, commit_offset=offset)


async def route(group: Group) -> TopicRouteData:
    dialer = Dialer()
    try:
        found = (await dialer.call(group.names, GetRoute(topic=TOPIC), 60)).body
    finally:
        await dialer.close()
    assert found is not None
    return found


async def prepare(master: Broker, replica: Broker, messages: int = 3) -> None:
    """A topic, a group and messages, on both."""
    async with BrokerClient(master.address) as client:
        await client.create_topic(queues=1)
        await client.call(CreateOrUpdateGroup(body=SubscriptionGroupConfig(group_name=GROUP)))
        for number in range(messages):
            await client.send(b"%d" % number)
        await client.call(commit(1))
    await caught_up(replica, master)
    await until(lambda: offsets(replica) == 1)


async def test_the_lowest_replica_is_shown_as_a_master_that_takes_no_messages(tmp_path: Path) -> None:
    async with broker_group(tmp_path, support_acting_master=True) as group, AsyncExitStack() as stack:
        replica = await stack.enter_async_context(group.replica(**ACTING))
        other = await stack.enter_async_context(group.replica(2, **ACTING))
        async with group.master(**ACTING) as master:
            await prepare(master, replica)
            await caught_up(other, master)
            assert not acts(replica)
        await until(lambda: acts(replica))
        assert not acts(other)
        found = await route(group)
        (data,) = found.broker_datas
        assert data.broker_addrs == {0: replica.advertised_address, 2: other.advertised_address}
        assert [queues.perm for queues in found.queue_datas] == [READ_ONLY]
        client = await stack.enter_async_context(BrokerClient(replica.address))
        with pytest.raises(PyroError):
            await client.send(b"nobody takes it")
        assert (await client.pull()).bodies == [b"0", b"1", b"2"]
        body = LockBatchRequestBody(
            consumer_group=GROUP, client_id="c1", mq_set={MessageQueue(TOPIC, "broker-a", 0)}
        )
        locked = (await client.call(LockQueues(body=body))).body
        assert locked.lock_ok_mq_set == body.mq_set


async def test_an_acting_master_lets_readers_wait_though_the_master_is_connected(tmp_path: Path) -> None:
    """The name servers may have lost a master that its replicas still reach."""
    async with (
        broker_group(tmp_path) as group,
        group.replica(**ACTING | {"group_period_ms": 600_000}) as replica,
        group.master(**ACTING) as master,
        BrokerClient(replica.address) as reader,
    ):
        await prepare(master, replica)
        assert replica.replication.replica.is_connected
        assert (await reader.pull(3)).answer.code == ResponseCode.PULL_RETRY_IMMEDIATELY
        await reader.call(NotifyMinBrokerIdChange(min_broker_id=1))
        assert acts(replica)
        assert (await reader.pull(3)).answer.code == ResponseCode.PULL_NOT_FOUND
        await reader.call(NotifyMinBrokerIdChange(min_broker_id=0, min_broker_addr=master.advertised_address))
        assert not acts(replica)


async def test_a_master_that_comes_back_has_the_offsets_before_anybody_asks_for_them(tmp_path: Path) -> None:
    async with broker_group(tmp_path, support_acting_master=True) as group, AsyncExitStack() as stack:
        replica = await stack.enter_async_context(group.replica(**ACTING))
        async with group.master(**ACTING) as master:
            await prepare(master, replica)
        await until(lambda: acts(replica))
        async with BrokerClient(replica.address) as client:
            await client.call(commit(3))
        async with group.master(**ACTING) as master, BrokerClient(master.address) as client:
            # It is registered, so clients may come.
            assert 0 in (await route(group)).broker_datas[0].broker_addrs
            query = QueryConsumerOffset(consumer_group=GROUP, topic=TOPIC, queue_id=0)
            assert (await client.call(query)).offset == 3
            await until(lambda: not acts(replica))
            assert replica.replication.replica.is_connected


async def test_a_master_that_comes_back_with_less_of_its_log_takes_over_no_offset_beyond_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error_logs: ErrorLogs
) -> None:
    monkeypatch.setattr(acting_master, "_CONNECT_S", 0.1)  # the replica does not: the logs disagree
    async with broker_group(tmp_path, support_acting_master=True) as group, AsyncExitStack() as stack:
        replica = await stack.enter_async_context(group.replica(**ACTING))
        async with group.master(**ACTING) as master:
            await prepare(master, replica)
        copytree(tmp_path / "master", tmp_path / "older")
        async with group.master(**ACTING) as master, BrokerClient(master.address) as client:
            await client.send(b"lost by the master")
            await caught_up(replica, master)
        await until(lambda: acts(replica))
        async with BrokerClient(replica.address) as client:
            await client.call(commit(4))
        async with group.master("older", **ACTING) as master, BrokerClient(master.address) as client:
            assert offsets(master) == 3
            for _ in range(2):
                await client.send(b"new")
            told = (await client.pull(4, commit=4)).answer
            assert (told.code, told.next_begin_offset) == (ResponseCode.PULL_OFFSET_MOVED, 3)
            await until(lambda: replica.replication.replica.disagreement)
            error_logs.expect("Either the master has lost messages, or the logs are different")


async def test_an_acting_master_sends_delayed_messages_to_another_broker(tmp_path: Path) -> None:
    async with broker_group(tmp_path, support_acting_master=True) as group, AsyncExitStack() as stack:
        other = await stack.enter_async_context(
            running_broker(tmp_path / "other", namesrv_addr=group.names, broker_name="broker-b")
        )
        replica = await stack.enter_async_context(group.replica(**ACTING, remote_escape=True))
        reader = await stack.enter_async_context(BrokerClient(other.address))
        with patch.object(Delays, "deliver_due", lambda _: None):  # the master dies before they are due
            async with group.master(**ACTING) as master, BrokerClient(master.address) as client:
                await client.create_topic()
                for number in range(3):
                    await client.send(b"%d" % number, properties={"DELAY": "1", "PGROUP": "tills"})
                await caught_up(replica, master)
            await until(lambda: acts(replica))
            assert replica._started.tables.delay_offsets.get(1) == 0  # no other broker has the topic
            await reader.create_topic(queues=1)
            await until(lambda: other.store.queues.max_offset(TOPIC, 0) == 3)
        pulled = await reader.pull()
        assert pulled.bodies == [b"0", b"1", b"2"]
        assert pulled.messages[0].get("DELAY") is None
        assert pulled.messages[0].get("PGROUP") == "tills"
        await until(lambda: replica._started.tables.delay_offsets.get(1) == 3)
        async with group.master(**ACTING) as master:
            assert master._started.tables.delay_offsets.get(1) == 3  # nothing comes twice


async def test_a_master_alone_in_its_group_registers_at_once(tmp_path: Path) -> None:
    async with broker_group(tmp_path) as group, group.master(**ACTING) as master:
        async with BrokerClient(master.address) as client:
            await client.create_topic()
        assert (await route(group)).broker_datas[0].broker_addrs == {0: master.advertised_address}


async def test_brokers_tell_each_other_where_the_master_is(tmp_path: Path) -> None:
    async with (
        broker_group(tmp_path) as group,
        group.master() as master,
        group.replica() as replica,
        BrokerClient(master.address) as to_master,
        BrokerClient(replica.address) as to_replica,
    ):
        told = await to_master.call(ExchangeHaInfo())
        assert told.master_address == master.advertised_address
        assert told.master_flush_offset == 0
        assert (await to_replica.call(ExchangeHaInfo())).master_address is None
        await until(lambda: replica.replication.replica.is_connected)
        assert replica.replication.replica.ha_address == told.master_ha_address
        there = ExchangeHaInfo(master_ha_address="127.0.0.1:1", master_address="127.0.0.1:2")
        await to_replica.call(there)
        assert replica.replication.replica.master == "127.0.0.1:2"
        await to_replica.call(ResetMasterFlushOffset(master_flush_offset=7))
        status = (await to_replica.call(GetHaStatus())).body
        assert status.ha_client_runtime_info.master_flush_offset == 7


async def test_an_ordered_consumer_goes_on_at_the_acting_master(tmp_path: Path) -> None:
    got: list[bytes] = []

    async def take(message: ReceivedMessage) -> None:
        got.append(message.body)

    async with broker_group(tmp_path, support_acting_master=True) as group, AsyncExitStack() as stack:
        replica = await stack.enter_async_context(group.replica(**ACTING))
        async with group.master(**ACTING) as master:
            await prepare(master, replica, messages=0)
            async with aio.Producer("tills", group.names) as producer:
                for number in range(4):
                    await producer.send(Message(TOPIC, b"%d" % number))
            await caught_up(replica, master)
        await until(lambda: acts(replica))
        consumer = aio.PushConsumer("readers", group.names, start_from="first", ordered=True)
        consumer.subscribe(TOPIC, "*", take)
        async with consumer:
            await until(lambda: len(got) == 4)
        assert got == [b"0", b"1", b"2", b"3"]


async def test_a_sync_master_refuses_what_too_few_replicas_can_get(tmp_path: Path) -> None:
    sync = ACTING | {"broker_role": "SYNC_MASTER", "in_sync_replicas": 2, "skip_pre_online": True}
    async with (
        broker_group(tmp_path) as group,
        group.master(**sync) as master,
        BrokerClient(master.address) as client,
    ):
        await client.create_topic(queues=1)
        end = master.store.log.end
        with pytest.raises(Refused, match="in-sync replicas not enough: 1 brokers are in sync, 2 are needed"):
            await client.send(b"too early")
        assert master.store.log.end == end
        async with group.replica(**ACTING):
            await until(lambda: not master.role.barrier)
            assert (await client.send(b"on both")).code == ResponseCode.SUCCESS
        await until(lambda: master.role.barrier)
        with pytest.raises(Refused):
            await client.send(b"too late")


async def test_a_sync_master_may_go_on_with_the_replicas_that_are_in_sync(tmp_path: Path) -> None:
    sync = ACTING | {"broker_role": "SYNC_MASTER", "in_sync_replicas": 3, "skip_pre_online": True}
    async with (
        broker_group(tmp_path) as group,
        group.master(auto_in_sync=True, min_in_sync_replicas=2, **sync) as master,
        BrokerClient(master.address) as client,
    ):
        await client.create_topic(queues=1)
        with pytest.raises(Refused, match="1 brokers are in sync, 2 are needed"):
            await client.send(b"alone")
        async with group.replica(**ACTING):
            await until(lambda: not master.role.barrier)
            assert (await client.send(b"on two")).code == ResponseCode.SUCCESS
            async with group.replica(2, **ACTING):
                await until(lambda: len(master.replication.master.links) == 2)
                assert (await client.send(b"on three")).code == ResponseCode.SUCCESS
