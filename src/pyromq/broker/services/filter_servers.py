"""The filter servers of this broker, which routes name while they live.

One is gone with its connection, or 30 seconds after it was last heard of.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence

import msgspec

from pyromq.broker.settings import BrokerSettings
from pyromq.broker.tables.role import RoleTable
from pyromq.clock import Clock, elapsed_ms
from pyromq.config.live import LiveSettings
from pyromq.errors import Refused
from pyromq.protocol.codes import ResponseCode
from pyromq.protocol.requests.filter_servers import RegisterFilterServer, RegisterFilterServerAnswer
from pyromq.remoting.channel import Channel
from pyromq.remoting.routing import Caller, handles

_log = logging.getLogger(__name__)

MAX_FILTER_SERVERS = 64
SILENT_MS = 30_000
SCAN_INTERVAL_S = 10.0
_MAX_ADDRESS_CHARS = 255


class _Seen(msgspec.Struct):
    channel: Channel
    at_ms: int


class FilterServers:
    def __init__(
        self,
        live: LiveSettings[BrokerSettings],
        role: RoleTable,
        clock: Clock,
        announce: Callable[[Sequence[str]], None],
    ) -> None:
        """`announce` is called with the addresses of all when they have changed."""
        self._live = live
        self._role = role
        self._clock = clock
        self._announce = announce
        self._seen: dict[str, _Seen] = {}

    def __repr__(self) -> str:
        return f"<FilterServers {list(self._seen)}>"

    @property
    def addresses(self) -> list[str]:
        return sorted(self._seen)

    @handles(RegisterFilterServer)
    def register(self, request: RegisterFilterServer, caller: Caller) -> RegisterFilterServerAnswer:
        address = request.filter_server_addr
        _check(address)
        is_new = address not in self._seen
        if is_new and len(self._seen) >= MAX_FILTER_SERVERS:
            raise Refused(
                ResponseCode.SYSTEM_ERROR,
                f"this broker has {MAX_FILTER_SERVERS} filter servers, and takes no more",
            )
        self._seen[address] = _Seen(caller.channel, elapsed_ms(self._clock))
        if is_new:
            _log.info("filter server registered address=%s from=%s", address, caller.address)
            self._announce(self.addresses)
        return RegisterFilterServerAnswer(
            broker_name=self._live.now.broker_name, broker_id=self._role.now.broker_id
        )

    def connection_lost(self, connection: Channel) -> None:
        self._remove(
            [address for address, seen in self._seen.items() if seen.channel is connection],
            "its connection was lost",
        )

    def expire(self) -> None:
        before_ms = elapsed_ms(self._clock) - SILENT_MS
        silent = [address for address, seen in self._seen.items() if seen.at_ms < before_ms]
        self._remove(silent, f"silent for {SILENT_MS // 1000} s")

    def _remove(self, addresses: list[str], why: str) -> None:
        for address in addresses:
            del self._seen[address]
            _log.warning("filter server is gone address=%s: %s", address, why)
        if addresses:
            self._announce(self.addresses)

    async def run(self) -> None:
        while True:
            await asyncio.sleep(SCAN_INTERVAL_S)
            self.expire()


def _check(address: str) -> None:
    host, _, port = address.rpartition(":")
    is_port = port.isascii() and port.isdecimal() and len(port) <= 5 and 0 < int(port) < 65536
    is_host = host and not any(each.isspace() or not each.isprintable() for each in host)
    if not is_port or not is_host or len(address) > _MAX_ADDRESS_CHARS:
        raise Refused(
            ResponseCode.INVALID_PARAMETER,
            f"filterServerAddr is {address[:_MAX_ADDRESS_CHARS]!r}: expected host:port",
        )
