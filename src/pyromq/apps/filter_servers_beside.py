"""A broker and its filter servers, each in its own process, as `filterServerNums` asks.

They read the broker's file. One that has died is started again after a while. All end with the broker.
"""

import asyncio
import logging
import os
import sys
from asyncio.subprocess import DEVNULL, Process
from typing import Final

from pyromq.apps import child_processes
from pyromq.broker.broker import Broker
from pyromq.broker.settings import BrokerConfiguration
from pyromq.remoting.addresses import format_address
from pyromq.remoting.program import Startable

_log = logging.getLogger("pyromq.apps.filter_servers")

RESTART_S: Final = 10.0
_EVERYWHERE = ("", "0.0.0.0", "::")


class FilterServersBeside(Startable):
    """Starts them once the broker listens: it builds the broker's address into their settings."""

    def __init__(self, broker: Broker, configuration: BrokerConfiguration) -> None:
        self._broker = broker
        self._configuration = configuration
        self._processes: dict[int, Process] = {}
        self._tasks: list[asyncio.Task[None]] = []
        self._stopped = asyncio.Event()

    def __repr__(self) -> str:
        return f"<FilterServersBeside {self._broker!r} processes={len(self._processes)}>"

    async def start(self) -> None:
        count = self._configuration.broker.filter_servers
        for number in range(1, count + 1):
            await self._start(number)
            self._tasks.append(asyncio.create_task(self._look_after(number), name=f"filter server {number}"))

    async def run_until_stopped(self) -> None:
        await self._stopped.wait()

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.gather(*map(child_processes.end, self._processes.values()))
        self._stopped.set()

    async def _start(self, number: int) -> None:
        self._processes[number] = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "pyromq.apps.filtersrv", "--parent", str(os.getpid())),
            *self._arguments(number),
            stdin=DEVNULL,
            stdout=DEVNULL,
            start_new_session=True,  # Ctrl-C stops them in order, through this process
        )
        _log.info("filter server started number=%d pid=%d", number, self._processes[number].pid)

    async def _look_after(self, number: int) -> None:
        while True:
            status = await self._processes[number].wait()
            _log.warning(
                "filter server has ended number=%d status=%d, it starts again in %.0f s",
                number,
                status,
                RESTART_S,
            )
            await asyncio.sleep(RESTART_S)
            await self._start(number)

    def _arguments(self, number: int) -> list[str]:
        """The settings that are not in the broker's file; others on this machine can read them."""
        settings, store = self._configuration.broker, self._configuration.store
        host, port = self._broker.address
        values = {
            "connectWhichBroker": format_address("127.0.0.1" if host in _EVERYWHERE else host, port),
            "filterServerIP": settings.broker_ip1,
            "bindAddress": settings.bind_address,
            "filterServerPort": "0",
            "filterServerMetricsPort": "0",
            # Each writes its own files, or none if the broker writes none.
            "logDir": "" if settings.log_dir is None else str(settings.log_dir / f"filtersrv-{number}"),
        }
        if settings.audit_log_file is not None:
            values["auditLogFile"] = f"{settings.audit_log_file}.filtersrv-{number}"
        if settings.authentication:
            values["authConfigPath"] = str(settings.auth_config_path or store.root / "config")
        file = [] if settings.config_path is None else ["-c", str(settings.config_path)]
        return file + [part for key, value in values.items() for part in ("-o", f"{key}={value}")]
