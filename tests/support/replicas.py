"""A master and its replicas in this process, with the name server that brings them together."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from tests.support.broker_cluster import TIMEOUT_S, running_broker
from tests.support.name_servers import name_server

from pyromq.broker.broker import Broker
from pyromq.nameserver.nameserver import NameServer
from pyromq.remoting.addresses import format_address
from pyromq.store.message_store import MessageStore

LOG_FILE_BYTES = 1 << 20


class Group:
    """The brokers of one name. `master` and `replica` start one, and may be used again after it ended."""

    def __init__(self, root: Path, names: NameServer) -> None:
        self.root = root
        self.names = format_address(*names.address)

    @asynccontextmanager
    async def master(self, directory: str = "master", **settings: Any) -> AsyncIterator[Broker]:
        async with running_broker(self.root / directory, namesrv_addr=self.names, **settings) as broker:
            yield broker

    @asynccontextmanager
    async def replica(
        self, broker_id: int = 1, directory: str = "", **settings: Any
    ) -> AsyncIterator[Broker]:
        async with running_broker(
            self.root / (directory or f"replica{broker_id}"),
            namesrv_addr=self.names,
            broker_role="SLAVE",
            broker_id=broker_id,
            **settings,
        ) as broker:
            yield broker


@asynccontextmanager
async def broker_group(root: Path, **name_server_settings: Any) -> AsyncIterator[Group]:
    async with name_server(root / "names", **name_server_settings) as names:
        yield Group(root, names)


async def until(is_true: Callable[[], object], what: str = "") -> None:
    """Turn the loop until something is so."""
    async with asyncio.timeout(TIMEOUT_S):
        while not is_true():  # noqa: ASYNC110
            await asyncio.sleep(0.01)


async def caught_up(replica: Broker, master: Broker) -> None:
    """The replica has the master's log, and its queues have it, too."""
    await until(
        lambda: (
            replica.store.log.end == master.store.log.end
            and not replica.store.statistics().dispatch_behind_bytes
        )
    )


def log_of(store: MessageStore) -> bytes:
    """All bytes of a log, from its first file on."""
    pieces, offset = [], store.log.start
    while offset < store.log.end:
        piece = store.log.bytes_at(offset, LOG_FILE_BYTES)
        pieces.append(bytes(piece))
        offset += len(piece)
    return b"".join(pieces)


async def http_get(address: tuple[str, int], path: str) -> str:
    reader, writer = await asyncio.open_connection(*address)
    writer.write(f"GET {path} HTTP/1.0\r\n\r\n".encode())
    text = (await reader.read()).decode()
    writer.close()
    return text
