"""A broker of a group counts only for bytes that it has checked and would find again, over real sockets."""

from pathlib import Path

from tests.integration.test_controlled_replication import bodies, send
from tests.support.broker_cluster import BrokerClient, configuration
from tests.support.controlled_group import controlled_group, members_of, side_of
from tests.support.replicas import caught_up, log_of, until

from pyromq.store.message_store import MessageStore


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


async def test_a_replica_whose_log_ends_where_its_master_has_no_record_says_so(tmp_path: Path) -> None:
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
        await group.start("a")
        replica = await group.start("b")
        await until(lambda: replica.replication.problem)
        assert "the master's log is not copied: the master's" in replica.replication.problem
        assert f"at {replica.store.log_end} " in replica.replication.problem


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
        assert partial.store.log_start > master.store.log_start
        directory = await group.crash(partial)
        partial = await group.start(directory, store=small_files, sync_from_last_file=True)
        await until(lambda: len(master.replication.master.links) == 2)
        assert side_of(master).wanted_set() is None
        assert members_of(master) == {1, 2}
