"""Who is in sync after restarts, and after answers of the controller that were lost: over real sockets."""

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from tests.conftest import ErrorLogs
from tests.support.broker_cluster import BrokerClient
from tests.support.controlled_group import ControlledGroup, controlled_group, members_of, side_of
from tests.support.replicas import caught_up, until

from pyromq.broker.broker import Broker
from pyromq.broker.replication.controllers import Controllers
from pyromq.errors import CallTimeout, Refused
from pyromq.filesystem import Files, Space
from pyromq.protocol.catalogue import Request
from pyromq.protocol.codes import ResponseCode
from pyromq.protocol.requests.controller import AlterSyncStateSet

SYNC: dict[str, Any] = {"store": {"flush_disk_type": "SYNC_FLUSH"}, "min_in_sync_replicas": 2}


async def send(broker: Broker) -> ResponseCode:
    async with BrokerClient(broker.address) as client:
        await client.create_topic()
        return ResponseCode((await client.send(b"0", queue_id=0)).code)


@contextmanager
def unanswered_proposals() -> Iterator[list[set[int]]]:
    """The requests are lost on their way, and nobody knows it."""
    lost: list[set[int]] = []
    call = Controllers.call

    async def lose(self: Controllers, request: Request[Any]) -> Any:
        if isinstance(request, AlterSyncStateSet):
            lost.append(set(request.body.sync_state_set))
            raise CallTimeout("no answer")
        return await call(self, request)

    with patch.object(Controllers, "call", lose):
        yield lost


async def three_that_stop(group: ControlledGroup, *, is_clean: bool) -> list[str]:
    """Before the controller hears of any of them; returns their directories, the last is the master's."""
    for name in "abc":
        await group.start(name, **SYNC)
    master = await group.settled(3)
    assert await send(master) is ResponseCode.SUCCESS
    for each in group.brokers:
        await caught_up(each, master)
    with unanswered_proposals():
        return [await (group.stop if is_clean else group.crash)(each) for each in reversed(group.brokers)]


@pytest.mark.parametrize("is_clean", [True, False])
async def test_two_of_three_that_restart_go_on_without_the_third(tmp_path: Path, is_clean: bool) -> None:
    async with controlled_group(tmp_path) as group:
        for each in (await three_that_stop(group, is_clean=is_clean))[:2]:
            await group.start(each, **SYNC)
        assert await send(await group.settled(2)) is ResponseCode.SUCCESS


async def test_a_proposal_that_was_not_answered_does_not_stop_a_group_that_has_two_in_sync(
    tmp_path: Path,
) -> None:
    """One link blips while the controller is away, then another broker dies."""
    async with controlled_group(tmp_path) as group:
        for each in "abc":
            await group.start(each)
        master = await group.settled(3)
        second, third = (each for each in group.brokers if each is not master)
        side = side_of(master)
        with unanswered_proposals() as lost:
            blipping = next(each for each in side.links if side.is_in_sync(each))
            blipping.close("it blips")
            await until(lambda: lost)
            await until(lambda: len(side.links) == 2)
            left_out = {1, 2, 3} - lost[0]
            dying = second if second.role.now.broker_id not in left_out else third
            await group.crash(dying)
        await until(lambda: len(members_of(master)) == 2)
        assert await send(master) is ResponseCode.SUCCESS


LOGGED = "the store accepts no messages"


class FailingFiles(Files):
    """A disk that fails when it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.is_full = self.fails_to_sync = False

    def sync(self, path: Path) -> None:
        if self.fails_to_sync:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        super().sync(path)

    def space(self, path: Path) -> Space:
        return Space(100, 0, read_only=self.is_full) if self.is_full else super().space(path)


async def three_with_a_disk_that_can_fail(group: ControlledGroup) -> tuple[Broker, FailingFiles]:
    files = FailingFiles()
    master = await group.start("a", files=files, **SYNC)
    for name in "bc":
        await group.start(name, **SYNC)
    assert await group.settled(3) is master
    assert await send(master) is ResponseCode.SUCCESS
    return master, files


async def test_a_master_whose_disk_fails_makes_room_for_a_healthy_one(
    tmp_path: Path, error_logs: ErrorLogs
) -> None:
    async with controlled_group(tmp_path) as group:
        old, files = await three_with_a_disk_that_can_fail(group)
        files.fails_to_sync = True
        async with BrokerClient(old.address) as client:
            with suppress(Refused):
                assert (await client.send(b"1", queue_id=0)).code == ResponseCode.FLUSH_DISK_TIMEOUT
        await until(lambda: group.master() is not old)
        new = await group.settled(2)
        assert await send(new) is ResponseCode.SUCCESS
        files.fails_to_sync = False
        error_logs.expect_repeatedly(LOGGED)
    # The former master writes no offsets, as long as it does not know that their messages are on its disk.
    error_logs.allow("offsets could not be written")


async def test_a_broker_whose_disk_was_full_comes_back_as_a_replica(
    tmp_path: Path, error_logs: ErrorLogs
) -> None:
    async with controlled_group(tmp_path) as group:
        old, files = await three_with_a_disk_that_can_fail(group)
        files.is_full = True
        await until(lambda: group.master() is not old)
        assert await send(await group.settled(2)) is ResponseCode.SUCCESS
        files.is_full = False
        assert await group.settled(3) is not old
        error_logs.expect_repeatedly(LOGGED)


async def test_a_master_that_is_alone_stays_master_though_its_disk_is_full(
    tmp_path: Path, error_logs: ErrorLogs
) -> None:
    async with controlled_group(tmp_path) as group:
        files = FailingFiles()
        master = await group.start("a", files=files)
        files.is_full = True
        await until(lambda: master.store.faults)
        before = side_of(master).lease.ask()
        await until(lambda: side_of(master).lease.ask() > before)  # it goes on to send heartbeats
        assert master.role.now.is_master
        error_logs.expect_repeatedly(LOGGED)
