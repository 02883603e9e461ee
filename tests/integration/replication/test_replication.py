"""A master and replicas over real sockets: the same log, the right answers, nothing silently wrong."""

import asyncio
import re
import struct
from pathlib import Path
from unittest.mock import Mock

import pytest
from tests.conftest import ErrorLogs
from tests.support.broker_cluster import BrokerClient, running_broker
from tests.support.replicas import Group, broker_group, caught_up, http_get, log_of, until

from pyromq.broker.broker import Broker
from pyromq.broker.replication import replica_link
from pyromq.broker.replication.file_sending import FileSending
from pyromq.broker.settings import BrokerSettings
from pyromq.protocol.codes import ResponseCode
from pyromq.protocol.replication import HEADER_BYTES, encode_header, encode_report
from pyromq.protocol.requests.replication import GetHaStatus
from pyromq.protocol.requests.routes import GetRoute
from pyromq.remoting.addresses import format_address
from pyromq.remoting.dialer import Dialer


async def send_many(broker: Broker, count: int, size: int = 500) -> None:
    async with BrokerClient(broker.address) as client:
        await client.create_topic()
        for number in range(count):
            await client.send(b"%d " % number + b"x" * size, queue_id=number % 4)


async def test_a_replica_copies_the_log_and_serves_its_queues(tmp_path: Path) -> None:
    async with broker_group(tmp_path) as group, group.master() as master, group.replica() as replica:
        await send_many(master, 50)
        await caught_up(replica, master)
        assert log_of(replica.store) == log_of(master.store)
        assert [replica.store.queues.max_offset("Orders", each) for each in range(4)] == [13, 13, 12, 12]


async def test_an_empty_replica_gets_the_whole_log_of_its_master(tmp_path: Path) -> None:
    async with broker_group(tmp_path) as group, group.master(store={"log_segment_bytes": 65_536}) as master:
        await send_many(master, 400)
        assert master.store.log.end > 3 * 65_536
        async with group.replica(store={"log_segment_bytes": 65_536}) as replica:
            await caught_up(replica, master)
            assert replica.store.log.start == 0
            assert log_of(replica.store) == log_of(master.store)
        async with group.replica(2, store={"log_segment_bytes": 65_536}) as replica:
            await caught_up(replica, master)


async def test_an_empty_replica_may_begin_with_the_newest_file(tmp_path: Path) -> None:
    async with (
        broker_group(tmp_path) as group,
        group.master(store={"log_segment_bytes": 65_536}, sync_from_last_file=True) as master,
    ):
        await send_many(master, 400)
        async with group.replica(store={"log_segment_bytes": 65_536}) as replica:
            await caught_up(replica, master)
            assert replica.store.log.start == master.store.log.end // 65_536 * 65_536


async def test_a_replica_continues_where_it_was_after_either_side_restarted(tmp_path: Path) -> None:
    async with broker_group(tmp_path) as group:
        async with group.master() as master:
            async with group.replica() as replica:
                await send_many(master, 20)
                await caught_up(replica, master)
            await send_many(master, 20)
        async with group.replica() as replica, group.master() as master:
            await caught_up(replica, master)
            await send_many(master, 20)
            await caught_up(replica, master)
            assert log_of(replica.store) == log_of(master.store)


async def test_the_reports_of_a_replica_with_synchronous_flush_are_safe_on_its_disk(tmp_path: Path) -> None:
    async with (
        broker_group(tmp_path) as group,
        group.master(broker_role="SYNC_MASTER", in_sync_replicas=2) as master,
        group.replica(store={"flush_disk_type": "SYNC_FLUSH"}) as replica,
        BrokerClient(master.address) as client,
    ):
        await until(lambda: replica_count(master) == 1)
        await client.create_topic()
        for number in range(5):
            await client.send(b"%d" % number)
            assert replica.store.flushes.offset == master.store.log.end


def replica_count(master: Broker) -> int:
    return len(master.replication.master.links)


async def test_a_sync_master_answers_when_enough_replicas_have_the_message(tmp_path: Path) -> None:
    async with (
        broker_group(tmp_path) as group,
        group.master(broker_role="SYNC_MASTER", in_sync_replicas=3) as master,
        group.replica(1) as first,
        group.replica(2) as second,
        BrokerClient(master.address) as client,
    ):
        await until(lambda: replica_count(master) == 2)
        await client.create_topic()
        for number in range(10):
            await client.send(b"%d" % number, properties={"UNIQ_KEY": f"k{number}"})
            end = master.store.log.end
            assert first.store.log.end == second.store.log.end == end


@pytest.mark.parametrize("properties", [None, {"UNIQ_KEY": "A1"}], ids=["general", "fast path"])
async def test_a_sync_master_without_enough_replicas_says_so_at_once(
    tmp_path: Path, properties: dict[str, str] | None
) -> None:
    async with (
        broker_group(tmp_path) as group,
        group.master(broker_role="SYNC_MASTER", in_sync_replicas=2, replica_timeout_ms=600_000) as master,
        BrokerClient(master.address) as client,
    ):
        await client.create_topic()
        answer = await client.send(b"alone", properties=properties)
        assert answer.code == ResponseCode.SLAVE_NOT_AVAILABLE
        assert (await client.pull()).bodies == [b"alone"]  # it is stored, and consumers see it
        answer = await client.send(b"unheeded", properties={"WAIT": "false", **(properties or {})})
        assert answer.code == ResponseCode.SUCCESS


@pytest.mark.parametrize("properties", [None, {"UNIQ_KEY": "A1"}], ids=["general", "fast path"])
async def test_a_sync_master_whose_replica_is_late_says_so(
    tmp_path: Path, properties: dict[str, str] | None
) -> None:
    async with (
        broker_group(tmp_path) as group,
        group.master(broker_role="SYNC_MASTER", in_sync_replicas=2, replica_timeout_ms=100) as master,
        BrokerClient(master.address) as client,
    ):
        await client.create_topic()
        reader, writer = await asyncio.open_connection(*master.replication.master.address)
        writer.write(encode_report(0))
        await until(lambda: replica_count(master) == 1)
        answer = await client.send(b"late", properties=properties)
        assert answer.code == ResponseCode.FLUSH_SLAVE_TIMEOUT
        assert (await client.pull()).bodies == [b"late"]
        header = await reader.readexactly(HEADER_BYTES)
        offset, size = struct.unpack(">qi", header)
        assert await reader.readexactly(size) == bytes(master.store.log.bytes_at(offset, size))
        writer.close()


async def test_a_sync_master_that_needs_nobody_answers_alone(tmp_path: Path) -> None:
    """Apache's default of inSyncReplicas is 1: the master itself."""
    async with (
        broker_group(tmp_path) as group,
        group.master(broker_role="SYNC_MASTER") as master,
        BrokerClient(master.address) as client,
    ):
        await client.create_topic()
        await client.send(b"one")


@pytest.mark.parametrize(
    ("sent", "reason"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", "is not a replica of this log"),
        (encode_report(1 << 40), "is not a replica of this log"),
        (encode_report(-5), "log offset -5"),
    ],
)
async def test_garbage_on_the_ha_port_ends_the_connection_and_acknowledges_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, sent: bytes, reason: str
) -> None:
    async with (
        broker_group(tmp_path) as group,
        group.master(broker_role="SYNC_MASTER", in_sync_replicas=2, replica_timeout_ms=100) as master,
        BrokerClient(master.address) as client,
    ):
        await client.create_topic()
        reader, writer = await asyncio.open_connection(*master.replication.master.address)
        writer.write(sent)
        assert await reader.read() == b""
        assert reason in caplog.text
        assert (await client.send(b"alone")).code == ResponseCode.SLAVE_NOT_AVAILABLE
        writer.close()


async def test_a_peer_that_acknowledges_what_it_was_not_sent_is_disconnected(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with broker_group(tmp_path) as group, group.master() as master:
        await send_many(master, 3)
        end = master.store.log.end
        reader, writer = await asyncio.open_connection(*master.replication.master.address)
        writer.write(encode_report(end))
        await until(lambda: replica_count(master) == 1)
        writer.write(encode_report(end + 1))
        assert await reader.read() == b""
        assert f"acknowledges the log up to {end + 1}, but was sent only up to {end}" in caplog.text
        writer.close()


async def test_a_silent_replica_is_disconnected_and_heartbeats_keep_a_living_one(tmp_path: Path) -> None:
    async with (
        broker_group(tmp_path) as group,
        group.master(ha_silence_ms=900, ha_heartbeat_ms=100) as master,
        group.replica(ha_silence_ms=900, ha_heartbeat_ms=100) as replica,
    ):
        await until(lambda: replica_count(master) == 1)
        link = master.replication.master.links[0]
        reader, writer = await asyncio.open_connection(*master.replication.master.address)
        writer.write(encode_report(0))
        heartbeats = await reader.read()  # until the master has had enough
        assert heartbeats == struct.pack(">qi", 0, 0) * (len(heartbeats) // HEADER_BYTES) != b""
        assert master.replication.master.links == [link]
        assert replica.replication.replica.is_connected
        writer.close()


async def test_only_allowed_networks_get_the_log(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with broker_group(tmp_path) as group, group.master(ha_allowed_networks="10.0.0.0/8") as master:
        reader, writer = await asyncio.open_connection(*master.replication.master.address)
        assert await reader.read() == b""
        assert "its address is not in haAllowedNetworks" in caplog.text
        writer.close()


# Logs that do not agree


async def parted_logs(group: Group, master_has: int, replica_has: int) -> None:
    """Two stores that begin alike and differ then."""
    async with group.master() as master, group.replica() as replica:
        await send_many(master, 5)
        await caught_up(replica, master)
    for directory, count in (("master", master_has), ("replica1", replica_has)):
        async with group.master(directory) as broker:
            await send_many(broker, count, 300 if directory == "master" else 411)


@pytest.mark.parametrize(
    ("master_has", "replica_has", "reason"),
    [
        (0, 3, "master has lost messages"),
        (40, 3, "have different messages at log offset"),
    ],
)
async def test_a_replica_with_messages_that_its_master_lost_does_not_diverge(
    tmp_path: Path, error_logs: ErrorLogs, master_has: int, replica_has: int, reason: str
) -> None:
    async with broker_group(tmp_path) as group:
        await parted_logs(group, master_has, replica_has)
        async with group.master() as master, group.replica() as replica:
            before = log_of(replica.store)
            await until(lambda: replica.replication.replica.disagreement)
            assert reason in replica.replication.replica.disagreement
            await send_many(master, 60)
            assert log_of(replica.store) == before
            assert replica_count(master) == 0
        error_logs.expect_repeatedly("the master's log is not copied")


async def test_a_replica_older_than_its_masters_oldest_file_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, error_logs: ErrorLogs
) -> None:
    files = {"log_segment_bytes": 65_536}
    async with broker_group(tmp_path) as group:
        async with group.master(store=files) as master, group.replica(store=files) as replica:
            await send_many(master, 5)
            await caught_up(replica, master)
        async with group.master(store=files) as master:
            await send_many(master, 400)
        (tmp_path / "master" / "commitlog" / f"{0:020}").unlink()
        async with group.master(store=files) as master, group.replica(store=files) as replica:
            await until(lambda: replica.replication.replica.disagreement)
            assert "The files in between are deleted" in replica.replication.replica.disagreement
            reader, writer = await asyncio.open_connection(*master.replication.master.address)
            writer.write(encode_report(500))  # a replica that does not ask
            assert await reader.read() == b""
            assert "oldest file begins at 65536" in caplog.text
            writer.close()
        error_logs.expect("the master's log is not copied")


# Bad networks and bad peers


async def test_old_parts_of_the_log_are_read_from_the_disk_by_threads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replica_link, "_WARM_BYTES", 0)
    monkeypatch.setattr(replica_link, "_LOAD_BYTES", 40_000)
    files = {"log_segment_bytes": 65_536}
    async with broker_group(tmp_path) as group, group.master(store=files) as master:
        await send_many(master, 400)
        async with group.replica(store=files) as replica:
            await caught_up(replica, master)
            await send_many(master, 10)
            await caught_up(replica, master)
            assert log_of(replica.store) == log_of(master.store)


async def test_a_replica_far_behind_gets_the_log_from_its_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replica_link, "_FAR_BYTES", 0)
    monkeypatch.setattr(replica_link, "_FAR_FRAME_BYTES", 40_000)
    sends = Mock(wraps=FileSending.send)
    monkeypatch.setattr(FileSending, "send", lambda *arguments: sends(*arguments))
    files = {"log_segment_bytes": 65_536}
    async with broker_group(tmp_path) as group, group.master(store=files) as master:
        await send_many(master, 400)
        async with group.replica(store=files) as replica:
            await caught_up(replica, master)
            await send_many(master, 10)
            await caught_up(replica, master)
            assert log_of(replica.store) == log_of(master.store)
            (link,) = master.replication.master.links
            assert link.speed.total_bytes == master.store.log.end
    assert sends.call_count > 3


async def test_a_replica_ends_a_connection_on_which_no_log_comes_and_keeps_what_it_has(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    replies = [b"HTTP/1.1 400 Bad Request\r\n\r\n", encode_header(0, 8) + bytes(8), b""]
    reports: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        reports.append(await reader.readexactly(8))
        writer.write(replies[min(len(reports), len(replies)) - 1])
        await reader.read()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server, broker_group(tmp_path) as group:
        address = format_address(*server.sockets[0].getsockname()[:2])
        async with group.replica(ha_master_address=address, ha_silence_ms=500) as replica:
            await until(lambda: len(reports) > 3)
            assert set(reports) == {encode_report(0)}
            assert replica.store.log.end == 0
    for text in (
        "is this a master's HA port?",
        "the master's bytes at 0 are not a record",
        "nothing for 500 ms",
    ):
        assert text in caplog.text


async def test_replicas_are_registered_beside_their_master(tmp_path: Path) -> None:
    async with (
        broker_group(tmp_path) as group,
        group.master() as master,
        group.replica(3) as replica,
        BrokerClient(master.address) as client,
    ):
        await client.create_topic()
        await until(lambda: replica.replication.replica.is_connected)
        dialer = Dialer()
        route = (await dialer.call(group.names, GetRoute(topic="Orders"), 60)).body
        await dialer.close()
        assert route is not None
        (data,) = route.broker_datas
        assert data.broker_addrs == {0: master.advertised_address, 3: replica.advertised_address}


# Reading from replicas


async def test_a_master_refers_consumers_of_old_messages_to_a_replica_and_the_replica_sends_them_back(
    tmp_path: Path,
) -> None:
    async with (
        broker_group(tmp_path) as group,
        group.master(slave_read=True) as master,
        group.replica(slave_read=True) as replica,
        BrokerClient(master.address) as client,
        BrokerClient(replica.address) as reader,
    ):
        await send_many(master, 40)
        await caught_up(replica, master)
        await until(lambda: replica._started.tables.topics.get("Orders") is not None)
        master.store._reader._in_memory_bytes = 1000  # as on a machine with very little memory
        for _ in range(2):  # the second one on the fast path
            assert (await client.pull(max_msg_nums=1)).answer.suggest_which_broker_id == 1
        pulled = await reader.pull()
        assert len(pulled.bodies) == 10
        assert pulled.answer.suggest_which_broker_id == 0  # near the end of the replica's log


async def test_a_replica_near_its_master_moves_nobodys_offset(tmp_path: Path) -> None:
    """It may be behind: a consumer that is ahead of it asks the master instead of going back."""
    async with (
        broker_group(tmp_path) as group,
        group.replica() as replica,
        BrokerClient(replica.address) as reader,
    ):
        async with group.master() as master:
            await send_many(master, 4)
            await caught_up(replica, master)
            await until(lambda: replica._started.tables.topics.get("Orders") is not None)
            pulled = (await reader.pull(100, hold_ms=60_000)).answer
            assert (pulled.code, pulled.suggest_which_broker_id) == (ResponseCode.PULL_RETRY_IMMEDIATELY, 0)
        await until(lambda: not replica.replication.replica.is_connected)
        assert (await reader.pull(100)).answer.code == ResponseCode.PULL_NOT_FOUND
        assert len((await reader.pull(0)).bodies) == 1


# What operators see


async def test_both_sides_tell_how_replication_stands(tmp_path: Path) -> None:
    async with (
        broker_group(tmp_path) as group,
        group.master(metrics_exporter="PROM", metrics_port=0) as master,
        group.replica(metrics_exporter="PROM", metrics_port=0) as replica,
        BrokerClient(master.address) as client,
        BrokerClient(replica.address) as reader,
    ):
        await send_many(master, 10)
        await caught_up(replica, master)
        end = master.store.log.end
        await until(lambda: master.replication.master.links[0].acknowledged == end)
        status = (await client.call(GetHaStatus())).body
        (link,) = status.ha_connection_info
        assert (status.master, status.master_commit_log_max_offset, status.in_sync_slave_nums) == (
            True,
            end,
            1,
        )
        assert (link.slave_ack_offset, link.transfer_from_where, link.diff, link.in_sync) == (
            end,
            end,
            0,
            True,
        )
        status = (await reader.call(GetHaStatus())).body
        assert not status.master
        assert status.ha_client_runtime_info.max_offset == end
        assert status.ha_client_runtime_info.master_addr == format_address(*master.replication.master.address)
        assert status.ha_client_runtime_info.last_read_timestamp > 0
        page = await http_get(master.metrics_address, "/metrics")
        assert re.search(r'pyromq_broker_replica_behind_bytes{.*replica="127.0.0.1".*} 0', page)
        assert re.search(r"pyromq_broker_replicas_in_sync{.*} 1", page)
        page = await http_get(replica.metrics_address, "/metrics")
        assert re.search(r"pyromq_broker_connected_to_master{.*} 1", page)
        assert "200" in (await http_get(replica.metrics_address, "/ready")).splitlines()[0]
        replica.replication.replica.disagreement = "the logs are different"
        not_ready = await http_get(replica.metrics_address, "/ready")
        assert "503" in not_ready.splitlines()[0]
        assert "the logs are different" in not_ready


async def test_a_broker_with_access_control_warns_that_its_ha_port_has_none(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(BrokerSettings, "lets_anyone_in", False)
    for networks, warnings in (("10.0.0.0/8", 0), ("", 1)):
        async with running_broker(
            tmp_path / str(warnings), bind_address="0.0.0.0", ha_allowed_networks=networks
        ):
            assert caplog.text.count("may read the whole log: set haTls, or haAllowedNetworks") == warnings
