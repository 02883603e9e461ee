"""A broker finds the controller that leads, whoever it asks, and looks again when that one does not."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from pyromq.broker.replication.controllers import Controllers
from pyromq.broker.settings import BrokerSettings
from pyromq.config.live import LiveSettings
from pyromq.errors import Refused, TransportError
from pyromq.protocol.catalogue import CONTROLLER
from pyromq.protocol.codes import ResponseCode
from pyromq.protocol.requests.controller import (
    GetControllerMetadata,
    GetControllerMetadataAnswer,
    GetReplicaInfo,
    GetReplicaInfoAnswer,
    SyncStateSet,
)
from pyromq.remoting.addresses import format_address
from pyromq.remoting.dialer import Dialer
from pyromq.remoting.routing import Caller, Routes, handles
from pyromq.remoting.server import Server
from pyromq.testing.held_ports import held_port


class FakeController:
    """Says who leads, and answers only if that is itself."""

    def __init__(self) -> None:
        self.leader: str | None = None
        self.address = ""

    @handles(GetControllerMetadata)
    def metadata(self, request: GetControllerMetadata, caller: Caller) -> GetControllerMetadataAnswer:
        return GetControllerMetadataAnswer(
            controller_leader_address=self.leader, is_leader=self.leader == self.address
        )

    @handles(GetReplicaInfo)
    def info(self, request: GetReplicaInfo, caller: Caller) -> GetReplicaInfoAnswer:
        if self.leader != self.address:
            raise Refused(ResponseCode.CONTROLLER_NOT_LEADER, "another one leads")
        return GetReplicaInfoAnswer(master_address=self.address, body=SyncStateSet())


@asynccontextmanager
async def fake_controller() -> AsyncIterator[FakeController]:
    fake = FakeController()
    server = Server(Routes(fake, serving=CONTROLLER))
    await server.start("127.0.0.1", 0)
    fake.address = format_address(*server.address)
    try:
        yield fake
    finally:
        await server.stop(0)


@asynccontextmanager
async def controllers_at(*addresses: str, by_dns: bool = False) -> AsyncIterator[Controllers]:
    settings = BrokerSettings(
        controller_mode=True, controller_addr=";".join(addresses), controllers_by_dns=by_dns
    )
    dialer = Dialer()
    try:
        yield Controllers(LiveSettings(settings), dialer)
    finally:
        await dialer.close()


ASK = GetReplicaInfo(broker_name="b")


async def test_the_leader_is_found_and_found_again_when_it_has_changed() -> None:
    async with (
        fake_controller() as one,
        fake_controller() as two,
        controllers_at(one.address, two.address) as all_,
    ):
        one.leader = two.leader = two.address
        assert (await all_.call(ASK)).master_address == two.address
        one.leader = two.leader = one.address
        with pytest.raises(Refused):
            await all_.call(ASK)
        assert (await all_.call(ASK)).master_address == one.address


async def test_a_dead_controller_does_not_hide_the_one_that_leads() -> None:
    with held_port() as port:
        async with fake_controller() as one, controllers_at(f"127.0.0.1:{port}", one.address) as all_:
            one.leader = one.address
            assert await all_.find_leader() == one.address


async def test_a_leader_that_the_settings_do_not_name_is_believed() -> None:
    async with fake_controller() as one, fake_controller() as two, controllers_at(one.address) as all_:
        one.leader = two.leader = two.address
        assert (await all_.call(ASK)).master_address == two.address


async def test_without_a_leader_the_reason_is_told() -> None:
    with held_port() as port:
        async with controllers_at(f"127.0.0.1:{port}") as all_:
            with pytest.raises(TransportError, match=f"no controller leads.*127.0.0.1:{port}"):
                await all_.call(ASK)


async def test_a_name_stands_for_every_address_it_has() -> None:
    async with fake_controller() as one:
        one.leader = one.address
        port = one.address.rpartition(":")[2]
        async with controllers_at(f"localhost:{port}", by_dns=True) as all_:
            assert await all_.find_leader() == one.address
            assert one.address in all_.addresses
