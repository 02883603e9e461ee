"""Compacted topics with everything that is not a pull: pops, the gRPC front, and transactions."""

import asyncio
from pathlib import Path

import pytest
from tests.integration.broker.test_compacted_topics import (
    KEYS,
    SMALL,
    compacted,
    fill,
    only_in_the_snapshot,
    put,
    table,
)
from tests.support.broker_cluster import TIMEOUT_S, TOPIC, BrokerClient
from tests.support.front import user
from tests.support.front_user import CODES
from tests.support.replicas import broker_group, until

from pyromq.aio import (
    Admin,
    Message,
    PoppedMessage,
    ReceivedMessage,
    SimpleConsumer,
    TransactionProducer,
    TransactionState,
)
from pyromq.errors import Refused
from pyromq.protocol.codes import ResponseCode
from pyromq.protocol.requests.groups import CreateOrUpdateGroup, SubscriptionGroupConfig
from pyromq.proxy.proxy import Proxy
from pyromq.proxy.settings import ProxySettings


async def test_pops_get_the_newest_value_of_each_key_across_gaps_and_once(tmp_path: Path) -> None:
    async with broker_group(tmp_path) as group, group.master(store=SMALL) as broker:
        async with BrokerClient(broker.address) as client:
            await client.call(compacted())
            newest = await fill(client, 0, 60)
        await only_in_the_snapshot(broker, 40)
        found: dict[str, bytes] = {}
        offsets: list[int] = []
        async with SimpleConsumer("poppers", group.names, start_from="first") as consumer:
            consumer.subscribe(TOPIC)
            async with asyncio.timeout(TIMEOUT_S):
                while not offsets or offsets[-1] < 59:
                    for each in await consumer.receive(8, invisible_s=30):
                        found[each.keys[0]] = each.body
                        offsets.append(each.queue_offset)
                        assert await consumer.ack(each)
            assert found == newest
            assert offsets == sorted(set(offsets))
            assert len(offsets) < 60, "no gap was there to cross"
            assert await consumer.receive(8, wait_s=0.1) == []


async def test_a_popped_value_that_was_replaced_meanwhile_is_gone_and_the_newest_come(tmp_path: Path) -> None:
    async with (
        broker_group(tmp_path) as group,
        group.master(store=SMALL) as broker,
        BrokerClient(broker.address) as client,
        SimpleConsumer("poppers", group.names, start_from="first") as consumer,
    ):
        await client.call(compacted())
        await fill(client, 0, KEYS)
        consumer.subscribe(TOPIC)
        held: list[PoppedMessage] = []
        async with asyncio.timeout(TIMEOUT_S):
            while len(held) < KEYS:
                held += await consumer.receive(8, invisible_s=300)
        newest = await fill(client, KEYS, 60)
        await only_in_the_snapshot(broker, 45)
        with pytest.raises(Refused, match="no message at offset") as refused:
            await consumer.ack(held[0])
        assert refused.value.code == ResponseCode.NO_MESSAGE
        seen: dict[str, bytes] = {}
        offsets: list[int] = []
        async with asyncio.timeout(TIMEOUT_S):
            while seen != newest:
                for each in await consumer.receive(8, invisible_s=30):
                    seen[each.keys[0]] = each.body
                    offsets.append(each.queue_offset)
                    await consumer.ack(each)
        assert min(offsets) >= KEYS


async def test_a_transaction_changes_the_table_when_it_is_committed(tmp_path: Path) -> None:
    async with broker_group(tmp_path) as group, group.master(store=SMALL) as broker:
        async with BrokerClient(broker.address) as client:
            await client.call(compacted())
            await put(client, "a", b"old")
            await put(client, "b", b"old")

        def end(message: Message | ReceivedMessage) -> TransactionState:
            return TransactionState.COMMIT if "a" in message.keys else TransactionState.ROLLBACK

        async with TransactionProducer("tellers", group.names, check=end) as producer:
            await producer.send_in_transaction(Message(TOPIC, b"new", keys="a"), end)
            await producer.send_in_transaction(Message(TOPIC, b"new", keys="b"), end)
            with pytest.raises(Refused, match="needs a key"):
                await producer.send_in_transaction(Message(TOPIC, b"lost"), end)
        async with BrokerClient(broker.address) as client:
            await until(lambda: table(broker.store).get("a") == b"new")
            await until(lambda: broker.store.compacting.rounds)
        assert table(broker.store) == {"a": b"new", "b": b"old"}


async def test_clients_of_the_grpc_front_send_and_receive_values(tmp_path: Path) -> None:
    async with broker_group(tmp_path) as group, group.master(store=SMALL) as broker:
        async with BrokerClient(broker.address) as client:
            await client.call(compacted())
            newest = await fill(client, 0, 60)
        await only_in_the_snapshot(broker, 40)
        settings = ProxySettings(
            listen_port=0, bind_address="127.0.0.1", namesrv_addr=group.names, log_dir=None
        )
        async with Proxy(settings) as front, user(f"127.0.0.1:{front.address[1]}") as member:
            sent = await member.send(member.message(TOPIC, b"last", keys=["key-1"], message_id=f"01{1:032X}"))
            assert CODES[sent.status.code] == "OK"
            refused = await member.send(member.message(TOPIC, b"lost", message_id=f"01{2:032X}"))
            assert "needs a key" in refused.status.message
            newest["key-1"] = b"last"
            found: dict[str, bytes] = {}
            async with BrokerClient(broker.address) as client:
                await client.call(CreateOrUpdateGroup(body=SubscriptionGroupConfig(group_name="viewers")))
            await member.subscribe("viewers", TOPIC)
            async with Admin(group.names) as admin:  # a new group begins at the end
                await admin.reset_offsets("viewers", TOPIC, "first")
            async with asyncio.timeout(TIMEOUT_S):
                while found != newest:
                    for each in (await member.receive("viewers", TOPIC)).messages:
                        found[each.system_properties.keys[0]] = each.body
                        assert await member.ack("viewers", TOPIC, each) == ["OK"]
