"""A broker of a group counts only for bytes that it has checked and would find again, over real sockets."""

import asyncio
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner
from tests.conftest import ErrorLogs
from tests.integration.replication.test_controlled_replication import bodies, send
from tests.support.broker_cluster import BrokerClient, configuration
from tests.support.controlled_group import (
    ControlledGroup,
    all_reported,
    controlled_group,
    members_of,
    side_of,
)
from tests.support.replicas import broker_group, caught_up, log_of, until
from tests.support.small_stores import messages_in

from pyromq.apps.pyromq import COMMANDS
from pyromq.broker.broker import Broker
from pyromq.remoting.addresses import format_address
from pyromq.store.message_store import MessageStore
from pyromq.store.results import ReadStatus


def flip(directory: Path, body: bytes, bit: int = 0) -> None:
    """Flip a bit in the body of a message, in the log of a broker that is not running."""
    (path,) = (each for each in (directory / "commitlog").iterdir() if body in each.read_bytes())
    with path.open("r+b") as log:
        at = path.read_bytes().index(body)
        log.seek(at)
        log.write(bytes([body[0] ^ 1 << bit]) + body[1:])


async def test_a_replica_with_a_hole_copies_from_there_on_again_and_may_lead_then(tmp_path: Path) -> None:
    async with controlled_group(tmp_path) as group:
        old, new = [await group.start(each) for each in "ab"]
        await group.settled(2)
        await send(old, range(1000, 1020))
        await caught_up(new, old)
        directory = await group.crash(new)
        store = tmp_path / directory
        (store / "checkpoint").unlink()  # nothing was synced
        flip(store, b"1005")
        new = await group.start(directory)
        assert new.store.recovery.damage
        await group.settled(2)
        await caught_up(new, old)
        assert log_of(new.store) == log_of(old.store)
        await group.crash(old)
        assert await group.settled(1) is new
        assert bodies(new) == list(range(1000, 1020))


async def test_a_replica_whose_log_ends_where_its_master_has_no_record_says_so(
    tmp_path: Path, error_logs: ErrorLogs
) -> None:
    async with controlled_group(tmp_path) as group:
        master, replica = [await group.start(each) for each in "ab"]
        await group.settled(2)
        await send(master, range(1000, 1005))
        await caught_up(replica, master)
        await group.crash(replica)
        await group.settled(1)
        await send(master, range(1005, 1010))
        await group.crash(master)
        (tmp_path / "a" / "checkpoint").unlink()
        for body in (b"1004", b"1005"):
            flip(tmp_path / "a", body)
        # Nobody had a copy: the hole was filled.
        store = configuration(tmp_path / "a").store
        MessageStore.open(store).close()
        master = await group.start("a")
        replica = await group.start("b")
        await until(lambda: replica.replication.problem and master.replication.repair.damage)
        assert "the master's log is not copied: the master's" in replica.replication.problem
        assert f"at {replica.store.log.end} " in replica.replication.problem
        error_logs.expect_repeatedly("damage in the log cannot be repaired")


async def test_a_copy_that_began_with_the_last_file_never_counts_while_its_master_has_older_ones(
    tmp_path: Path,
) -> None:
    small_files = {"log_segment_bytes": 65_536}
    async with controlled_group(tmp_path) as group:
        master = await group.start("a", store=small_files)
        whole = await group.start("b", store=small_files, sync_from_last_file=True)
        await group.settled(2)  # there is one file
        async with BrokerClient(master.address) as client:
            await client.create_topic()
            for _ in range(10):
                await client.send(b"x" * 20_000, queue_id=0)
        partial = await group.start("c", store=small_files, sync_from_last_file=True)
        for each in (whole, partial):
            await caught_up(each, master)
        assert partial.store.log.start > master.store.log.start
        directory = await group.crash(partial)
        partial = await group.start(directory, store=small_files, sync_from_last_file=True)
        await all_reported(master, 2)
        assert side_of(master).wanted_set() is None
        assert members_of(master) == {1, 2}


async def three_brokers(group: ControlledGroup, count: int = 20) -> list[Broker]:
    """A master and two replicas that have its messages on disk."""
    brokers = [await group.start(each) for each in "abc"]
    await group.settled(3)
    await send(brokers[0], range(1000, 1000 + count))
    for each in brokers:
        await caught_up(each, brokers[0])
        each.store.flushes.flush()
    return brokers


@pytest.mark.parametrize("is_master", [True, False])
@pytest.mark.parametrize("part", ["body", "size", "magic"])
async def test_a_bit_that_flips_at_rest_loses_nothing_whoever_leads(
    tmp_path: Path, is_master: bool, part: str
) -> None:
    async with controlled_group(tmp_path) as group:
        brokers = await three_brokers(group)
        sound = log_of(brokers[0].store)
        broker = brokers[0 if is_master else 1]
        at = sound.index(b"1007") - {"body": 0, "size": 86, "magic": 82}[part]
        broker.store.scrubbing.put_back(at, bytes([sound[at] ^ 2]))
        assert log_of(broker.store) != sound
        await broker.replication.repair.scrub()
        assert log_of(broker.store) == sound
        assert broker.replication.repair.repaired_ranges == 1
        assert "1 damaged ranges repaired" in broker.replication.repair.summary
        while brokers and brokers[0] is not broker:
            await group.crash(brokers.pop(0))
        assert bodies(broker) == list(range(1000, 1020))


async def test_a_replica_that_starts_with_damage_is_in_sync_when_it_is_repaired(tmp_path: Path) -> None:
    async with controlled_group(tmp_path) as group:
        master, replica, _ = await three_brokers(group)
        sound = log_of(master.store)
        replica.store.scrubbing.put_back(sound.index(b"1007") - 82, b"\0")
        directory = await group.stop(replica)
        shutil.rmtree(tmp_path / directory / "consumequeue")  # the start reads all of the log
        replica = await group.start(directory)
        (damage,) = replica.store.recovery.damage
        assert damage.is_left_in_place
        await group.settled(3)
        assert log_of(replica.store) == sound
        assert bodies(replica) == list(range(1000, 1020))


@pytest.mark.parametrize("part", ["body", "magic"])
async def test_a_reader_of_a_damaged_message_waits_until_it_is_repaired(tmp_path: Path, part: str) -> None:
    async with controlled_group(tmp_path) as group:
        *_, last = await three_brokers(group)
        directory = await group.stop(last)
        for other in list(group.brokers):
            await group.stop(other)
        master = await group.start(directory)  # what it has comes from its disk
        for name in "ab":
            await group.start(name)
        await group.settled(3)
        sound = log_of(master.store)
        at = sound.index(b"1007") - {"body": 0, "magic": 82}[part]
        master.store.scrubbing.put_back(at, b"\0")
        found = list[int]()
        while len(found) < 20:
            read = master.store.read("Orders", 0, len(found), 1000)
            found += [int(message.body) for message in messages_in(read)]
            assert read.status in (ReadStatus.FOUND, ReadStatus.QUEUE_IS_MENDED)
            await asyncio.sleep(0.01)
        assert found == list(range(1000, 1020))
        assert log_of(master.store) == sound


async def test_a_replica_gets_past_damage_in_its_masters_log(tmp_path: Path) -> None:
    async with controlled_group(tmp_path) as group:
        master, whole, _ = await three_brokers(group)
        at = log_of(master.store).index(b"1007")
        master.store.scrubbing.put_back(at, b"\0")
        empty = await group.start("d")
        await caught_up(empty, master)
        assert log_of(empty.store) == log_of(master.store) == log_of(whole.store)
        assert master.replication.repair.repaired_ranges == 1


async def test_a_lost_file_is_fetched_and_its_messages_are_in_their_queue_again(tmp_path: Path) -> None:
    files = {"log_segment_bytes": 65_536}
    async with broker_group(tmp_path) as group:
        async with group.master(store=files) as master, group.replica(store=files) as replica:
            async with BrokerClient(master.address) as client:
                await client.create_topic()
                for number in range(1000, 1020):
                    await client.send(b"%d" % number + bytes(10_000), queue_id=0)
            await caught_up(replica, master)
            sound = log_of(master.store)
        (tmp_path / "replica1" / "commitlog" / f"{65_536:020}").unlink()
        async with group.master(store=files) as master, group.replica(store=files) as replica:
            await until(lambda: replica.replication.replica.is_connected)
            assert len(messages_in(replica.store.read("Orders", 0, 0, 1000))) < 20
            await replica.replication.repair.scrub()
            assert log_of(replica.store) == sound
            found = messages_in(replica.store.read("Orders", 0, 0, 1000))
            assert [int(each.body[:4]) for each in found] == list(range(1000, 1020))


async def test_damage_that_no_broker_can_replace_keeps_a_replica_out_of_sync_until_one_can(
    tmp_path: Path, error_logs: ErrorLogs
) -> None:
    async with controlled_group(tmp_path) as group:
        brokers = await three_brokers(group)
        sound = log_of(brokers[0].store)
        at = sound.index(b"1007")
        for each in brokers:
            each.store.scrubbing.put_back(at, b"\0")
        replica = brokers[1]
        await replica.replication.repair.scrub()
        assert replica.replication.repair.damage
        await group.settled(2)
        assert "this broker is not in sync" in replica.replication.problem
        brokers[0].store.scrubbing.put_back(at, b"1")
        await replica.replication.repair.scrub()
        await group.settled(3)
        assert not replica.replication.problem
        assert log_of(replica.store) == sound
        error_logs.expect_repeatedly("damage in the log cannot be repaired")


async def test_a_store_is_repaired_from_a_broker_by_command(tmp_path: Path) -> None:
    async with broker_group(tmp_path) as group, group.master() as master:
        async with group.replica() as replica:
            await send(master, range(1000, 1020))
            await caught_up(replica, master)
            arguments = [
                "store",
                "repair",
                str(tmp_path / "replica1"),
                "--from",
                format_address(*master.address),
            ]
            refused = await asyncio.to_thread(CliRunner().invoke, COMMANDS, arguments)
            assert "is in use" in refused.output
        flip(tmp_path / "replica1", b"1007")
        done = await asyncio.to_thread(CliRunner().invoke, COMMANDS, arguments)
        assert "1 damaged ranges repaired, 0 left" in done.output, done.output
        assert done.exit_code == 0
        async with group.replica() as replica:
            await caught_up(replica, master)
            assert log_of(replica.store) == log_of(master.store)
