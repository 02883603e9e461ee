"""A controller in this process, and peers that speak to it as brokers do."""

import asyncio
from pathlib import Path
from typing import Any, Self, TypeVar

from pyromq.clock import Clock
from pyromq.controller.controller import Controller
from pyromq.controller.settings import ControllerSettings
from pyromq.controller.store import ControllerStore
from pyromq.errors import Refused
from pyromq.protocol.catalogue import BROKER, Answer, Request
from pyromq.protocol.codes import ResponseCode
from pyromq.protocol.requests.brokers import SendBrokerHeartbeat
from pyromq.protocol.requests.controller import (
    ApplyBrokerId,
    ElectMaster,
    ElectMasterAnswer,
    GetNextBrokerId,
    NotifyBrokerRoleChanged,
    RegisterBrokerAtController,
    RegisterBrokerAtControllerAnswer,
)
from pyromq.remoting.admission import Admission
from pyromq.remoting.dialer import Dialer
from pyromq.remoting.routing import Caller, Routes, handles
from pyromq.remoting.server import Server

A = TypeVar("A", bound=Answer)

TIMEOUT_S = 60.0


def controller(
    directory: Path,
    *,
    clock: Clock | None = None,
    admission: Admission | None = None,
    store: ControllerStore | None = None,
    **settings: Any,
) -> Controller:
    """On a free port of the loopback interface, with its files in the directory."""
    values: dict[str, Any] = {
        "bind_address": "127.0.0.1",
        "listen_port": 0,
        "store_path": directory / "controller",
        "config_store_path": directory / "controller.properties",
        "shutdown_wait_seconds": 5,
    }
    chosen = ControllerSettings(**{**values, **settings})
    return Controller(chosen, clock=clock, admission=admission, store=store)


class ControlledBroker:
    """One broker of group `g`: `async with ControlledBroker(address) as broker: await broker.join()`."""

    def __init__(self, controller_address: str, *, group: str = "g") -> None:
        self.controller_address = controller_address
        self.group = group
        self.id = 0
        self.notices: asyncio.Queue[NotifyBrokerRoleChanged] = asyncio.Queue()
        self._dialer = Dialer()
        self._server = Server(Routes(self, serving=BROKER))

    @handles(NotifyBrokerRoleChanged)
    def told(self, request: NotifyBrokerRoleChanged, caller: Caller) -> None:
        self.notices.put_nowait(request)

    async def __aenter__(self) -> Self:
        await self._server.start("127.0.0.1", 0)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._dialer.close()
        await self._server.stop(0)

    @property
    def address(self) -> str:
        host, port = self._server.address
        return f"{host}:{port}"

    async def call(self, request: Request[A]) -> A:
        return await self._dialer.call(self.controller_address, request, TIMEOUT_S)

    async def join(self) -> RegisterBrokerAtControllerAnswer:
        """Get an id, register and send the first heartbeat."""
        found = await self.call(GetNextBrokerId(cluster_name="c", broker_name=self.group))
        assert found.next_broker_id is not None
        self.id = found.next_broker_id
        await self.call(
            ApplyBrokerId(
                cluster_name="c",
                broker_name=self.group,
                applied_broker_id=self.id,
                register_check_code=f"{self.address};1",
            )
        )
        return await self.register()

    async def register(self, *, heartbeat: bool = True) -> RegisterBrokerAtControllerAnswer:
        answer = await self.call(
            RegisterBrokerAtController(
                cluster_name="c", broker_name=self.group, broker_id=self.id, broker_address=self.address
            )
        )
        if heartbeat:
            await self.heartbeat()
        return answer

    async def heartbeat(self, max_offset: int = 0, timeout_ms: int = 10_000) -> bool:
        """Sent as a call, so that the controller has it when this returns; whether that one leads."""
        beat = SendBrokerHeartbeat(
            cluster_name="c",
            broker_addr=self.address,
            broker_name=self.group,
            broker_id=self.id,
            epoch=1,
            max_offset=max_offset,
            heartbeat_timeout_millis=timeout_ms,
        )
        try:
            await self.call(beat)
        except Refused as refusal:
            if refusal.code != ResponseCode.CONTROLLER_NOT_LEADER:
                raise
            return False
        return True

    async def elect(self) -> ElectMasterAnswer:
        return await self.call(ElectMaster(cluster_name="c", broker_name=self.group, broker_id=self.id))

    async def hang_up(self) -> None:
        """Close all connections to controllers; the next call opens another."""
        await self._dialer.close()
        self._dialer = Dialer()
