"""The controller has lost its store: brokers come with ids and logs, and nothing acknowledged is cut off."""

import logging
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from tests.support.broker_cluster import CLUSTER, BrokerClient
from tests.support.controlled_group import ControlledGroup, controlled_group, members_of
from tests.support.replicas import caught_up, log_of, until
from tests.support.small_stores import messages_in

from pyromq.admin import controllers
from pyromq.admin.cluster import Cluster
from pyromq.broker.broker import Broker
from pyromq.controller.controller import Controller
from pyromq.controller.file_store import FileStore
from pyromq.errors import ConnectFailed
from pyromq.remoting.addresses import format_address

QUICK: dict[str, Any] = {"controller_poll_ms": 200}


def wipe(group: ControlledGroup) -> None:
    store = group.controller._store
    assert isinstance(store, FileStore)
    store._stored.clear()


async def send(broker: Broker, numbers: range) -> None:
    async with BrokerClient(broker.address) as client:
        await client.create_topic()
        for number in numbers:
            await client.send(b"%d" % number, queue_id=0)


def bodies(broker: Broker) -> list[int]:
    found: list[int] = []
    while more := messages_in(broker.store.read("Orders", 0, len(found), 1000)):
        found += [int(each.body) for each in more]
    return found


async def three(group: ControlledGroup) -> Broker:
    for name in "abc":
        await group.start(name, **QUICK)
    master = await group.settled(3)
    await until(lambda: all(map(knows_all, group.brokers)))
    return master


def knows_all(broker: Broker) -> bool:
    path = broker.store.paths.broker_identity.with_name("brokerIdentity-members")
    return path.exists() and path.read_text().endswith("#1;2;3")


async def test_a_running_group_enters_the_controller_again(tmp_path: Path) -> None:
    async with controlled_group(tmp_path) as group:
        master = await three(group)
        await send(master, range(10))
        wipe(group)
        await until(lambda: master.role.now.epoch > 1000)
        assert await group.settled(3) is master
        await send(master, range(10, 20))
        old = await group.crash(master)
        new = await group.settled(2)
        assert bodies(new) == list(range(20))
        returned = await group.start(old, **QUICK)
        await group.settled(3)
        await caught_up(returned, new)
        assert log_of(returned.store) == log_of(new.store)


async def test_a_running_group_that_has_lost_a_replica_goes_on_without_it(tmp_path: Path) -> None:
    async with controlled_group(tmp_path) as group:
        master = await three(group)
        lost = await group.crash(next(each for each in group.brokers if each is not master))
        await until(lambda: len(members_of(master)) == 2)
        wipe(group)
        await until(lambda: master.role.now.epoch > 1000)
        assert await group.settled(2) is master
        await send(master, range(10))
        await group.start(lost, **QUICK)
        assert await group.settled(3) is master


async def start_and_wait_for_others(group: ControlledGroup, directory: str) -> Broker:
    """Start a broker that the controller makes wait."""
    broker = await group.start(directory, **QUICK)
    session = broker.replication.session
    assert session is not None
    await until(lambda: "have not offered their logs yet" in session.problem)
    return broker


async def test_a_stale_broker_that_comes_first_cuts_nothing_off(tmp_path: Path) -> None:
    async with controlled_group(tmp_path) as group:
        master = await three(group)
        await send(master, range(10))
        stale = next(each for each in group.brokers if each is not master)
        await caught_up(stale, master)
        behind = await group.stop(stale)
        await until(lambda: len(members_of(master)) == 2)
        await send(master, range(10, 300))
        others = [await group.stop(each) for each in group.brokers]
        wipe(group)
        for _ in range(3):
            await group.stop(await start_and_wait_for_others(group, behind))
        for name in (behind, *others):
            await group.start(name, **QUICK)
        found = await group.settled(3)
        assert found.role.now.epoch > 1000
        for each in group.brokers:
            await caught_up(each, found)
            assert bodies(each) == list(range(300))


async def test_what_a_broker_asks_in_vain_again_and_again_is_logged_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    requests = count_requests(monkeypatch)
    async with controlled_group(tmp_path) as group:
        master = await three(group)
        behind = await group.stop(next(each for each in group.brokers if each is not master))
        await group.stop_all()
        wipe(group)
        caplog.set_level(logging.INFO, "pyromq")
        caplog.clear()
        await start_and_wait_for_others(group, behind)
        asked = len(requests) + 10
        await until(lambda: len(requests) >= asked)
        assert repeated(caplog) == []


async def test_a_change_of_the_set_that_no_controller_takes_is_logged_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with controlled_group(tmp_path) as group:
        master = await three(group)
        session = master.replication.session
        assert session is not None
        tries: list[None] = []

        async def lost(*_: Any, **__: Any) -> None:
            tries.append(None)
            raise ConnectFailed("127.0.0.1:1", "refused")

        monkeypatch.setattr(session._controllers, "call", lost)
        caplog.set_level(logging.INFO, "pyromq")
        caplog.clear()
        await group.stop(next(each for each in group.brokers if each is not master))
        await until(lambda: len(tries) >= 8)
        assert repeated(caplog) == []


def count_requests(monkeypatch: pytest.MonkeyPatch) -> list[None]:
    """One for each request that a controller of this process answers."""
    requests: list[None] = []
    handled = Controller.request_handled

    def counted(controller: Controller, *details: Any) -> None:
        requests.append(None)
        handled(controller, *details)

    monkeypatch.setattr(Controller, "request_handled", counted)
    return requests


def repeated(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Lines of the session with the controller that an operator reads more than twice."""
    lines = Counter(
        each.getMessage()
        for each in caplog.records
        if each.levelno >= logging.INFO and each.name.endswith("controller_session")
    )
    return [line for line, times in lines.items() if times > 2]


async def test_an_operator_sees_what_returned_and_decides(tmp_path: Path) -> None:
    async with controlled_group(tmp_path) as group:
        master = await three(group)
        await send(master, range(10))
        for each in group.brokers:
            await caught_up(each, master)
        kept = await group.stop(master)
        await group.stop_all()
        wipe(group)
        only = await start_and_wait_for_others(group, kept)
        leader = format_address(*group.controller.address)
        async with Cluster(group.names) as cluster:

            async def shown() -> str:
                found = (await controllers.replicas(cluster, [leader], ["broker-a"]))["broker-a"]
                offered = found.not_in_sync_replicas[0]
                if offered.log_end is not None:
                    assert (offered.broker_id, offered.log_end) == (1, only.store.log.end)
                return found.undecided or ""

            assert "brokers [2, 3] have not offered their logs yet" in await shown()
            await controllers.elect_master(cluster, [leader], CLUSTER, "broker-a", 1)
        await until(lambda: only.role.now.is_master)
        assert bodies(only) == list(range(10))
