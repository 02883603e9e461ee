"""A controller that is killed again and again undoes nothing that it has answered."""

import asyncio
import signal
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from random import Random

from tests.support.controlled_brokers import ControlledBroker
from tests.support.etcd import running_etcd
from tests.support.loop import turn_until
from tests.support.server_programs import CONTROLLER
from tools import campaign

from pyromq.errors import Refused, TransportError
from pyromq.protocol.codes import ResponseCode
from pyromq.protocol.requests.controller import GetControllerMetadata, GetReplicaInfo, GetSyncStateData

ROUNDS = campaign.rounds(4)
MAX_GROUPS = 40
EXPECTED = (ResponseCode.CONTROLLER_ELECT_MASTER_FAILED, ResponseCode.CONTROLLER_BROKER_ID_INVALID)
ARGUMENTS = ("--port", "0", "--log-dir", "", "-o", "bindAddress=127.0.0.1")


async def work(address: str, random: Random, known: dict[str, int]) -> None:
    """Join and elect in any groups until the controller is gone; `known` is what it has answered."""
    async with ControlledBroker(address) as broker:
        while True:
            broker.group = f"g{random.randrange(MAX_GROUPS)}"
            try:
                await broker.join()
                elected = await broker.elect()
            except TransportError:
                return
            except Refused as refused:
                if refused.code not in EXPECTED:
                    raise
                continue
            epoch = elected.master_epoch or 0
            known[broker.group] = max(epoch, known.get(broker.group, 0))


def has_at_least(known: dict[str, int], wanted: int) -> bool:
    return len(known) >= wanted


async def test_what_a_killed_controller_has_answered_is_still_true(tmp_path: Path) -> None:
    random, known = Random(7), dict[str, int]()
    for _ in range(ROUNDS):
        with CONTROLLER.running(tmp_path, *ARGUMENTS) as running:
            address = running.boot["address"]
            wanted = len(known) + 5
            workers = [asyncio.create_task(work(address, random, known)) for _ in range(3)]
            await turn_until(partial(has_at_least, known, wanted))
            await asyncio.to_thread(running.stop, signal.SIGKILL)
            await asyncio.gather(*workers)
    with CONTROLLER.running(tmp_path, *ARGUMENTS) as running:
        async with ControlledBroker(running.boot["address"]) as asker:
            found = (await asker.call(GetSyncStateData(body=sorted(known)))).body.replicas_info_table
    assert {name: found[name].master_epoch >= epoch for name, epoch in known.items()} == dict.fromkeys(
        known, True
    )
    assert len(known) >= ROUNDS * 5


async def test_when_the_leading_controller_is_killed_another_one_leads_and_deposes_nobody(
    tmp_path: Path,
) -> None:
    with running_etcd(tmp_path) as etcd, ExitStack() as running:
        shared = ("-o", "controllerStore=etcd", "-o", f"controllerEtcdEndpoints={etcd.endpoint}")
        quick = ("-o", "controllerEtcdLeaseSeconds=2", "-o", "scanInactiveMasterInterval=100")
        first, second = (
            running.enter_context(CONTROLLER.running(home, *ARGUMENTS, *shared, *quick))
            for home in (made(tmp_path / "first"), made(tmp_path / "second"))
        )
        async with ControlledBroker(first.boot["address"]) as broker:
            await broker.join()
            await broker.elect()
            broker.controller_address = second.boot["address"]
            assert not (await broker.call(GetControllerMetadata())).is_leader
            await broker.heartbeat()
            await asyncio.to_thread(first.stop, signal.SIGKILL)
            while not (await broker.call(GetControllerMetadata())).is_leader:
                await broker.heartbeat()
            assert (await broker.call(GetReplicaInfo(broker_name="g"))).master_epoch == 1
            assert (await broker.elect()).code == ResponseCode.CONTROLLER_MASTER_STILL_EXIST


def made(directory: Path) -> Path:
    directory.mkdir()
    return directory
