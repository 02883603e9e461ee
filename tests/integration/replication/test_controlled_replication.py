"""Brokers under a controller, over real sockets: one of them leads, and nothing acknowledged is lost."""

import asyncio
import re
import threading
from pathlib import Path
from typing import Any
from unittest.mock import Mock, patch

import pytest
from tests.support.broker_cluster import CLUSTER, TIMEOUT_S, BrokerClient, running_broker
from tests.support.controlled_group import controlled_group, members_of, side_of
from tests.support.replicas import caught_up, http_get, log_of, until
from tests.support.small_stores import bodies_of, messages_in

from pyromq.admin import brokers, controllers
from pyromq.admin.cluster import Cluster
from pyromq.broker.broker import Broker
from pyromq.broker.replication import replica_link
from pyromq.broker.replication.epoch_master_link import EpochMasterLink
from pyromq.broker.replication.epoch_replica_link import EpochReplicaLink
from pyromq.broker.replication.file_sending import FileSending
from pyromq.controller.file_store import FileStore
from pyromq.errors import Refused, TransportError
from pyromq.filesystem import Files
from pyromq.protocol.catalogue import Request
from pyromq.protocol.codes import ResponseCode
from pyromq.protocol.names import lite_queue
from pyromq.protocol.properties import LITE_EPOCH, LITE_OFFSET, LITE_TOPIC
from pyromq.protocol.requests.controller import GetReplicaInfo
from pyromq.protocol.requests.replication import GetEpochs
from pyromq.protocol.requests.routes import GetRoute
from pyromq.remoting.addresses import format_address
from pyromq.remoting.dialer import Dialer
from pyromq.store.log.epochs import Epoch
from pyromq.testing.held_ports import held_port


async def send(broker: Broker, numbers: range) -> None:
    async with BrokerClient(broker.address) as client:
        await client.create_topic()
        for number in numbers:
            await client.send(b"%d" % number, queue_id=0)


def bodies(broker: Broker) -> list[int]:
    found = broker.store.read("Orders", 0, 0, 1000)
    return [int(message.body) for message in messages_in(found)]


async def test_the_first_broker_leads_and_the_others_come_in_sync(tmp_path: Path) -> None:
    async with controlled_group(tmp_path) as group:
        first = await group.start("a")
        assert first.role.now.is_master
        others = [await group.start(each) for each in "bc"]
        assert await group.settled(3) is first
        assert [each.role.now.broker_id for each in others] == [2, 3]
        await send(first, range(20))
        for each in others:
            await caught_up(each, first)
            assert log_of(each.store) == log_of(first.store)
            assert bodies(each) == list(range(20))
        assert (tmp_path / "b" / "brokerIdentity").read_text() == "TestCluster#broker-a#2"
        async with BrokerClient(first.address) as client:
            epochs = (await client.call(GetEpochs())).body
        assert [(each.epoch, each.start_offset) for each in epochs.epoch_list] == [(1, 0)]


async def test_a_replica_far_behind_gets_confirmed_bytes_of_every_epoch_from_the_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replica_link, "_FAR_BYTES", 0)
    sends = Mock(wraps=FileSending.send)
    monkeypatch.setattr(FileSending, "send", lambda *arguments: sends(*arguments))
    async with controlled_group(tmp_path) as group:
        old, new = [await group.start(each) for each in "ab"]
        await group.settled(2)
        await send(old, range(20))
        await caught_up(new, old)
        await group.crash(old)
        await until(lambda: new.role.now.is_master and not new.role.barrier)
        await send(new, range(20, 40))
        count = sends.call_count
        empty = await group.start("c")
        await group.settled(2)
        await caught_up(empty, new)
        assert log_of(empty.store) == log_of(new.store)
        assert empty.store.epochs.epochs == new.store.epochs.epochs
        assert len(empty.store.epochs.epochs) == 2
        assert sends.call_count > count


async def test_a_replica_takes_over_and_the_old_master_cuts_off_what_nobody_else_has(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with controlled_group(tmp_path) as group:
        old = await group.start("a")
        for name in "bc":
            await group.start(name)
        await group.settled(3)
        await send(old, range(10))
        for each in group.brokers:
            await caught_up(each, old)
        # Nobody else gets what comes now: the links are closed.
        await old.replication.master.close()
        side_of(old).lead(1, frozenset({1}), 99)
        end = old.store.log.end
        await send(old, range(100, 105))
        assert old.store.log.end > end
        directory = await group.crash(old)

        new = await group.settled(2)
        assert new.role.now.epoch == 2
        await send(new, range(10, 20))
        returned = await group.start(directory)
        await group.settled(3)
        await caught_up(returned, new)
        assert log_of(returned.store) == log_of(new.store)
        assert bodies(returned) == list(range(20))
        assert returned.store.epochs.epochs == new.store.epochs.epochs == (Epoch(1, 0), Epoch(2, end))
        # An operator finds what was cut off: it is kept, and the log names the file.
        (told,) = [line for line in caplog.messages if line.startswith("the end of the log was cut off")]
        kept = [Path(each) for each in told.partition("kept=")[2].split(", ")]
        assert {each.parent.name for each in kept} == {"damaged"}
        content = b"".join(each.read_bytes() for each in kept)
        assert all(b"%d" % number in content for number in range(100, 105))


class HeldCuts(Files):
    """Once the loop has taken back the end of a log, the disk takes its time."""

    def __init__(self) -> None:
        super().__init__()
        self.is_cut = False
        self.is_held, self.let = threading.Event(), threading.Event()

    def zero_after(self, path: Path, position: int, allocate_bytes: int = 0) -> None:
        super().zero_after(path, position, allocate_bytes)
        self.is_cut |= threading.current_thread() is threading.main_thread()

    def sync(self, path: Path) -> None:
        if self.is_cut:
            self.is_held.set()
            assert self.let.wait(TIMEOUT_S)
        super().sync(path)


@pytest.mark.parametrize("is_interrupted", [False, True])
async def test_a_replica_that_cuts_its_log_answers_meanwhile(tmp_path: Path, is_interrupted: bool) -> None:
    async with controlled_group(tmp_path) as group:
        old, new = [await group.start(name) for name in "ab"]
        await group.settled(2)
        await send(old, range(10))
        await caught_up(new, old)
        await old.replication.master.close()
        side_of(old).lead(1, frozenset({1}), 99)
        await send(old, range(100, 105))
        directory = await group.crash(old)
        await until(lambda: new.role.now.is_master and not new.role.barrier)
        files = HeldCuts()
        returned = await group.start(directory, files=files)
        await until(files.is_held.is_set)
        link = returned.replication.replica.link
        assert isinstance(link, EpochMasterLink)
        assert not link.is_aligned
        async with BrokerClient(returned.address) as client:
            # It cannot know yet what is confirmed: readers go to the master.
            assert (await client.pull()).answer.code == ResponseCode.PULL_RETRY_IMMEDIATELY
        assert bodies(returned) == list(range(10))
        files.let.set()
        if is_interrupted:  # what is left of the cut is done at once
            link.close(TransportError("lost"))
        await group.settled(2)
        await send(new, range(10, 20))
        await caught_up(returned, new)
        assert log_of(returned.store) == log_of(new.store)
        assert bodies(returned) == list(range(20))
        async with BrokerClient(returned.address) as client:
            assert [int(body) for body in (await client.pull()).bodies] == list(range(20))


async def test_name_servers_are_told_who_leads(tmp_path: Path) -> None:
    async with controlled_group(tmp_path) as group:
        first = await group.start("a")
        await group.start("b")
        await group.settled(2)
        await send(first, range(1))
        await caught_up(group.brokers[1], first)
        await until(lambda: group.brokers[1].replication.table_sync.copies > 0)
        dialer = Dialer()

        async def addresses() -> dict[int, str]:
            route = (await dialer.call(group.names, GetRoute(topic="Orders"), 60)).body
            (broker,) = route.broker_datas
            return dict(broker.broker_addrs)

        assert await addresses() == {0: first.advertised_address, 2: group.brokers[1].advertised_address}
        await group.crash(first)
        new = await group.settled(1)
        found: dict[int, str] = {}
        while found != {0: new.advertised_address}:
            found = await addresses()
        await dialer.close()


async def test_a_master_that_waits_for_two_acknowledges_nothing_alone(tmp_path: Path) -> None:
    async with controlled_group(tmp_path) as group:
        master = await group.start("a", in_sync_replicas=2, replica_timeout_ms=50)
        async with BrokerClient(master.address) as client:
            await client.create_topic()
            answer = await client.send(b"0", queue_id=0)
            assert answer.code == ResponseCode.FLUSH_SLAVE_TIMEOUT
            await group.start("b", in_sync_replicas=2)
            await group.settled(2)
            assert (await client.send(b"1", queue_id=0)).code == ResponseCode.SUCCESS


async def test_a_master_with_too_few_in_sync_refuses_messages(tmp_path: Path) -> None:
    async with controlled_group(tmp_path) as group:
        master = await group.start("a", min_in_sync_replicas=2)
        async with BrokerClient(master.address) as client:
            await client.create_topic()
            await until(lambda: master.role.barrier)
            with pytest.raises(Refused, match="in-sync replicas not enough"):
                await client.send(b"0", queue_id=0)
            await group.start("b")
            await group.settled(2)
            await until(lambda: not master.role.barrier)
            await client.send(b"1", queue_id=0)


async def test_a_master_that_lost_its_controller_acknowledges_nothing_alone(tmp_path: Path) -> None:
    async with controlled_group(tmp_path) as group:
        master = await group.start("a", all_in_sync=False)
        async with BrokerClient(master.address) as client:
            await client.create_topic()
            await client.send(b"0", queue_id=0)
            side_of(master).lease.suspend()
            side_of(master).look()
            with pytest.raises(Refused, match="lost its controller"):
                await client.send(b"1", queue_id=0)
            await until(lambda: not master.role.barrier)  # the next heartbeat is answered
            await client.send(b"2", queue_id=0)
            assert members_of(master) == {1}


async def test_heartbeats_to_a_controller_that_leads_no_more_are_worth_nothing(tmp_path: Path) -> None:
    async with controlled_group(tmp_path) as group:
        seldom: dict[str, Any] = {"controller_poll_ms": 3_600_000, "leader_poll_ms": 3_600_000}
        master = await group.start("a", all_in_sync=False, controller_timeout_ms=1000, **seldom)
        async with BrokerClient(master.address) as client:
            await client.create_topic()
            await client.send(b"0", queue_id=0)
            with patch.object(FileStore, "is_leading", False):
                await until(lambda: "lost its controller" in master.role.barrier)
            await until(lambda: not master.role.barrier)
            await client.send(b"1", queue_id=0)


async def test_an_operator_sees_the_group_and_chooses_its_master(tmp_path: Path) -> None:
    async with controlled_group(tmp_path) as group:
        first = await group.start("a")
        second = await group.start("b", metrics_exporter="PROM", metrics_port=0)
        await group.settled(2)
        await send(first, range(5))
        await caught_up(second, first)
        leader = format_address(*group.controller.address)
        async with Cluster(group.names) as cluster:
            known = await controllers.replicas(cluster, [leader], ["broker-a"])
            assert sorted(each.broker_id or 0 for each in known["broker-a"].in_sync_replicas) == [1, 2]
            elected = await controllers.elect_master(cluster, [leader], CLUSTER, "broker-a", 2)
            assert elected.master_address == second.advertised_address
        await until(lambda: second.role.now.is_master and not first.role.now.is_master)
        await group.settled(2)
        await send(second, range(5, 10))
        await caught_up(first, second)
        assert bodies(first) == list(range(10))
        async with Cluster(group.names) as cluster:
            for each in (first, second):
                found = await controllers.epochs(cluster, each.advertised_address)
                assert [epoch.epoch for epoch in found.epoch_list] == [1, 2]
            told = await brokers.ha_status(cluster, second.advertised_address)
            assert [each.broker_id for each in told.ha_connection_info] == [1]
        page = await http_get(second.metrics_address, "/metrics")
        assert re.search(r"pyromq_broker_master_epoch{.*} 2", page)
        assert re.search(r"pyromq_broker_in_sync_set{.*} 2", page)
        assert "200" in (await http_get(second.metrics_address, "/ready")).splitlines()[0]


async def test_a_learner_has_everything_and_is_never_in_sync_nor_master(tmp_path: Path) -> None:
    async with controlled_group(tmp_path) as group:
        starting = asyncio.create_task(group.start("learner", learner=True))
        await until_answered(group.controller.address, GetReplicaInfo(broker_name="broker-a"))
        master = await group.start("a")  # the learner came first, and did not stand for election
        learner = await starting
        await send(master, range(10))
        await caught_up(learner, master)
        assert log_of(learner.store) == log_of(master.store)
        assert members_of(master) == {master.replication.session._own_id}  # type: ignore[union-attr]
        assert side_of(master).wanted_set() is None
        directory = await group.crash(master)
        await until(lambda: not learner.replication.replica.is_connected)
        returned = await group.start(directory)
        await until(lambda: returned.role.now.is_master)
        assert not learner.role.now.is_master
        await send(returned, range(10, 20))
        await caught_up(learner, returned)
        assert bodies(learner) == list(range(20))


async def until_answered(address: tuple[str, int], request: Request[Any]) -> None:
    """Until a request is not refused any more."""
    async with BrokerClient(address) as client, asyncio.timeout(TIMEOUT_S):
        while True:
            try:
                await client.call(request)
            except Refused:
                await asyncio.sleep(0.01)
            else:
                return


async def test_a_broker_without_a_controller_is_not_ready_and_takes_no_messages(tmp_path: Path) -> None:
    with held_port() as port:
        settings: dict[str, Any] = {
            "controller_mode": True,
            "controller_addr": f"127.0.0.1:{port}",
            "metrics_exporter": "PROM",
            "metrics_port": 0,
        }
        with patch("pyromq.broker.broker._FIRST_ROLE_S", 0.1):
            async with running_broker(tmp_path, **settings) as broker:
                page = await http_get(broker.metrics_address, "/ready")
                assert "503" in page.splitlines()[0]
                assert "no controller confirms the role of this broker" in page
                async with BrokerClient(broker.address) as client:
                    with pytest.raises(Refused, match="only the master accepts messages"):
                        await client.send(b"0", queue_id=0)


async def test_a_master_that_stops_answers_its_senders_and_is_replaced_before_it_has_stopped(
    tmp_path: Path,
) -> None:
    async with controlled_group(tmp_path) as group:
        master = await group.start("a", replica_timeout_ms=3_600_000, shutdown_wait_seconds=3600)
        replica = await group.start("b")
        await group.settled(2)
        await send(master, range(3))
        async with BrokerClient(master.address) as client:
            with patch.object(EpochReplicaLink, "send_more"):
                end = master.store.log.end
                sending = asyncio.create_task(client.send(b"3", queue_id=0))
                await until(lambda: master.store.log.end > end)
                stopping = asyncio.create_task(group.stop(master))
                await until(lambda: master._started.servers[0]._group.is_draining)
                await asyncio.sleep(0)
                assert not sending.done()
            # The replica gets the message now.
            side_of(master).pump()
            assert (await sending).code == ResponseCode.SUCCESS
            await until(lambda: replica.role.now.is_master)
        await stopping
        assert bodies(replica) == list(range(4))


async def test_who_may_append_to_a_lite_topic_is_known_to_the_next_master(tmp_path: Path) -> None:
    on = {"store": {"light_queues": True, "multi_dispatch": True}}

    async def append(to: Broker, body: bytes, epoch: int, offset: int) -> None:
        named = {LITE_TOPIC: "chat", LITE_EPOCH: str(epoch), LITE_OFFSET: str(offset)}
        async with BrokerClient(to.address) as client:
            await client.send(body, queue_id=0, properties=named)

    async with controlled_group(tmp_path) as group:
        first = await group.start("a", **on)
        second = await group.start("b", **on)
        assert await group.settled(2) is first
        async with BrokerClient(first.address) as client:
            await client.create_topic(attributes="+message.type=LITE")
        await append(first, b"one", 1, 0)
        await append(first, b"two", 3, 1)
        await until(lambda: "Orders" in second._started.tables.topics)
        await group.crash(first)
        assert await group.settled(1) is second
        for epoch, offset, code in (
            (2, 2, ResponseCode.LITE_FENCED),
            (0, 2, ResponseCode.LITE_FENCED),
            (3, 1, ResponseCode.LITE_OFFSET_TAKEN),
        ):
            with pytest.raises(Refused) as refused:
                await append(second, b"late", epoch, offset)
            assert refused.value.code == code
        await append(second, b"three", 3, 2)
        again = await group.start("a", **on)
        assert await group.settled(2) is second
        await caught_up(again, second)
        for broker in (second, again):
            assert bodies_of(broker.store, lite_queue("Orders", "chat")) == [b"one", b"two", b"three"]
