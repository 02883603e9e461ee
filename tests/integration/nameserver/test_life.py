"""Starting, waiting, losing brokers, restarting and stopping, over real sockets."""

import asyncio
import logging
import re
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

import pytest
from tests.conftest import ErrorLogs
from tests.support.name_servers import TIMEOUT_S, Peer, name_server, register_broker
from tests.support.wire_client import WireClient

from pyromq.clock import ManualClock
from pyromq.config.durable_file import DurableFile
from pyromq.errors import ConnectFailed, Refused, StateError
from pyromq.nameserver.nameserver import NameServer
from pyromq.protocol.catalogue import BROKER, encode_request
from pyromq.protocol.codes import ResponseCode
from pyromq.protocol.frame import Frame
from pyromq.protocol.requests.brokers import NotifyMinBrokerIdChange, SendBrokerHeartbeat, UnregisterBroker
from pyromq.protocol.requests.kv import GetKvEntry, PutKvEntry
from pyromq.protocol.requests.routes import GetClusterInfo, GetRoute
from pyromq.protocol.requests.settings import UpdateNameServerConfig
from pyromq.remoting.routing import Caller, Routes, handles
from pyromq.remoting.server import Server


async def _http(server: NameServer, path: str) -> tuple[int, str]:
    reader, writer = await asyncio.open_connection(*server.metrics_address)
    writer.write(f"GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode())
    head, _, body = (await reader.read()).partition(b"\r\n\r\n")
    writer.close()
    await writer.wait_closed()
    return int(head.split()[1]), body.decode()


class TestDepartures:
    async def test_a_broker_leaves_the_routes_when_its_connection_closes(self, tmp_path: Path) -> None:
        async with name_server(tmp_path) as server, Peer(server) as client:
            async with Peer(server) as broker:
                await broker.call(register_broker("a", 0, ["t"]))
                await client.watch("t")
            await client.wait_told()
            assert (await client.call(GetClusterInfo())).body.broker_addr_table == {}

    async def test_a_broker_that_came_back_on_a_new_connection_stays(self, tmp_path: Path) -> None:
        async with name_server(tmp_path) as server, Peer(server) as again:
            lost = asyncio.Event()
            server._server.on_connection_lost(lambda _: lost.set())
            async with Peer(server) as before:
                await before.call(register_broker("a", 0, ["t"]))
                await again.call(register_broker("a", 0, ["t"]))
            await lost.wait()
            assert len((await again.call(GetRoute(topic="t"))).body.broker_datas) == 1

    async def test_what_a_broker_said_on_a_connection_that_it_has_replaced_comes_too_late(
        self, tmp_path: Path
    ) -> None:
        """It was held up on the way; then that connection ends, and the broker is still there."""
        async with name_server(tmp_path) as server, Peer(server) as again:
            lost = asyncio.Event()
            server._server.on_connection_lost(lambda _: lost.set())
            async with Peer(server) as before:
                await before.call(GetClusterInfo())
                await again.call(register_broker("a", 0, ["t"]))
                with pytest.raises(Refused, match="has registered on a later connection"):
                    await before.call(register_broker("a", 0, ["t"]))
                with pytest.raises(Refused, match="has registered on a later connection"):
                    await before.call(
                        UnregisterBroker(
                            cluster_name="c", broker_addr="a0:10911", broker_name="a", broker_id=0
                        )
                    )
            await lost.wait()
            assert len((await again.call(GetRoute(topic="t"))).body.broker_datas) == 1

    async def test_a_silent_broker_leaves_after_its_own_timeout_and_is_hung_up_on(
        self, tmp_path: Path
    ) -> None:
        clock = ManualClock()
        async with name_server(tmp_path, clock=clock, scan_interval_ms=5) as server, Peer(server) as client:
            broker = await WireClient.connect(server.address)
            async with Peer(server) as lively:
                await lively.call(register_broker("a", 0, ["t"], heartbeat_timeout_millis=10_000))
                await _register_raw(broker, "b")
                await client.watch("t")
                clock.advance(10)
                await lively.call(
                    SendBrokerHeartbeat(cluster_name="c", broker_addr="a0:10911", broker_name="a")
                )
                clock.advance(0.002)
                assert await broker.wait_closed() == []
                await client.wait_told()
                route = (await client.call(GetRoute(topic="t"))).body
                assert [each.broker_name for each in route.broker_datas] == ["a"]
            await broker.close()

    async def test_a_short_timeout_is_kept_even_if_nobody_meant_to_look_so_soon(self, tmp_path: Path) -> None:
        server = name_server(tmp_path, scan_interval_ms=3_600_000)
        async with server, Peer(server) as broker, Peer(server) as client:
            await broker.call(register_broker("a", 0, ["t"], heartbeat_timeout_millis=50))
            with suppress(Refused):  # It may be gone already.
                await client.watch("t")
                await client.wait_told()
            assert server.statistics().tables.live_brokers == 0


async def _register_raw(broker: WireClient, name: str) -> None:
    request = register_broker(name, 0, ["t"], heartbeat_timeout_millis=10_000)
    assert (await broker.call(encode_request(request, 1))).code == 0


class TestReadiness:
    async def test_a_server_that_does_not_wait_is_ready_at_once(self, tmp_path: Path) -> None:
        async with name_server(tmp_path, metrics_port=0) as server:
            assert await _http(server, "/ready") == (200, "ready\n")
            assert await _http(server, "/health") == (200, "alive\n")

    async def test_routes_are_refused_until_brokers_had_time_to_register(self, tmp_path: Path) -> None:
        clock = ManualClock()
        waiting = name_server(
            tmp_path, clock=clock, metrics_port=0, need_wait_for_service=True, wait_seconds_for_service=45
        )
        async with waiting as server, Peer(server) as peer:
            await peer.call(register_broker("a", 0, ["t"]))
            assert await _http(server, "/ready") == (503, "ready in 45 s\n")
            with pytest.raises(Refused, match="name server not ready") as refused:
                await peer.call(GetRoute(topic="t"))
            assert refused.value.code == ResponseCode.SYSTEM_ERROR
            clock.advance(44.9)
            with pytest.raises(Refused):
                await peer.call(GetRoute(topic="t"))
            clock.advance(0.1)
            await peer.call(GetRoute(topic="t"))
            assert await _http(server, "/ready") == (200, "ready\n")

    async def test_waiting_can_be_ended_by_a_setting(self, tmp_path: Path) -> None:
        async with name_server(tmp_path, need_wait_for_service=True) as server, Peer(server) as peer:
            await peer.call(register_broker("a", 0, ["t"]))
            await peer.call(UpdateNameServerConfig(body="needWaitForService=false"))
            await peer.call(GetRoute(topic="t"))


async def test_metrics_tell_requests_tables_departures_and_pushes(tmp_path: Path) -> None:
    async with name_server(tmp_path, metrics_port=0) as server, Peer(server) as client:
        with pytest.raises(Refused):
            await client.watch("t")
        async with Peer(server) as broker:
            await broker.call(register_broker("a", 0, ["t"]))
            await client.wait_told()
            during = (await _http(server, "/metrics"))[1]
        await client.wait_told()
        status, after = await _http(server, "/metrics")
    assert status == 200
    for line in (
        'pyromq_namesrv_requests_total{code="105",request="GetRoute",result="TOPIC_NOT_EXIST"} 1.0',
        'pyromq_namesrv_requests_total{code="103",request="RegisterBroker",result="SUCCESS"} 1.0',
        'pyromq_namesrv_request_seconds_count{request="RegisterBroker"} 1.0',
        'pyromq_namesrv_table_size{table="topics"} 1.0',
        'pyromq_namesrv_table_size{table="topic_broker_pairs"} 1.0',
        "pyromq_namesrv_live_brokers 1.0",
        "pyromq_namesrv_watches 1.0",
        "pyromq_namesrv_pushes_total 1.0",
        "pyromq_namesrv_ready 1.0",
        'pyromq_namesrv_broker_departures_total{reason="disconnected"} 0.0',
        'pyromq_namesrv_broker_departures_total{reason="expired"} 0.0',
    ):
        assert line in during.splitlines()
    for line in (
        'pyromq_namesrv_broker_departures_total{reason="disconnected"} 1.0',
        "pyromq_namesrv_pushes_total 2.0",
        "pyromq_namesrv_live_brokers 0.0",
    ):
        assert line in after.splitlines()


async def test_the_documentation_names_every_metric(tmp_path: Path) -> None:
    page = (Path(__file__).parents[3] / "docs" / "concepts" / "nameserver.md").read_text()
    documented = set(re.findall(r"`(pyromq_\w+)", page))
    async with name_server(tmp_path, metrics_port=0) as server:
        text = (await _http(server, "/metrics"))[1]
    told = set(re.findall(r"^# TYPE (pyromq_\w+)", text, re.MULTILINE))
    assert {name for name in told if not name.endswith("_created")} == documented


async def test_an_expired_broker_is_counted(tmp_path: Path) -> None:
    async with name_server(tmp_path, metrics_port=0) as server, Peer(server) as client:
        with pytest.raises(Refused):
            await client.watch("t")
        async with Peer(server) as broker:
            await broker.call(register_broker("a", 0, ["t"], heartbeat_timeout_millis=50))
            await client.wait_told()
            await client.wait_told()
            text = (await _http(server, "/metrics"))[1]
    assert 'pyromq_namesrv_broker_departures_total{reason="expired"} 1.0' in text.splitlines()


async def test_unknown_codes_count_as_one_request(tmp_path: Path) -> None:
    async with name_server(tmp_path, metrics_port=0) as server:
        wire = await WireClient.connect(server.address)
        for code in range(9000, 9010):
            await wire.call(Frame(code))
        await wire.close()
        text = (await _http(server, "/metrics"))[1]
    expected = (
        'pyromq_namesrv_requests_total{code="unknown",request="unknown",result="REQUEST_CODE_NOT_SUPPORTED"}'
    )
    assert f"{expected} 10.0" in text.splitlines()


async def test_kv_entries_are_logged_from_time_to_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    texts: asyncio.Queue[str] = asyncio.Queue()

    class Lines(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if record.getMessage().startswith("kv namespace"):
                texts.put_nowait(record.getMessage())

    monkeypatch.setattr("pyromq.nameserver.nameserver._FIRST_KV_LOG_S", 0)
    monkeypatch.setattr("pyromq.nameserver.nameserver._KV_LOG_INTERVAL_S", 0.01)
    (tmp_path / "kvConfig.json").write_bytes(b'{"configTable":{"n":{"k":"v"}}}')
    log, lines = logging.getLogger("pyromq.nameserver.nameserver"), Lines()
    log.addHandler(lines)
    try:
        with caplog.at_level(logging.INFO, logger=log.name):
            async with name_server(tmp_path), asyncio.timeout(TIMEOUT_S):
                for _ in range(2):
                    assert await texts.get() == "kv namespace=n key=k value=v"
    finally:
        log.removeHandler(lines)


class TestKvFile:
    async def test_entries_survive_a_restart(self, tmp_path: Path) -> None:
        async with name_server(tmp_path) as server, Peer(server) as peer:
            await peer.call(PutKvEntry(namespace="n", key="k", value="v"))
        assert (tmp_path / "kvConfig.json").read_text() == '{"configTable":{"n":{"k":"v"}}}'
        async with name_server(tmp_path) as server, Peer(server) as peer:
            assert (await peer.call(GetKvEntry(namespace="n", key="k"))).value == "v"

    async def test_a_damaged_file_is_replaced_by_its_backup(
        self, tmp_path: Path, error_logs: ErrorLogs
    ) -> None:
        (tmp_path / "kvConfig.json").write_bytes(b'{"configTable":{"n":{"k"')
        (tmp_path / "kvConfig.json.bak").write_bytes(b'{"configTable":{"n":{"k":"old"}}}')
        async with name_server(tmp_path) as server, Peer(server) as peer:
            assert (await peer.call(GetKvEntry(namespace="n", key="k"))).value == "old"
            await peer.call(PutKvEntry(namespace="n", key="l", value="new"))
        error_logs.expect("could not read file")
        assert (tmp_path / "kvConfig.json.bak").read_bytes() == b'{"configTable":{"n":{"k":"old"}}}'
        assert (tmp_path / "kvConfig.json.broken").read_bytes() == b'{"configTable":{"n":{"k"'

    async def test_a_server_with_nothing_readable_starts_empty(
        self, tmp_path: Path, error_logs: ErrorLogs
    ) -> None:
        (tmp_path / "kvConfig.json").write_bytes(b"\x00" * 100)
        async with name_server(tmp_path) as server:
            assert server.statistics().kv_entries == 0
        error_logs.expect("could not read file")

    async def test_a_write_that_fails_is_not_confirmed(self, tmp_path: Path, error_logs: ErrorLogs) -> None:
        (tmp_path / "kvConfig.json.new").mkdir()
        async with name_server(tmp_path) as server, Peer(server) as peer:
            with pytest.raises(Refused, match="changed, but only in memory") as refused:
                await peer.call(PutKvEntry(namespace="n", key="k", value="v"))
            assert refused.value.code == ResponseCode.SYSTEM_ERROR
            error_logs.expect("could not write file")
            (tmp_path / "kvConfig.json.new").rmdir()
            await peer.call(PutKvEntry(namespace="n", key="l", value="w"))
        assert (tmp_path / "kvConfig.json").read_text() == '{"configTable":{"n":{"k":"v","l":"w"}}}'


class Broker:
    """Listens like a broker, to be told of its group."""

    def __init__(self) -> None:
        self.notices: asyncio.Queue[NotifyMinBrokerIdChange] = asyncio.Queue()
        self._server = Server(Routes(self, serving=BROKER))

    async def __aenter__(self) -> "Broker":
        await self._server.start("127.0.0.1", 0)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._server.stop(0)

    @property
    def address(self) -> str:
        host, port = self._server.address
        return f"{host}:{port}"

    @handles(NotifyMinBrokerIdChange)
    def _told(self, request: NotifyMinBrokerIdChange, caller: Caller) -> None:
        self.notices.put_nowait(request)


async def test_a_broker_group_is_told_of_its_new_smallest_id(tmp_path: Path) -> None:
    async with (
        name_server(tmp_path, notify_min_broker_id_changed=True) as server,
        Broker() as replica,
        Peer(server) as peer,
    ):
        await peer.call(register_broker("a", 1, broker_addr=replica.address, enable_acting_master=True))
        await peer.call(register_broker("a", 0, broker_addr="m:1", enable_acting_master=True))
        came = await replica.notices.get()
        assert (came.min_broker_id, came.min_broker_addr) == (0, "m:1")
        assert (came.offline_broker_addr, came.ha_broker_addr) == (None, "a0:10912")
        await peer.call(UnregisterBroker(broker_name="a", broker_addr="m:1", cluster_name="c", broker_id=0))
        left = await replica.notices.get()
        assert (left.min_broker_id, left.min_broker_addr) == (1, replica.address)
        assert (left.offline_broker_addr, left.ha_broker_addr) == ("m:1", None)


class TestClusterTest:
    @pytest.fixture
    async def elsewhere(self, tmp_path: Path) -> AsyncIterator[NameServer]:
        (tmp_path / "elsewhere").mkdir()
        async with name_server(tmp_path / "elsewhere") as server, Peer(server) as peer:
            await peer.call(register_broker("there", 0, ["t", "far"]))
            yield server

    @pytest.fixture
    async def peer(self, tmp_path: Path, elsewhere: NameServer) -> AsyncIterator[Peer]:
        host, port = elsewhere.address
        addresses = f"127.0.0.1:1; {host}:{port}"
        server = name_server(tmp_path, cluster_test=True, cluster_test_namesrv_addr=addresses)
        async with server, Peer(server) as connected:
            yield connected

    async def test_brokers_register_and_local_routes_come_first(self, peer: Peer) -> None:
        await peer.call(register_broker("here", 0, ["t"]))
        route = (await peer.call(GetRoute(topic="t"))).body
        assert [each.broker_name for each in route.broker_datas] == ["here"]

    async def test_an_unknown_route_comes_from_the_other_environment(self, peer: Peer) -> None:
        route = (await peer.call(GetRoute(topic="far"))).body
        assert [each.broker_name for each in route.broker_datas] == ["there"]

    async def test_a_route_unknown_to_both_does_not_exist(self, peer: Peer) -> None:
        with pytest.raises(Refused) as refused:
            await peer.call(GetRoute(topic="nowhere"))
        assert refused.value.code == ResponseCode.TOPIC_NOT_EXIST

    async def test_order_configuration_is_told_without_being_switched_on(self, peer: Peer) -> None:
        await peer.call(PutKvEntry(namespace="ORDER_TOPIC_CONFIG", key="t", value="here:8"))
        await peer.call(register_broker("here", 0, ["t"]))
        assert (await peer.call(GetRoute(topic="t"))).body.order_topic_conf == "here:8"

    async def test_local_routes_can_be_watched(self, peer: Peer) -> None:
        assert (await peer.watch("far")).watch is True
        await peer.call(register_broker("here", 0, ["far"]))
        assert await peer.wait_told() == ["far"]


class TestStopping:
    async def test_run_until_stopped_returns_after_stop(self, tmp_path: Path) -> None:
        server = name_server(tmp_path, metrics_port=0)
        await server.start()
        running = asyncio.create_task(server.run_until_stopped())
        await asyncio.sleep(0)
        assert not running.done()
        await server.stop()
        await running
        await server.stop()

    async def test_a_stopped_server_accepts_nothing(self, tmp_path: Path) -> None:
        async with name_server(tmp_path) as server:
            peer = Peer(server)
        with pytest.raises(ConnectFailed):
            await peer.call(GetClusterInfo())
        await peer._dialer.close()

    async def test_a_port_in_use_prevents_the_start(self, tmp_path: Path) -> None:
        async with name_server(tmp_path) as server:
            second = name_server(tmp_path, listen_port=server.address[1], metrics_port=0)
            with pytest.raises(OSError, match="in use"):
                await second.start()

    async def test_what_is_not_running_says_so(self, tmp_path: Path) -> None:
        server = name_server(tmp_path)
        with pytest.raises(StateError):
            _ = server.address
        with pytest.raises(StateError):
            await server.run_until_stopped()
        await server.stop()
        async with server:
            with pytest.raises(StateError):
                await server.start()
            with pytest.raises(StateError):
                _ = server.metrics_address

    async def test_a_put_in_flight_is_finished(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        loop, writing, save = asyncio.get_running_loop(), asyncio.Event(), DurableFile.save

        def save_and_tell(file: DurableFile, content: bytes) -> None:
            loop.call_soon_threadsafe(writing.set)
            save(file, content)

        monkeypatch.setattr(DurableFile, "save", save_and_tell)
        async with name_server(tmp_path) as server, Peer(server) as peer:
            put = asyncio.create_task(peer.call(PutKvEntry(namespace="n", key="k", value="v")))
            await writing.wait()
            await server.stop()
            await put
        assert "v" in (tmp_path / "kvConfig.json").read_text()
