"""Controllers that share their decisions in a real etcd: one leads, and only that one decides."""

from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import ErrorLogs
from tests.support.broker_cluster import BrokerClient
from tests.support.certificates import Authority
from tests.support.controlled_brokers import ControlledBroker, controller
from tests.support.controlled_group import ControlledGroup
from tests.support.etcd import Etcd, running_etcd
from tests.support.loop import turn_until
from tests.support.name_servers import name_server
from tests.support.replicas import until

from pyromq.clock import ManualClock
from pyromq.controller.controller import Controller
from pyromq.controller.etcd_gateway import EtcdGateway, endpoints_in
from pyromq.controller.etcd_store import EtcdStore
from pyromq.controller.groups import GroupRecord
from pyromq.controller.store import Leader, NotLeading, Stored
from pyromq.errors import ConfigError, Refused, StoreError
from pyromq.protocol.codes import ResponseCode
from pyromq.protocol.requests.controller import GetControllerMetadata, GetReplicaInfo

ONE, OTHER = Leader("n0", "127.0.0.1:1"), Leader("n1", "127.0.0.1:2")
LEASE_S = 5


@pytest.fixture(scope="module")
def etcd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Etcd]:
    with running_etcd(tmp_path_factory.mktemp("etcd")) as running:
        yield running


@pytest.fixture
def prefix(request: pytest.FixtureRequest) -> str:
    return f"/{request.node.name}/"


def gateway_of(etcd: Etcd) -> EtcdGateway:
    return EtcdGateway(endpoints_in(etcd.endpoint, key="x"), timeout_s=30)


def store_of(etcd: Etcd, prefix: str, clock: ManualClock, lease_s: int = LEASE_S) -> EtcdStore:
    return EtcdStore(gateway_of(etcd), prefix, lease_s, clock)


def leads(store: EtcdStore) -> bool:
    return store.is_leading


def group(epoch: int = 1) -> GroupRecord:
    return GroupRecord(cluster="c", name="g", master_epoch=epoch)


async def test_the_leader_reads_and_replaces_groups_and_nobody_else(etcd: Etcd, prefix: str) -> None:
    clock = ManualClock()
    one, other = store_of(etcd, prefix, clock), store_of(etcd, prefix, clock)
    await one.open(ONE)
    await other.open(OTHER)
    assert (leads(one), leads(other)) == (True, False)
    assert one.leader == other.leader == ONE
    assert await one.read("g") == Stored(None, 0)
    assert await one.replace("g", group(), 0)
    assert not await one.replace("g", group(2), 0)
    found = await one.read("g")
    assert found.group == group()
    assert await one.replace("g", group(2), found.revision)
    assert {name: each.group for name, each in (await one.read_all()).items()} == {"g": group(2)}
    for refused in (other.read("g"), other.read_all(), other.replace("g", group(3), found.revision)):
        with pytest.raises(NotLeading):
            await refused
    await one.close()
    await other.compete()
    assert (await other.read("g")).group == group(2)
    await other.close()


@pytest.mark.parametrize("passes", [ManualClock.advance, ManualClock.suspend])
async def test_a_leader_stops_leading_by_its_own_clock_before_its_lease_ends(
    etcd: Etcd, prefix: str, passes: Callable[[ManualClock, float], None]
) -> None:
    """Also if its machine is suspended meanwhile: etcd counts that time."""
    clock = ManualClock()
    one = store_of(etcd, prefix, clock)
    await one.open(ONE)
    passes(clock, LEASE_S * 0.8)
    assert leads(one)
    passes(clock, LEASE_S * 0.1)
    assert not leads(one)
    assert one.leader is None
    with pytest.raises(NotLeading):
        await one.read("g")
    await one.compete()
    assert leads(one)
    await one.close()


async def test_a_leader_that_was_replaced_changes_nothing_whatever_it_believes(
    etcd: Etcd, prefix: str
) -> None:
    clock = ManualClock()  # It stands still: the first one thinks that it leads for ever.
    one, other = store_of(etcd, prefix, clock), store_of(etcd, prefix, clock)
    await one.open(ONE)
    assert await one.replace("g", group(), 0)
    revision = (await one.read("g")).revision
    await gateway_of(etcd).call("lease/revoke", {"ID": one._lease_id})
    await other.open(OTHER)
    assert leads(one)
    assert leads(other)
    with pytest.raises(NotLeading):
        await one.replace("g", group(9), revision)
    assert not leads(one)
    assert (await other.read("g")).group == group()
    await one.compete()
    assert one.leader == OTHER
    await other.close()
    await one.close()


async def test_a_leader_key_whose_answer_was_lost_is_found_again(etcd: Etcd, prefix: str) -> None:
    one = store_of(etcd, prefix, ManualClock())
    await one.open(ONE)
    one._term = 0
    await one.compete()
    assert leads(one)
    await one.close()


async def test_the_next_controller_leads_when_the_lease_has_ended(etcd: Etcd, prefix: str) -> None:
    clock = ManualClock()
    one, other = store_of(etcd, prefix, clock, lease_s=1), store_of(etcd, prefix, clock, lease_s=1)
    await one.open(ONE)  # It never renews its lease: its process is dead.
    await other.open(OTHER)
    while not leads(other):
        await other.compete()
    with pytest.raises(NotLeading):
        await one.read("g")
    await other.close()


async def test_a_user_of_etcd_is_authenticated_again_when_its_token_has_expired(tmp_path: Path) -> None:
    with running_etcd(tmp_path) as own:
        root = EtcdGateway(endpoints_in(own.endpoint, key="x"), timeout_s=30)
        await root.call("auth/user/add", {"name": "root", "password": "secret"})
        await root.call("auth/role/add", {"name": "root"})
        await root.call("auth/user/grant", {"user": "root", "role": "root"})
        await root.call("auth/enable", {})
        with pytest.raises(StoreError):
            await root.call("kv/range", {"key": "eA=="})
        known = EtcdGateway(endpoints_in(own.endpoint, key="x"), timeout_s=30, user="root", password="secret")
        store = EtcdStore(known, "/p/", LEASE_S, ManualClock())
        await store.open(ONE)
        known._token = "expired.7"
        assert await store.replace("g", group(), 0)
        await store.close()


async def test_etcd_is_spoken_to_over_tls_and_only_if_it_is_trusted(tmp_path: Path) -> None:
    for name in ("ours", "strangers"):
        (tmp_path / name).mkdir()
    authority, strangers = Authority(tmp_path / "ours"), Authority(tmp_path / "strangers")
    with running_etcd(tmp_path, authority.issue("etcd", host="127.0.0.1")) as own:
        settings: dict[str, Any] = {"store_kind": "etcd", "etcd_endpoints": own.endpoint}
        async with controller(tmp_path, **settings, etcd_trust_cert_path=authority.trust) as server:
            assert server.is_leading
        with pytest.raises(StoreError, match="certificate verify failed"):
            await controller(tmp_path, **settings, etcd_trust_cert_path=strangers.trust).start()
    with pytest.raises(ConfigError, match="readable PEM files"):
        controller(tmp_path, **settings, etcd_trust_cert_path=tmp_path / "absent")


async def test_without_etcd_nothing_is_decided_and_everything_goes_on_afterwards(
    tmp_path: Path, error_logs: ErrorLogs
) -> None:
    with running_etcd(tmp_path) as own:
        settings: dict[str, Any] = {"store_kind": "etcd", "etcd_endpoints": own.endpoint}
        settings["etcd_lease_seconds"] = 4
        async with (
            controller(tmp_path, **settings) as server,
            ControlledBroker(server.advertised_address) as broker,
        ):
            await broker.join()
            await broker.elect()
            own.kill()
            with pytest.raises(Refused) as refused:
                await broker.call(GetReplicaInfo(broker_name="g"))
            assert refused.value.code in (ResponseCode.SYSTEM_ERROR, ResponseCode.CONTROLLER_NOT_LEADER)
            await turn_until(lambda: not server.is_leading)
            assert (await broker.call(GetControllerMetadata())).controller_leader_address is None
            own.start()
            await turn_until(lambda: server.is_leading)
            assert (await broker.call(GetReplicaInfo(broker_name="g"))).master_broker_id == 1
    # How often it was missed depends on how long its start took.
    error_logs.records = [each for each in error_logs.records if "etcd" not in each.getMessage()]


async def test_when_the_leading_controller_stops_the_next_knows_everything(
    etcd: Etcd, prefix: str, tmp_path: Path
) -> None:
    settings: dict[str, Any] = {"store_kind": "etcd", "etcd_endpoints": etcd.endpoint, "etcd_prefix": prefix}
    async with AsyncExitStack() as running:

        async def start(name: str) -> Controller:
            made = controller(tmp_path / name, self_id=name, **settings)
            return await running.enter_async_context(made)

        first, second = await start("n0"), await start("n1")
        broker = await running.enter_async_context(ControlledBroker(first.advertised_address))
        await broker.join()
        await broker.elect()
        broker.controller_address = second.advertised_address
        told = await broker.call(GetControllerMetadata())
        assert (told.controller_leader_id, told.is_leader) == ("n0", False)
        with pytest.raises(Refused) as refused:
            await broker.elect()
        assert refused.value.code == ResponseCode.CONTROLLER_NOT_LEADER
        assert not await broker.heartbeat()  # it is noted all the same
        await first.stop()
        await turn_until(lambda: second.is_leading)
        assert (await broker.call(GetReplicaInfo(broker_name="g"))).master_broker_id == 1
        assert (await broker.elect()).code == ResponseCode.CONTROLLER_MASTER_STILL_EXIST


async def test_brokers_fail_over_under_the_controller_that_is_left(
    etcd: Etcd, prefix: str, tmp_path: Path
) -> None:
    chosen: dict[str, Any] = {"store_kind": "etcd", "etcd_endpoints": etcd.endpoint, "etcd_prefix": prefix}
    async with AsyncExitStack() as running:
        names = await running.enter_async_context(name_server(tmp_path / "names"))
        leader, other = [
            await running.enter_async_context(controller(tmp_path / name, self_id=name, **chosen))
            for name in ("n0", "n1")
        ]
        broker_group = ControlledGroup(tmp_path, names, leader, other)
        running.push_async_callback(broker_group.stop_all)
        first, second = [await broker_group.start(name) for name in "ab"]
        await broker_group.settled(2)
        async with BrokerClient(first.address) as client:
            await client.create_topic()
            await client.send(b"under the first")
        await leader.stop()
        await until(lambda: other.is_leading)
        async with BrokerClient(first.address) as client:
            await client.send(b"between them")  # who waits for others needs no controller
        await broker_group.crash(first)
        await until(lambda: second.role.now.is_master and not second.role.barrier)
        async with BrokerClient(second.address) as client:
            await client.send(b"under the second")
            found = (await client.pull()).bodies
        assert found == [b"under the first", b"between them", b"under the second"]
        await broker_group.start("a")
        assert await broker_group.settled(2) is second


async def test_a_master_that_dies_with_the_leading_controller_is_replaced_by_the_next_one_at_once(
    etcd: Etcd, prefix: str, tmp_path: Path
) -> None:
    chosen: dict[str, Any] = {"store_kind": "etcd", "etcd_endpoints": etcd.endpoint, "etcd_prefix": prefix}
    chosen |= {"etcd_lease_seconds": 60, "scan_masters_interval_ms": 3_600_000}
    async with AsyncExitStack() as running:
        names = await running.enter_async_context(name_server(tmp_path / "names"))
        leader, other = [
            await running.enter_async_context(controller(tmp_path / name, self_id=name, **chosen))
            for name in ("n0", "n1")
        ]
        broker_group = ControlledGroup(tmp_path, names, leader, other)
        running.push_async_callback(broker_group.stop_all)
        first, second = [await broker_group.start(name) for name in "ab"]
        await broker_group.settled(2)
        await leader.stop()
        await broker_group.crash(first)
        await other._store.compete()  # type: ignore[attr-defined]
        await until(lambda: second.role.now.is_master)


async def test_a_controller_does_not_start_without_its_etcd(tmp_path: Path) -> None:
    server = controller(tmp_path, store_kind="etcd", etcd_endpoints="http://127.0.0.1:1;http://127.0.0.1:2")
    with pytest.raises(StoreError, match=r"no etcd can be reached: 127\.0\.0\.1:1: .*; 127\.0\.0\.1:2: "):
        await server.start()
