"""A cluster and its console on a thread of their own, for tests that drive a browser."""

import asyncio
import threading
from collections.abc import Coroutine, Iterator, Mapping
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path
from typing import Any, TypeVar

from tests.support.console_cluster import PASSWORD, fill, keep_run

from pyromq.admin.cluster import Cluster
from pyromq.console.security.roles import UserRole
from pyromq.console.security.users import Users
from pyromq.console.server import Console
from pyromq.console.settings import ConsoleSettings
from pyromq.security.signature import Credentials
from pyromq.standalone import Standalone
from pyromq.testing.clusters import aio_cluster

T = TypeVar("T")


class ConsoleThread:
    def __init__(self, home: Path, broker: Mapping[str, Any], settings: dict[str, Any]) -> None:
        self._home, self._broker, self._settings = home, broker, settings
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="console", daemon=True)
        self._open = AsyncExitStack()
        self.message_id = ""

    def start(self) -> None:
        self._thread.start()
        self.call(self._start())

    async def _start(self) -> None:
        self.cluster: Standalone = await self._open.enter_async_context(
            aio_cluster(brokers=2, **self._broker)
        )
        async with Cluster(self.cluster.namesrv, credentials=self._credentials()) as cluster:
            self.message_id = await fill(cluster)
        users = Users(self._home / "users.json")
        for role in UserRole:
            users.put(role.word, PASSWORD, role, reads_bodies=True)
        chosen: dict[str, Any] = {"namesrv_addr": self.cluster.namesrv, "listen_port": 0, "home": self._home}
        chosen["pipeline_runs"] = keep_run(self._home, self.cluster.namesrv)
        self.console = Console(ConsoleSettings(**chosen | self._settings))
        await self.console.start()
        self._open.push_async_callback(self.console.stop)
        await self.console.state.clusters["default"].watch.look()

    def _credentials(self) -> Credentials | None:
        return ConsoleSettings(**self._settings).credentials()

    @property
    def url(self) -> str:
        return self.console.url.rstrip("/")

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(120)

    def stop(self) -> None:
        self.call(self._open.aclose())
        self.call(self._loop.shutdown_default_executor())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


@contextmanager
def console_thread(
    home: Path, broker: Mapping[str, Any] | None = None, **settings: Any
) -> Iterator[ConsoleThread]:
    """`broker` are settings of the brokers, the others those of the console."""
    running = ConsoleThread(home, broker or {}, settings)
    running.start()
    try:
        yield running
    finally:
        running.stop()
