"""Clusters for clients: brokers that can be added, killed and partitioned, and what they hold."""

import asyncio
import sys
from asyncio.subprocess import Process
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

from tests.support.broker_cluster import BrokerClient, configuration
from tests.support.killable_process import end, is_up, start
from tests.support.name_servers import name_server
from tests.support.tcp_proxy import TcpProxy

from pyromq.broker.broker import Broker
from pyromq.nameserver.nameserver import NameServer
from pyromq.protocol.codes import ResponseCode
from pyromq.protocol.message import open_message
from pyromq.protocol.record import StoredMessage
from pyromq.remoting.addresses import format_address, parse_address


class ClientCluster:
    """One name server, any number of brokers; all of it ends with the block."""

    def __init__(self, root: Path, server: NameServer, stack: AsyncExitStack) -> None:
        self._root = root
        self._stack = stack
        self.name_server = server

    @property
    def namesrv(self) -> str:
        return format_address(*self.name_server.address)

    async def add_broker(self, name: str, **settings: Any) -> Broker:
        broker = Broker(self._configuration(name, **settings))
        return await self._stack.enter_async_context(broker)

    async def add_broker_behind_proxy(self, name: str) -> tuple[Broker, TcpProxy]:
        """Clients are told another address of this machine, where the proxy listens on the same port."""
        broker = await self.add_broker(name, broker_ip1="127.0.0.2")
        proxy = TcpProxy(broker.address, "127.0.0.2", broker.address[1])
        return broker, await self._stack.enter_async_context(proxy)

    async def add_broker_process(self, name: str) -> tuple[Process, str]:
        """A broker that can be killed, and its address."""
        arguments = (str(self._root / name), self.namesrv, name)
        process, address = await start("tests.support.client_cluster", *arguments)
        self._stack.push_async_callback(end, process)
        return process, address

    def _configuration(self, name: str, **settings: Any) -> Any:
        return _configuration(self._root / name, self.namesrv, name, **settings)


def _configuration(root: Path, namesrv: str, name: str, **settings: Any) -> Any:
    chosen: dict[str, Any] = {"broker_name": name, "namesrv_addr": namesrv, "trace_topic_enabled": True}
    return configuration(root, **chosen | settings)


@asynccontextmanager
async def client_cluster(root: Path) -> AsyncIterator[ClientCluster]:
    async with name_server(root / "namesrv") as server, AsyncExitStack() as stack:
        yield ClientCluster(root, server, stack)


async def stored_messages(
    address: str, topic: str, queues: int = 4, *, unpack: bool = True
) -> list[StoredMessage]:
    """Everything a broker holds of a topic, queue by queue."""
    found: list[StoredMessage] = []
    async with BrokerClient(parse_address(address)) as client:
        for queue_id in range(queues):
            offset = 0
            while True:
                pulled = await client.pull(offset, topic, queue_id)
                if pulled.answer.code != ResponseCode.SUCCESS:
                    break
                for message in pulled.messages:
                    found += open_message(message) if unpack else [message]
                offset = pulled.answer.next_begin_offset
    return found


async def _main(root: str, namesrv: str, name: str) -> None:
    async with Broker(_configuration(Path(root), namesrv, name)) as broker:
        is_up(broker.advertised_address)
        await asyncio.get_running_loop().create_future()


if __name__ == "__main__":
    asyncio.run(_main(*sys.argv[1:]))
