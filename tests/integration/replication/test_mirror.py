"""A second cluster that copies a first one over real sockets, takes over from it, and is copied in turn."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from click.testing import CliRunner
from tests.conftest import ErrorLogs
from tests.integration.replication.test_tiered_replicas import check, history, knows, tier
from tests.integration.replication.test_tls import tls_of
from tests.support.access import ALICE, ROOT, SECURE, user_creation
from tests.support.access import client as access_client
from tests.support.broker_cluster import CLUSTER, GROUP, TOPIC, BrokerClient, message, pull
from tests.support.certificates import Authority
from tests.support.controlled_group import ControlledGroup, controlled_group
from tests.support.killable_broker import start_killable_broker
from tests.support.replicas import caught_up, log_of, until
from tests.support.small_stores import messages_in

from pyromq.broker.broker import Broker
from pyromq.broker.replication.mirror import Mirror
from pyromq.broker.services import erasing
from pyromq.cli.mqadmin.tree import mqadmin
from pyromq.protocol.codes import ResponseCode
from pyromq.protocol.requests.offsets import QueryConsumerOffset, UpdateConsumerOffset
from pyromq.protocol.requests.replication import PromoteMirror, PromoteMirrorAnswer
from pyromq.protocol.requests.routes import GetRoute
from pyromq.protocol.requests.topics import EraseMessages
from pyromq.remoting.addresses import format_address
from pyromq.remoting.dialer import Dialer
from pyromq.security.signature import Credentials

OTHER = "OtherCluster"


class Clusters(NamedTuple):
    first: ControlledGroup
    second: ControlledGroup

    async def mirror(self, directory: str = "m", **settings: Any) -> Broker:
        """A broker of the second cluster that copies the first one."""
        return await self.second.start(directory, **mirroring(self.first, OTHER) | settings)


def mirroring(source: ControlledGroup, cluster: str) -> dict[str, Any]:
    return {"mirror_of": source.names, "broker_cluster_name": cluster, "controller_poll_ms": 200}


@asynccontextmanager
async def clusters(root: Path) -> AsyncIterator[Clusters]:
    async with controlled_group(root / "first") as first, controlled_group(root / "second") as second:
        yield Clusters(first, second)


def side_of(broker: Broker) -> Mirror:
    mirror = broker.replication.mirror
    assert mirror is not None
    return mirror


async def send(broker: Broker, numbers: range, *, size: int = 0) -> None:
    async with BrokerClient(broker.address) as client:
        await client.create_topic()
        for number in numbers:
            await client.send((b"%d" % number).ljust(size), queue_id=0)


async def commit(broker: Broker, offset: int) -> None:
    async with BrokerClient(broker.address) as client:
        await client.pull()  # the group is made
        await client.call(
            UpdateConsumerOffset(consumer_group=GROUP, topic=TOPIC, queue_id=0, commit_offset=offset)
        )


def bodies(broker: Broker) -> list[int]:
    return [int(each.body) for each in messages_in(broker.store.read(TOPIC, 0, 0, 1000))]


async def follows(mirror: Broker, source: Broker) -> None:
    """The mirror has the log and the offsets, and its readers may see all of it."""
    await caught_up(mirror, source)
    await until(lambda: mirror.replication.is_mirror and mirror.replication.replica.is_connected)
    side = side_of(mirror)
    await until(lambda: side.source is not None and side.source.log_end == source.store.log.end)
    await until(
        lambda: (
            mirror.tables.offsets.query(GROUP, TOPIC, 0) == source.tables.offsets.query(GROUP, TOPIC, 0)
            and mirror.replication.epoch == source.replication.epoch
        )
    )
    assert log_of(mirror.store) == log_of(source.store)
    assert mirror.store.epochs.epochs == source.store.epochs.epochs


async def promote(
    mirror: Broker, *, accept_loss: bool = False, who: Credentials | None = None
) -> PromoteMirrorAnswer:
    async with BrokerClient(mirror.address, credentials=who) as client:
        return await client.call(PromoteMirror(accept_loss=accept_loss))


async def test_a_mirror_has_equal_bytes_and_offsets_serves_readers_and_takes_nothing(tmp_path: Path) -> None:
    async with clusters(tmp_path) as both:
        source = await both.first.start("a")
        await both.first.start("b")
        await both.first.settled(2)
        await send(source, range(20))
        await commit(source, 7)
        mirror = await both.mirror()
        await follows(mirror, source)
        await send(source, range(20, 30))
        await follows(mirror, source)
        assert source.replication.master.expected == frozenset()
        assert await both.first.settled(2) is source  # the mirror does not count

        async with BrokerClient(mirror.address) as client:
            await until(lambda: len(bodies(mirror)) == 30)
            assert (await client.pull(5, max_msg_nums=1)).bodies == [b"5"]
            refused = await client.refusal(message())
            assert refused.code == ResponseCode.SERVICE_NOT_AVAILABLE
            assert f"a mirror of the cluster at {both.first.names}" in (refused.remark or "")
            commit_there = UpdateConsumerOffset(
                consumer_group=GROUP, topic=TOPIC, queue_id=0, commit_offset=9
            )
            assert (await client.refusal(commit_there)).code == ResponseCode.NO_PERMISSION
            await client.call(pull(9, commit=9))
            known = await client.call(QueryConsumerOffset(consumer_group=GROUP, topic=TOPIC, queue_id=0))
            assert known.offset == 7
            # Whoever waits at the end is woken by what the first cluster sends.
            dialer = Dialer()
            try:
                route = (await dialer.call(both.second.names, GetRoute(topic=TOPIC), 10)).body
            finally:
                await dialer.close()
            (queues,), (broker,) = route.queue_datas, route.broker_datas
            assert (queues.perm, broker.cluster) == (4, OTHER)
            assert list(broker.broker_addrs) == [0]
        figures = side_of(mirror).figures()
        assert figures["mirrorBehindBytes"] == "0"
        assert figures["mirrorCluster"] == CLUSTER
        assert figures["mirrorProblem"] == ""
        assert mirror.store.log.end == source.store.log.end  # it has appended nothing by itself


async def test_a_mirror_follows_the_next_master_and_goes_on_after_a_kill(tmp_path: Path) -> None:
    async with clusters(tmp_path) as both:
        source = await both.first.start("a")
        successor = await both.first.start("b")
        await both.first.settled(2)
        await send(source, range(10))
        mirror = await both.mirror()
        await follows(mirror, source)
        directory = await both.second.crash(mirror)
        await send(source, range(10, 20))
        mirror = await both.mirror(directory)
        await follows(mirror, source)
        await both.first.crash(source)
        await until(lambda: successor.role.now.is_master and not successor.role.barrier)
        await send(successor, range(20, 30))
        await follows(mirror, successor)
        assert len(mirror.store.epochs.epochs) == 2
        assert bodies(mirror) == list(range(30))
        # Whoever starts it without the setting promotes it, too.
        directory = await both.second.stop(mirror)
        master = await both.second.start(directory, broker_cluster_name=OTHER)
        await until(lambda: master.role.now.is_master and not master.role.barrier)
        await send(master, range(30, 32))
        assert bodies(master) == list(range(32))


async def test_a_killed_mirror_continues_in_the_middle_of_the_stream(tmp_path: Path) -> None:
    files = {"log_segment_bytes": 128 * 1024, "queue_file_bytes": 4000}
    async with clusters(tmp_path) as both:
        source = await both.first.start("a", store=files)
        settings = {
            "controller_mode": True,
            "controller_addr": format_address(*both.second.controller.address),
            "namesrv_addr": both.second.names,
        }
        directory = tmp_path / "second" / "m"
        process, _ = await start_killable_broker(
            directory, "ASYNC_FLUSH", **settings, **mirroring(both.first, OTHER)
        )
        is_killed = asyncio.Event()

        async def send_until_killed() -> int:
            sent = 0
            while not is_killed.is_set():
                await send(source, range(sent, sent + 10), size=1000)
                sent += 10
            return sent

        try:
            await until(lambda: source.replication.master.links)
            sending = asyncio.create_task(send_until_killed())
            await until(lambda: source.replication.master.links[0].acknowledged > 300_000)
        finally:
            process.kill()
            await process.wait()
            is_killed.set()
        sent = await sending
        mirror = await both.mirror("m", store=files)
        await follows(mirror, source)
        assert mirror.store.queues.max_offset(TOPIC, 0) == sent


async def test_a_promoted_mirror_goes_on_and_the_old_cluster_is_turned_into_its_mirror_and_back(
    tmp_path: Path, error_logs: ErrorLogs
) -> None:
    async with clusters(tmp_path) as both:
        old = await both.first.start("a")
        await send(old, range(10))
        await commit(old, 4)
        mirror = await both.mirror()
        await follows(mirror, old)

        # The first cluster takes messages that the second one never gets.
        mirror_directory = await both.second.stop(mirror)
        await send(old, range(100, 105))
        lost_end = old.store.log.end
        old_directory = await both.first.crash(old)
        mirror = await both.mirror(mirror_directory)
        async with BrokerClient(mirror.address) as client:
            refused = await client.refusal(PromoteMirror())
            assert "messages might be lost" in (refused.remark or "")
        promoted = await promote(mirror, accept_loss=True)
        assert promoted.master
        assert promoted.epoch == 1001
        assert mirror.role.now.is_master
        end = promoted.log_end
        assert mirror.tables.offsets.query(GROUP, TOPIC, 0) == 4
        await until(lambda: not mirror.role.barrier)
        await send(mirror, range(10, 20))

        # It is still so after a restart, though nobody has changed its settings.
        await both.second.stop(mirror)
        new = await both.mirror(mirror_directory)
        await until(lambda: new.role.now.is_master and not new.role.barrier)
        await send(new, range(20, 30))
        assert bodies(new) == list(range(30))

        # The old cluster's broker becomes a mirror: what only it had is cut off, and kept.
        old = await both.first.start(old_directory, **mirroring(both.second, CLUSTER))
        await follows(old, new)
        assert side_of(old).cut == (end, lost_end)
        error_logs.expect("messages that the cluster it mirrors never had: they are cut off")
        (kept,) = old.store.cutting.kept_as
        assert b"104" in kept.read_bytes()
        assert bodies(old) == list(range(30))

        # And back, without loss.
        await commit(new, 15)
        await follows(old, new)
        back = await promote(old)
        assert back.master
        assert back.log_end == new.store.log.end
        assert back.epoch is not None
        assert back.epoch > new.store.epochs.newest
        await until(lambda: not old.role.barrier)
        assert old.tables.offsets.query(GROUP, TOPIC, 0) == 15
        await send(old, range(30, 32))
        assert bodies(old) == list(range(32))


async def test_a_newer_log_and_a_foreign_log_are_not_cut(tmp_path: Path, error_logs: ErrorLogs) -> None:
    async with clusters(tmp_path) as both:
        source = await both.first.start("a")
        await send(source, range(10))
        mirror = await both.mirror()
        await follows(mirror, source)
        await promote(mirror)
        await until(lambda: mirror.role.now.is_master and not mirror.role.barrier)
        await send(mirror, range(10, 15))
        end = mirror.store.log.end
        directory = await both.second.stop(mirror)
        # Started once without the setting, it may be made a mirror again.
        mirror = await both.second.start(directory, broker_cluster_name=OTHER)
        await until(lambda: mirror.role.now.is_master)
        await both.second.stop(mirror)
        mirror = await both.mirror(directory)
        await until(lambda: side_of(mirror).problem)
        assert "this one is newer" in side_of(mirror).problem
        assert mirror.store.log.end == end
        error_logs.expect("this one is newer")

        stranger = await both.second.start("x", broker_name="other", broker_cluster_name=OTHER)
        await send(stranger, range(7))
        end = stranger.store.log.end
        await both.second.stop(stranger)
        namesake = await both.first.start("y", broker_name="other")
        await send(namesake, range(8))
        stranger = await both.mirror("x", broker_name="other")
        await until(lambda: side_of(stranger).problem)
        assert "not copies of one log" in side_of(stranger).problem
        assert stranger.store.log.end == end
        error_logs.expect("not copies of one log")


async def test_the_brokers_of_a_group_are_promoted_together_and_deliver_what_was_delayed(
    tmp_path: Path,
) -> None:
    async with clusters(tmp_path) as both:
        source = await both.first.start("a", store={"message_delay_levels": "1h"})
        await send(source, range(5))
        async with BrokerClient(source.address) as client:
            await client.send(b"5", properties={"DELAY": "1"})
        quick = {"store": {"message_delay_levels": "1s"}}
        first, second = [
            await both.mirror(each, broker_id=number, **quick) for number, each in enumerate("mn")
        ]
        for each in (first, second):
            await follows(each, source)

        async def mqadmin_says(*words: str) -> Any:
            at = ("-n", both.second.names, "-c", OTHER, "--json")
            done = await asyncio.to_thread(CliRunner().invoke, mqadmin, [*words, *at])
            assert done.exit_code == 0, done.output
            return json.loads(done.stdout)

        status = await mqadmin_says("mirrorStatus")
        assert len(status) == 2
        for each in status.values():
            assert (each["cluster"], each["behindBytes"], each["problem"]) == (CLUSTER, 0, "")
        assert bodies(first) == list(range(5))  # it waits for its time, and for a master
        promoted = await mqadmin_says("promoteMirror")
        assert [each["role"] for each in promoted.values()] == ["master", "replica"]
        assert [each["missingBytes"] for each in promoted.values()] == [0, 0]
        master = await both.second.settled(2)
        assert {each["epoch"] for each in promoted.values()} == {master.role.now.epoch}
        await until(lambda: len(bodies(master)) == 6)
        replica = second if master is first else first
        await caught_up(replica, master)
        assert log_of(replica.store) == log_of(master.store)


async def test_a_mirror_begins_where_its_master_does_and_serves_the_rest_from_the_tier(
    tmp_path: Path,
) -> None:
    async with clusters(tmp_path) as both:
        source = await both.first.start("a", **tier(tmp_path))
        await history(source)
        # A tier is that of a cluster's name and a broker's.
        mirror = await both.mirror(**tier(tmp_path), broker_cluster_name=CLUSTER)
        await knows(mirror, source)
        assert mirror.store.log.start == source.store.log.start > 0
        await check(mirror)
        # The next master writes the tier, and the old one finds that out.
        assert (await promote(mirror)).master
        await until(lambda: mirror.tiering is not None and mirror.tiering.figures()["tierEpoch"] == "1001")
        await check(mirror)


async def test_a_mirror_erases_what_the_first_cluster_has_erased_while_it_was_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(erasing, "_LOOK_S", 0.02)

    def is_erased(broker: Broker) -> bool:
        return bool(broker.store.erasing.all()) and not broker.store.erasing.unfinished()

    async with clusters(tmp_path) as both:
        source = await both.first.start("a")
        await send(source, range(3))
        async with BrokerClient(source.address) as client:
            await client.send(b"3", properties={"KEYS": "who"})
        mirror = await both.mirror()
        await follows(mirror, source)
        directory = await both.second.stop(mirror)
        async with BrokerClient(source.address) as client:
            await client.call(EraseMessages(topic=TOPIC, keys="who"))
        await until(lambda: is_erased(source))
        mirror = await both.mirror(directory)
        await until(lambda: is_erased(mirror))
        await send(source, range(4, 6))
        await follows(mirror, source)


async def test_a_mirror_copies_over_tls(tmp_path: Path) -> None:
    settings = tls_of(Authority(tmp_path), "broker-a", ha_tls_names="broker-a")
    async with clusters(tmp_path) as both:
        source = await both.first.start("a", **settings)
        await send(source, range(5))
        mirror = await both.mirror(**settings)
        await follows(mirror, source)
        assert source.replication.master.links[0].certificate_names[0] == "broker-a"


async def test_a_mirror_proves_who_it_is_and_takes_the_accounts_over(tmp_path: Path) -> None:
    async with clusters(tmp_path) as both:
        source = await both.first.start("a", **SECURE)
        async with access_client(source.address, ROOT) as root:
            await root.call(user_creation(ALICE))
            await root.create_topic()
            for number in range(5):
                await root.send(b"%d" % number)
        mirror = await both.mirror(**SECURE)
        await follows(mirror, source)
        assert [each.is_proven for each in source.replication.master.links] == [True]
        async with access_client(mirror.address, ALICE) as alice:
            refusal = await alice.refusal(pull())
            assert refusal.code == ResponseCode.NO_PERMISSION  # she is known, and has no rights
        assert (await promote(mirror, who=ROOT)).master
        await until(lambda: not mirror.role.barrier)
        async with access_client(mirror.address, ROOT) as root:
            await root.send(b"5")
        assert bodies(mirror) == list(range(6))


async def test_a_mirror_that_was_away_for_longer_than_the_log_is_kept_says_so(
    tmp_path: Path, error_logs: ErrorLogs
) -> None:
    async with clusters(tmp_path) as both:
        source = await both.first.start("a", **tier(tmp_path))
        await send(source, range(3))
        mirror = await both.mirror(**tier(tmp_path))
        await follows(mirror, source)
        log_before = log_of(mirror.store)
        directory = await both.second.stop(mirror)
        await history(source)
        mirror = await both.mirror(directory, **tier(tmp_path))
        await until(lambda: side_of(mirror).problem)
        assert "the files in between are deleted there" in side_of(mirror).problem
        error_logs.expect("the files in between are deleted there")
        assert log_of(mirror.store) == log_before
