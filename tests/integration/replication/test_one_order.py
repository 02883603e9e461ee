"""What a table says depends on the log: a replica uses it only when its own log has reached that place."""

import asyncio
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from random import Random
from typing import Any
from unittest.mock import patch

from tests.integration.replication.test_replicated_pops import about
from tests.support.broker_cluster import (
    GROUP,
    TOPIC,
    BrokerClient,
    configuration,
    running_broker,
    topic_creation,
)
from tests.support.controlled_group import ControlledGroup, controlled_group, side_of
from tests.support.faulty_files import FaultyFiles
from tests.support.popped_messages import batch_ack, bodies, pop_over
from tests.support.replicas import caught_up, until

from pyromq.broker.broker import Broker
from pyromq.broker.flow.half_messages import GROUP as HALVES
from pyromq.broker.replication.replica import Replica
from pyromq.broker.tables.all_tables import Tables
from pyromq.errors import Refused
from pyromq.protocol import names
from pyromq.protocol import properties as props
from pyromq.protocol.catalogue import Request
from pyromq.protocol.codes import ResponseCode
from pyromq.protocol.message_id import decode_offset_message_id
from pyromq.protocol.record import SysFlag
from pyromq.protocol.requests.groups import CreateOrUpdateGroup, DeleteGroup, SubscriptionGroupConfig
from pyromq.protocol.requests.offsets import ResetOffset
from pyromq.protocol.requests.popping import AckMessage, AckMessages, ChangeInvisibleTime
from pyromq.protocol.requests.sending import RecallMessage, SendMessageBack
from pyromq.protocol.requests.topics import DeleteTopicFromBroker
from pyromq.protocol.requests.transactions import EndTransaction
from pyromq.store.message_store import MessageStore


def tables(broker: Broker) -> Tables:
    return broker._started.tables


@contextmanager
def held_log(replica: Broker) -> Iterator[None]:
    """Nothing of the master's log reaches the replica; everything else does."""
    link = replica.replication.replica.link
    assert link is not None
    assert link._transport is not None
    link._transport.pause_reading()
    try:
        yield
    finally:
        if link._transport is not None:
            link._transport.resume_reading()


@asynccontextmanager
async def pair(tmp_path: Path, **settings: Any) -> AsyncIterator[tuple[ControlledGroup, Broker, Broker]]:
    """A master and the replica that is in sync with it."""
    async with controlled_group(tmp_path) as group:
        master, replica = await group.start("a", **settings), await group.start("b", **settings)
        assert await group.settled(2) is master
        yield group, master, replica


async def copied(replica: Broker, master: Broker) -> None:
    """The replica has the log, and the master knows: readers see all of it."""
    await caught_up(replica, master)
    await until(lambda: side_of(master).confirmed == master.store.log.end)


async def tables_heard(replica: Broker, master: Broker) -> None:
    """The replica was told everything that the master's tables say now."""
    now = master.replication.table_changes._counts()

    def has_heard() -> bool:
        _, *seen = replica.replication.table_sync._seen.split(":")
        return all(int(theirs) >= ours for theirs, ours in zip(seen, now, strict=True))

    await until(has_heard)


async def insist(client: BrokerClient, request: Request[Any]) -> None:
    """Ask until a busy machine has the answer in time."""
    while True:
        with suppress(Refused):
            await client.call(request)
            return


async def fail_over(group: ControlledGroup, master: Broker, replica: Broker) -> None:
    await group.crash(master)
    await until(lambda: replica.role.now.is_master)


async def test_a_delayed_message_whose_delivery_was_not_copied_is_delivered_by_the_next_master(
    tmp_path: Path,
) -> None:
    async with pair(tmp_path, store={"message_delay_levels": "1s"}) as (group, master, replica):
        async with BrokerClient(master.address) as client:
            await client.create_topic(queues=1)
            await client.send(b"later", properties={props.DELAY: "1"})
        await caught_up(replica, master)
        with held_log(replica):
            await until(lambda: tables(master).delay_offsets.get(1) == 1)
            await tables_heard(replica, master)
            await fail_over(group, master, replica)
        await until(lambda: replica.store.queues.max_offset(TOPIC, 0) == 1)


async def test_messages_whose_pop_was_not_copied_are_popped_again_from_the_next_master(
    tmp_path: Path,
) -> None:
    async with pair(tmp_path, replica_timeout_ms=100) as (group, master, replica):
        async with BrokerClient(master.address) as client:
            await insist(client, topic_creation(queues=1))
            await client.send(b"one")
            await copied(replica, master)
            with held_log(replica):
                assert bodies(await pop_over(client, 32, 60_000, poll_ms=0)) == [b"one"]
                await tables_heard(replica, master)
                await fail_over(group, master, replica)
        async with BrokerClient(replica.address) as client:
            assert bodies(await pop_over(client, 32, 60_000, poll_ms=20_000)) == [b"one"]


async def half_message(client: BrokerClient) -> EndTransaction:
    """Send one; returns the commit of it."""
    sent = await client.send(
        b"paid",
        properties={
            props.TRANSACTION_PREPARED: "true",
            props.PRODUCER_GROUP: "payers",
            props.UNIQ_KEY: "0A000001000000000000000000000001",
        },
        sys_flag=SysFlag.TRANSACTION_PREPARED,
        producer_group="payers",
    )
    return EndTransaction(
        topic=TOPIC,
        producer_group="payers",
        tran_state_table_offset=sent.queue_offset,
        commit_log_offset=decode_offset_message_id(sent.msg_id or "").log_offset,
        commit_or_rollback=SysFlag.TRANSACTION_COMMIT,
        msg_id="0A000001000000000000000000000001",
    )


async def test_a_commit_that_was_not_copied_is_not_confirmed_and_its_transaction_stays_open(
    tmp_path: Path,
) -> None:
    settings = {"replica_timeout_ms": 100, "transaction_check_interval_ms": 50}
    async with pair(tmp_path, **settings) as (group, master, replica):
        async with BrokerClient(master.address) as client:
            await insist(client, topic_creation(queues=1))
            commit = await half_message(client)
            await copied(replica, master)
            with held_log(replica):
                assert (await client.refusal(commit)).code == ResponseCode.FLUSH_SLAVE_TIMEOUT
                # Nor is the same commit when it comes again.
                assert (await client.refusal(commit)).code == ResponseCode.FLUSH_SLAVE_TIMEOUT
                # And the position of the checks waits for the replica.
                assert tables(master).offsets.query(HALVES, names.HALF_TOPIC, 0) < 1
                await tables_heard(replica, master)
                await fail_over(group, master, replica)
        async with BrokerClient(replica.address) as client:
            await client.call(commit)
            await until(lambda: replica.store.queues.max_offset(TOPIC, 0) == 1)


async def test_a_consumer_beyond_the_next_masters_end_is_told_where_to_go_on(tmp_path: Path) -> None:
    """The master acknowledged alone: what it had alone is gone, and new messages get its offsets."""
    async with pair(tmp_path, all_in_sync=False) as (group, master, replica):
        async with BrokerClient(master.address) as client:
            await client.create_topic(queues=1)
            for number in range(15):
                await client.send(b"%d" % number)
            await client.pull(0)
            await client.pull(12, commit=12)
            await caught_up(replica, master)
            await until(lambda: tables(replica).offsets.query(GROUP, TOPIC, 0) == 12)
            with held_log(replica):
                for number in range(15, 20):
                    await client.send(b"lost %d" % number)
                assert len((await client.pull(15)).messages) == 5
                await fail_over(group, master, replica)
        async with BrokerClient(replica.address) as client:
            for number in range(15, 25):
                await client.send(b"new %d" % number)
            await until(lambda: replica.store.queues.max_offset(TOPIC, 0) == 25)
            told = (await client.pull(20, commit=20)).answer
            # Not to 15, the end that was found: it may have read messages before that and not finished them.
            assert (told.code, told.next_begin_offset) == (ResponseCode.PULL_OFFSET_MOVED, 12)
            assert tables(replica).offsets.query(GROUP, TOPIC, 0) == 12
            assert (await client.pull(15)).bodies == [b"new %d" % number for number in range(15, 25)]
            assert (await client.pull(20)).messages[0].queue_offset == 20


async def test_a_topic_that_is_deleted_while_the_log_is_held_up_can_be_made_again(tmp_path: Path) -> None:
    async with pair(tmp_path, replica_timeout_ms=100) as (group, master, replica):
        async with BrokerClient(master.address) as client:
            await insist(client, topic_creation(queues=1))
            await client.send(b"old")
            await copied(replica, master)
            with held_log(replica):
                for _ in range(20):
                    await client.send(b"x" * 1000)
                assert (await client.refusal(DeleteTopicFromBroker(topic=TOPIC))).code
                # The replica has heard of it.
                watching = master.replication.table_changes._waiting
                await until(lambda: not watching or replica.store.topics.deletions())
                await fail_over(group, master, replica)
        async with BrokerClient(replica.address) as client:
            # Nobody was promised the deletion, and this master does not know of it.
            assert replica.store.topics.deletions() == []
            await client.call(DeleteTopicFromBroker(topic=TOPIC))
            await client.create_topic(queues=1)
            for number in range(5):
                assert (await client.send(b"%d" % number)).queue_offset == number
            assert (await client.pull()).bodies == [b"%d" % number for number in range(5)]


async def test_a_consumer_beyond_the_end_that_a_loss_of_power_left_is_told_where_to_go_on(
    tmp_path: Path,
) -> None:
    async with running_broker(tmp_path) as broker, BrokerClient(broker.address) as client:
        await client.create_topic(queues=1)
        for number in range(20):
            await client.send(b"%d" % number)
        await client.pull(0)
        await client.pull(12, commit=12)
        await until(lambda: broker.store.queues.max_offset(TOPIC, 0) == 20)
        place = broker.store.queues.log_offset(TOPIC, 0, 15)
        assert place is not None
        tables(broker).offsets.persist()
        await broker.abandon()
    store = MessageStore.open(configuration(tmp_path).store)
    store.cutting.cut(place)
    store.abandon()
    async with running_broker(tmp_path) as broker, BrokerClient(broker.address) as client:
        for number in range(15, 25):
            await client.send(b"new %d" % number)
        told = (await client.pull(20)).answer
        assert (told.code, told.next_begin_offset) == (ResponseCode.PULL_OFFSET_MOVED, 12)
        assert (await client.pull(15)).bodies == [b"new %d" % number for number in range(15, 25)]


async def test_what_a_consumer_has_done_with_a_message_is_confirmed_when_the_replica_has_it(
    tmp_path: Path,
) -> None:
    async with (
        pair(tmp_path, replica_timeout_ms=100, recalls=True) as (_, master, replica),
        BrokerClient(master.address) as client,
    ):
        await insist(client, topic_creation(queues=1))
        await insist(client, CreateOrUpdateGroup(body=SubscriptionGroupConfig(group_name=GROUP)))
        for body in (b"one", b"two", b"three"):
            await client.send(body)
        timed = await client.send(b"later", properties={props.TIMER_DELAY_SEC: "60"})
        await copied(replica, master)
        one, two, three = await pop_over(client, 32, 60_000, poll_ms=0)
        await insist(client, SendMessageBack(offset=one.message.log_offset, group=GROUP, delay_level=1))
        await copied(replica, master)
        ends: list[Request[Any]] = [
            AckMessage(**about(one)),  # type: ignore[arg-type]
            ChangeInvisibleTime(**about(two), invisible_time=30_000),  # type: ignore[arg-type]
            AckMessages(body=batch_ack(three.receipt, three.message.queue_offset, group=GROUP)),
            SendMessageBack(offset=one.message.log_offset, group=GROUP, delay_level=1),
            RecallMessage(producer_group="payers", topic=TOPIC, recall_handle=timed.recall_handle or ""),
        ]
        with held_log(replica):
            for end in ends:
                assert (await client.refusal(end)).code == ResponseCode.FLUSH_SLAVE_TIMEOUT, end
        for end in ends:
            await insist(client, end)


class OnlySynced(Random):
    """A loss of power that takes everything that was not synced."""

    def random(self) -> float:
        return 0.0

    def randint(self, a: int, b: int) -> int:
        return a

    def randrange(self, start: int, stop: int | None = None, step: int = 1) -> int:
        return 0


async def test_a_popped_message_comes_again_after_a_loss_of_power(tmp_path: Path) -> None:
    """Its group's offset is not on disk before the checkpoint of the pop."""
    seldom = dict.fromkeys(("flush_interval_ms", "flush_thorough_interval_ms"), 3_600_000)
    files = FaultyFiles(tmp_path)
    async with (
        running_broker(tmp_path, files=files, store=seldom) as broker,
        BrokerClient(broker.address) as client,
    ):
        await client.create_topic(queues=1)
        await client.send(b"one")
        # The first flush is due at once, the next one never.
        await until(lambda: broker.store.flushes.offset == broker.store.log.end)
        assert bodies(await pop_over(client, 32, 1000, poll_ms=0)) == [b"one"]
        await tables(broker).offsets.persist_in_thread(broker._started._slices)
        await broker.abandon()
    files.disk.crash(OnlySynced())
    async with (
        running_broker(tmp_path, files=FaultyFiles(tmp_path, files.disk)) as broker,
        BrokerClient(broker.address) as client,
    ):
        assert bodies(await pop_over(client, 32, 60_000, poll_ms=20_000)) == [b"one"]


def is_stored(broker: Broker, offset: int) -> bool:
    file = broker.store.paths.config / "consumerOffset.json"
    pattern = rf'"{TOPIC}@{GROUP}":\s*{{0:\s*{offset}}}'
    return file.exists() and re.search(pattern, file.read_text()) is not None


async def test_an_operators_reset_is_answered_when_the_replica_has_it_on_disk(tmp_path: Path) -> None:
    # Nothing but the promise writes offsets.
    seldom = {"flush_offsets_ms": 3_600_000}
    async with pair(tmp_path, replica_timeout_ms=100, **seldom) as (group, master, replica):
        async with BrokerClient(master.address) as client:
            await insist(client, topic_creation(queues=1))
            await insist(client, CreateOrUpdateGroup(body=SubscriptionGroupConfig(group_name=GROUP)))
            for _ in range(5):
                await client.send()
            await client.pull(4, commit=4)
            await copied(replica, master)
            back = ResetOffset(topic=TOPIC, group=GROUP, queue_id=0, offset=2, timestamp=-1, is_force=True)
            with held_log(replica):
                await client.send()  # the table depends on it
                assert (await client.refusal(back)).code == ResponseCode.SYSTEM_ERROR
            await insist(client, back)
            assert is_stored(master, 2)
            assert is_stored(replica, 2)
            await fail_over(group, master, replica)
        async with BrokerClient(replica.address) as client:
            assert tables(replica).offsets.query(GROUP, TOPIC, 0) == 2
            told = (await client.pull(4, commit=4)).answer
            assert (told.code, told.next_begin_offset) == (ResponseCode.PULL_OFFSET_MOVED, 2)


async def test_offsets_of_what_was_deleted_are_gone_from_every_disk_before_the_answer(
    tmp_path: Path,
) -> None:
    seldom = {"flush_offsets_ms": 3_600_000}
    async with pair(tmp_path, **seldom) as (_, master, replica), BrokerClient(master.address) as client:
        deletions = DeleteTopicFromBroker(topic=TOPIC), DeleteGroup(group_name=GROUP, clean_offset=True)
        for deletion in deletions:
            await insist(client, topic_creation(queues=1))
            await insist(client, CreateOrUpdateGroup(body=SubscriptionGroupConfig(group_name=GROUP)))
            for _ in range(3):
                await client.send()
            await client.pull(2, commit=2)
            await copied(replica, master)
            await until(lambda: tables(replica).offsets.query(GROUP, TOPIC, 0) == 2)
            for broker in (master, replica):
                tables(broker).offsets.persist()
                assert is_stored(broker, 2)
            await insist(client, deletion)
            for broker in (master, replica):
                assert not is_stored(broker, 2), deletion


async def test_a_group_that_was_deleted_without_its_offsets_has_them_at_the_next_master(
    tmp_path: Path,
) -> None:
    async with pair(tmp_path) as (group, master, replica):
        async with BrokerClient(master.address) as client:
            await insist(client, topic_creation(queues=1))
            await insist(client, CreateOrUpdateGroup(body=SubscriptionGroupConfig(group_name=GROUP)))
            for _ in range(3):
                await client.send()
            await client.pull(2, commit=2)
            await copied(replica, master)
            await until(lambda: tables(replica).offsets.query(GROUP, TOPIC, 0) == 2)
            await insist(client, DeleteGroup(group_name=GROUP))
            assert tables(master).offsets.query(GROUP, TOPIC, 0) == 2
            await fail_over(group, master, replica)
        assert tables(replica).offsets.query(GROUP, TOPIC, 0) == 2


async def test_a_broker_that_returns_shows_nothing_that_was_never_confirmed(tmp_path: Path) -> None:
    """It has not heard yet what its master lacks, and a consumer with an old route comes to it."""
    async with pair(tmp_path, replica_timeout_ms=100) as (group, master, replica):
        async with BrokerClient(master.address) as client:
            await insist(client, topic_creation(queues=1))
            await client.send(b"confirmed")
            await copied(replica, master)
            with held_log(replica):
                await client.send(b"never confirmed")
                directory = await group.crash(master)
                await until(lambda: replica.role.now.is_master)
        async with BrokerClient(replica.address) as client:
            await client.send(b"other")
        may_follow, follow = asyncio.Event(), Replica._follow

        async def later(self: Replica) -> None:
            await may_follow.wait()
            await follow(self)

        with patch.object(Replica, "_follow", later):
            returned = await group.start(directory)
            async with BrokerClient(returned.address) as client:
                assert returned.store.queues.max_offset(TOPIC, 0) == 2
                for offset in (0, 1):
                    pulled = await client.pull(offset)
                    assert pulled.answer.code == ResponseCode.PULL_RETRY_IMMEDIATELY
                    assert (pulled.bodies, pulled.answer.next_begin_offset) == ([], offset)
                may_follow.set()
                await caught_up(returned, replica)
                await until(lambda: returned.store.queues.max_offset(TOPIC, 0) == 2)
                assert (await client.pull(0)).bodies == [b"confirmed", b"other"]
