"""A cluster and its console: started and stopped as one; the failure of one ends both."""

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyromq.apps.launching import fail
from pyromq.apps.secure_files import ADMINISTRATOR, SecureFiles

if TYPE_CHECKING:
    from pyromq.apps.broker_processes import BrokerProcesses
    from pyromq.console.server import Console
    from pyromq.standalone import Standalone


class ConsoleBeside:
    """Users and the audit log are in the cluster's directory. With `secure` the console logs in, too."""

    def __init__(
        self, cluster: "Standalone | BrokerProcesses", port: int, secure: SecureFiles | None
    ) -> None:
        self._cluster = cluster
        self._port = port
        self._secure = secure
        self._console: Console | None = None

    async def start(self) -> None:
        await self._cluster.start()
        try:
            self._console = _console(self._cluster, self._port, self._secure)
            await self._console.start()
        except BaseException:
            await self._cluster.stop()
            raise

    async def run_until_stopped(self) -> None:
        assert self._console is not None
        async with asyncio.TaskGroup() as both:
            both.create_task(self._cluster.run_until_stopped())
            both.create_task(self._console.run_until_stopped())

    async def stop(self) -> None:
        if self._console is not None:
            await self._console.stop()
        await self._cluster.stop()

    def announce(self) -> None:
        from pyromq.apps.console import say_where

        assert self._console is not None
        say_where(self._console.url, self._console.first_password)


def _console(cluster: "Standalone | BrokerProcesses", port: int, secure: SecureFiles | None) -> "Console":
    try:
        from pyromq.console.server import Console
    except ModuleNotFoundError as missing:
        fail("pyromq standalone", f"{missing}: pip install 'pyromq[console]'")
    from pyromq.console.settings import ConsoleSettings

    chosen: dict[str, Any] = {
        "namesrv_addr": cluster.namesrv,
        "listen_port": port,
        "home": Path(cluster.settings.store) / "console",
    }
    if secure is not None:
        chosen |= {
            "access_key": ADMINISTRATOR,
            "secret_key": secure.administrator_password(),
            "cluster_trust_path": secure.certificate,
        }
    return Console(ConsoleSettings(**chosen))
