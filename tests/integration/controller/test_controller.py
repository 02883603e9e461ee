"""A controller over real sockets: brokers join, get masters, disappear and come back."""

import asyncio
import errno
from pathlib import Path
from typing import Any

import pytest
from tests.support.controlled_brokers import ControlledBroker, controller
from tests.support.faulty_files import FaultyFiles

from pyromq.clock import ManualClock
from pyromq.controller.controller import Controller
from pyromq.controller.file_store import FileStore
from pyromq.controller.journal import Journal
from pyromq.errors import ConfigError, Refused, StateError, StoreError
from pyromq.protocol.codes import ResponseCode
from pyromq.protocol.requests.controller import (
    AlterSyncStateSet,
    CleanBrokerData,
    GetControllerMetadata,
    GetReplicaInfo,
    GetSyncStateData,
    SyncStateSet,
)
from pyromq.protocol.requests.settings import GetControllerConfig, UpdateControllerConfig


async def joined(broker: ControlledBroker, master: ControlledBroker) -> None:
    """Add a broker that has caught up with its master."""
    await broker.join()
    found = (await master.call(GetReplicaInfo(broker_name="g"))).body
    await master.call(
        AlterSyncStateSet(
            broker_name="g",
            master_broker_id=master.id,
            master_epoch=1,
            body=SyncStateSet(
                sync_state_set={*found.sync_state_set, broker.id},
                sync_state_set_epoch=found.sync_state_set_epoch,
            ),
        )
    )


async def test_when_the_connection_of_the_master_closes_a_replica_in_sync_is_told_to_follow(
    tmp_path: Path,
) -> None:
    async with (
        controller(tmp_path) as server,
        ControlledBroker(server.advertised_address) as first,
        ControlledBroker(server.advertised_address) as second,
    ):
        assert (await first.join()).master_broker_id is None
        assert (await first.elect()).master_epoch == 1
        assert (await first.notices.get()).master_broker_id == 1
        await joined(second, first)
        await first.hang_up()
        notice = await second.notices.get()
        assert (notice.master_broker_id, notice.master_address) == (2, second.address)
        assert (notice.master_epoch, notice.body.sync_state_set) == (2, {2})
        found = await second.call(GetReplicaInfo(broker_name="g"))
        assert (found.master_broker_id, found.master_epoch) == (2, 2)


async def test_when_the_heartbeats_of_the_master_stop_a_replica_in_sync_follows(tmp_path: Path) -> None:
    clock = ManualClock()
    async with (
        controller(tmp_path, clock=clock) as server,
        ControlledBroker(server.advertised_address) as first,
        ControlledBroker(server.advertised_address) as second,
    ):
        await first.join()
        await first.elect()
        await joined(second, first)
        for _ in range(4):
            clock.advance(3)
            await second.heartbeat()
            server.expire_brokers()
        assert (await second.notices.get()).master_broker_id == 2


async def test_a_restarted_controller_knows_everything_and_deposes_nobody_it_has_not_heard(
    tmp_path: Path,
) -> None:
    clock = ManualClock()
    async with controller(tmp_path, clock=clock) as server, ControlledBroker(server.advertised_address) as a:
        await a.join()
        await a.elect()
    async with controller(tmp_path, clock=clock) as server, ControlledBroker(server.advertised_address) as b:
        assert (await b.join()).master_broker_id == 1
        assert (await b.elect()).code == ResponseCode.CONTROLLER_MASTER_STILL_EXIST
        for _ in range(5):
            clock.advance(3)
            await b.heartbeat()
            server.expire_brokers()
        await server.elections.elect_where_masters_are_gone()
        found = await b.call(GetReplicaInfo(broker_name="g"))
        # Nobody in sync is alive: there is no master rather than one that lacks messages.
        assert (found.master_broker_id, found.master_epoch, found.body.sync_state_set) == (None, 2, {1})
        with pytest.raises(Refused) as refused:
            await b.elect()
        assert refused.value.code == ResponseCode.CONTROLLER_ELECT_MASTER_FAILED


async def test_a_restarted_broker_that_was_alone_in_sync_is_elected_before_its_first_heartbeat(
    tmp_path: Path,
) -> None:
    async with controller(tmp_path) as server, ControlledBroker(server.advertised_address) as broker:
        await broker.join()
        await broker.elect()
        await broker.hang_up()
        assert (await broker.register(heartbeat=False)).master_broker_id is None
        elected = await broker.elect()
        assert (elected.code, elected.master_broker_id) == (ResponseCode.SUCCESS, 1)


async def test_an_operator_allows_an_unclean_election_while_the_controller_runs(tmp_path: Path) -> None:
    async with (
        controller(tmp_path) as server,
        ControlledBroker(server.advertised_address) as a,
        ControlledBroker(server.advertised_address) as b,
    ):
        await a.join()
        await a.elect()
        await b.join()
        await b.call(UpdateControllerConfig(body="enableElectUncleanMaster=true\n"))
        config = (await b.call(GetControllerConfig())).body
        assert "enableElectUncleanMaster=true" in config.splitlines()
        await a.hang_up()
        assert (await b.notices.get()).master_broker_id == 2
    assert "enableElectUncleanMaster=true" in (tmp_path / "controller.properties").read_text()


async def test_settings_that_decide_where_files_are_do_not_change_over_the_network(tmp_path: Path) -> None:
    async with controller(tmp_path) as server, ControlledBroker(server.advertised_address) as broker:
        for key in ("configBlackList", "controllerStorePath", "controllerDLegerPeers"):
            with pytest.raises(Refused) as refused:
                await broker.call(UpdateControllerConfig(body=f"{key}=x\n"))
            assert refused.value.code == ResponseCode.NO_PERMISSION


async def test_operators_see_controllers_groups_and_replicas(tmp_path: Path) -> None:
    async with controller(tmp_path) as server, ControlledBroker(server.advertised_address) as a:
        await a.join()
        await a.elect()
        metadata = await a.call(GetControllerMetadata())
        address = server.advertised_address
        assert (metadata.controller_leader_address, metadata.is_leader) == (address, True)
        assert metadata.peers == f"n0:{address};"
        table = (await a.call(GetSyncStateData(body=["g", "other"]))).body.replicas_info_table
        assert table.keys() == {"g"}
        assert [each.alive for each in table["g"].in_sync_replicas] == [True]
        with pytest.raises(Refused) as refused:
            await a.call(CleanBrokerData(broker_name="g"))
        assert refused.value.code == ResponseCode.CONTROLLER_INVALID_CLEAN_BROKER_METADATA
        await a.call(CleanBrokerData(broker_name="g", is_clean_living_broker=True))
        assert (await a.call(GetSyncStateData(body=["g"]))).body.replicas_info_table == {}


async def test_requests_at_the_same_time_never_give_an_id_twice(tmp_path: Path) -> None:
    async with (
        controller(tmp_path) as server,
        ControlledBroker(server.advertised_address) as a,
        ControlledBroker(server.advertised_address) as b,
    ):
        results = await asyncio.gather(a.join(), b.join(), return_exceptions=True)
        refusals = [each for each in results if isinstance(each, Refused)]
        assert [each.code for each in refusals] == [ResponseCode.CONTROLLER_BROKER_ID_INVALID]


def failing_store(directory: Path) -> FileStore:
    files = FaultyFiles(directory)
    files.failures["overwrite"] = errno.EIO
    return FileStore(Journal(directory, files))


async def test_a_controller_whose_disk_fails_ends(tmp_path: Path) -> None:
    server = controller(tmp_path, store=failing_store(tmp_path))
    await server.start()
    async with ControlledBroker(server.advertised_address) as broker:
        with pytest.raises(Refused) as refused:
            await broker.join()
        assert refused.value.code == ResponseCode.SYSTEM_ERROR
        with pytest.raises(Refused) as refused:
            await broker.call(GetReplicaInfo(broker_name="g"))
        assert refused.value.code == ResponseCode.CONTROLLER_NOT_LEADER
        assert (await broker.call(GetControllerMetadata())).controller_leader_address is None
    with pytest.raises(ExceptionGroup) as ended:
        await server.run_until_stopped()
    assert ended.group_contains(StoreError)
    await server.stop()


async def page(server: Controller, path: str) -> tuple[int, str]:
    reader, writer = await asyncio.open_connection(*server.metrics_address)
    writer.write(f"GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode())
    head, _, body = (await reader.read()).partition(b"\r\n\r\n")
    writer.close()
    await writer.wait_closed()
    return int(head.split()[1]), body.decode()


def sample(text: str, name: str, labels: dict[str, str]) -> float:
    """The value of one metric with exactly these labels."""
    inside = ",".join(f'{key}="{labels[key]}"' for key in sorted(labels))
    (line,) = [each for each in text.splitlines() if each.startswith(f"{name}{{{inside}}} ")]
    return float(line.rpartition(" ")[2])


async def test_metrics_have_the_names_of_apaches_controller(tmp_path: Path) -> None:
    async with controller(tmp_path, metrics_exporter="PROM", metrics_port=0) as server:
        async with ControlledBroker(server.advertised_address) as broker:
            await broker.join()
            await broker.elect()
            status, text = await page(server, "/metrics")
        own = {"address": server.advertised_address, "group": "", "peer_id": "n0"}
        assert status == 200
        assert sample(text, "role", own) == 3
        assert sample(text, "active_broker_num", {**own, "cluster": "c", "broker_set": "g"}) == 1
        election = {"cluster": "c", "broker_set": "g", "election_result": "new_master_elected"}
        assert sample(text, "election_total", {**own, **election}) == 1
        request = {"request_type": "CONTROLLER_ELECT_MASTER", "request_handle_status": "success"}
        assert sample(text, "request_total", {**own, **request}) == 1
        assert "request_latency_bucket" in text
        assert "dledger_disk_usage" in text
        assert await page(server, "/ready") == (200, f"ready, led by n0 at {server.advertised_address}\n")
        assert (await page(server, "/health"))[0] == 200


async def test_every_request_to_a_controller_is_served(tmp_path: Path) -> None:
    assert controller(tmp_path).routes.missing() == []


async def test_a_controller_says_what_it_was_not(tmp_path: Path) -> None:
    server = controller(tmp_path)
    for use in (lambda: server.advertised_address, lambda: server.address, lambda: server.metrics_address):
        with pytest.raises(StateError):
            use()


@pytest.mark.parametrize(
    ("values", "key"),
    [
        ({"peers": "n0-h:1", "self_id": "n1"}, "controllerDLegerSelfId"),
        ({"peers": "n0-h:1;n1-h:2"}, "controllerDLegerPeers"),
        ({"peers": "h:1"}, "controllerDLegerPeers"),
        ({"peers": "n0-h"}, "controllerDLegerPeers"),
        ({"store_kind": "etcd"}, "controllerEtcdEndpoints"),
        ({"store_kind": "etcd", "etcd_endpoints": "host:2379"}, "controllerEtcdEndpoints"),
        ({"store_kind": "etcd", "etcd_endpoints": "ftp://host:2379"}, "controllerEtcdEndpoints"),
        ({"store_kind": "etcd", "etcd_endpoints": "http://host:x"}, "controllerEtcdEndpoints"),
    ],
)
def test_settings_that_do_not_fit_together_are_refused(
    tmp_path: Path, values: dict[str, Any], key: str
) -> None:
    with pytest.raises(ConfigError) as refused:
        controller(tmp_path, **values)
    assert refused.value.key == key
