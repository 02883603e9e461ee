"""Tells the broker every 10 seconds where consumers reach this server; the broker names it in routes."""

import asyncio
import logging

from pyromq.errors import PyroError
from pyromq.protocol.requests.filter_servers import RegisterFilterServer
from pyromq.remoting.dialer import Dialer

_log = logging.getLogger(__name__)

INTERVAL_S = 10.0
_RETRY_S = 1.0
_TIMEOUT_S = 3.0


class FilteredBroker:
    def __init__(self, dialer: Dialer, broker: str) -> None:
        self._dialer = dialer
        self._broker = broker
        self.own_address = ""
        """Known once this server listens."""
        self.broker_name = ""
        self.is_registered = False
        self._problem = ""

    def __repr__(self) -> str:
        state = "registered" if self.is_registered else "not registered"
        return f"<FilteredBroker {self.own_address} at {self._broker} {state}>"

    async def register(self) -> None:
        request = RegisterFilterServer(filter_server_addr=self.own_address)
        try:
            answer = await self._dialer.call(self._broker, request, _TIMEOUT_S)
        except PyroError as problem:
            self.is_registered = False
            if str(problem) != self._problem:
                self._problem = str(problem)
                _log.warning("not registered at the broker %s, trying again: %s", self._broker, problem)
            return
        if not self.is_registered:
            _log.info(
                "registered at the broker name=%s id=%d address=%s",
                *(answer.broker_name, answer.broker_id, self._broker),
            )
        self.broker_name, self.is_registered, self._problem = answer.broker_name, True, ""

    async def run(self) -> None:
        while True:
            await asyncio.sleep(INTERVAL_S if self.is_registered else _RETRY_S)
            await self.register()
