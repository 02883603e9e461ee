"""The controllers of a broker: which of them leads, and calls to that one."""

import asyncio
import logging
import socket
from typing import TypeVar

from pyromq.broker.settings import BrokerSettings
from pyromq.config.live import LiveSettings
from pyromq.errors import ConnectFailed, PyroError, Refused, TransportError
from pyromq.protocol.catalogue import Answer, Request
from pyromq.protocol.codes import ResponseCode
from pyromq.protocol.requests.controller import GetControllerMetadata
from pyromq.remoting.addresses import format_address, parse_address
from pyromq.remoting.dialer import Dialer

_log = logging.getLogger(__name__)

A = TypeVar("A", bound=Answer)

_TIMEOUT_S = 3.0


class Controllers:
    def __init__(self, live: LiveSettings[BrokerSettings], dialer: Dialer) -> None:
        self._live = live
        self._dialer = dialer
        self.leader: str | None = None
        self.addresses: tuple[str, ...] = live.now.controllers

    def __repr__(self) -> str:
        return f"<Controllers {';'.join(self.addresses)} led by {self.leader}>"

    async def find_leader(self) -> str:
        """Ask all of them who leads; raises ConnectFailed if none of them knows."""
        settings = self._live.now
        self.addresses = settings.controllers
        if settings.controllers_by_dns:
            self.addresses = await _resolved(self.addresses) or self.addresses
        asked = [asyncio.create_task(self._ask(address)) for address in self.addresses]
        hearsay, problems = "", []
        try:
            for answer in asyncio.as_completed(asked):
                try:
                    leader = await answer
                except PyroError as problem:
                    problems.append(str(problem))
                    continue
                if leader in self.addresses:  # as the settings call it
                    return self._found(leader)
                hearsay = leader or hearsay
        finally:
            for task in asked:
                task.cancel()
        if hearsay:
            return self._found(hearsay)
        raise ConnectFailed(f"no controller leads {'; '.join(problems)}")

    def _found(self, leader: str) -> str:
        if leader != self.leader:
            _log.info("controller found address=%s", leader)
        self.leader = leader
        return leader

    async def _ask(self, address: str) -> str:
        answer = await self._dialer.call(address, GetControllerMetadata(), _TIMEOUT_S)
        if answer.is_leader:
            return address  # however it calls itself, this is how it is reached
        return answer.controller_leader_address or ""

    async def call(self, request: Request[A]) -> A:
        """Ask the leader; raises Refused, ConnectFailed if it was not asked, and another TransportError if it
        is not known what has happened."""
        leader = self.leader or await self.find_leader()
        try:
            return await self._dialer.call(leader, request, _TIMEOUT_S)
        except Refused as refusal:
            if refusal.code == ResponseCode.CONTROLLER_NOT_LEADER:
                self.leader = None
            raise
        except TransportError:
            self.leader = None
            raise


async def _resolved(addresses: tuple[str, ...]) -> tuple[str, ...]:
    found: dict[str, None] = {}
    for address in addresses:
        host, port = parse_address(address)
        try:
            infos = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except OSError as problem:
            _log.warning("controllers cannot be looked up name=%s: %s", host, problem)
            continue
        found.update(dict.fromkeys(format_address(str(info[4][0]), port) for info in infos))
    return tuple(found)
