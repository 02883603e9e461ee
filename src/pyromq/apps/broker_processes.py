"""Several brokers on one machine, each in its own process: it uses a core, and can be killed.

The name server and the gRPC front run in this process, with replicas the controller, too. A broker that dies
is started again after a while; every new master is announced.
"""

import asyncio
import json
import logging
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from pyromq.apps import child_processes
from pyromq.apps.replica import READY
from pyromq.cluster.signing import signers
from pyromq.controller.controller import Controller
from pyromq.errors import PyroError, StateError
from pyromq.nameserver.nameserver import NameServer
from pyromq.protocol.requests.controller import GetReplicaInfo
from pyromq.remoting.addresses import format_address, parse_address
from pyromq.remoting.dialer import Dialer
from pyromq.standalone import StandaloneSettings

if TYPE_CHECKING:
    from pyromq.proxy.proxy import Proxy

_log = logging.getLogger(__name__)

RESTART_S = 10.0
_START_TIMEOUT_S = 60.0
_LOOK_S = 0.2
_CALL_S = 2.0


class BrokerProcesses:
    """`say` prints a line for the person who runs it."""

    def __init__(
        self, settings: StandaloneSettings, say: Callable[[str], None], *, is_secure: bool = False
    ) -> None:
        self.settings = settings
        self._say = say
        self._is_secure = is_secure
        self._name_server = NameServer(settings.name_server_settings())
        self._controller = Controller(settings.controller_settings()) if settings.replicas > 1 else None
        self._proxy: Proxy | None = None
        own = settings.controller_settings()
        self._dialer = Dialer(tls=own.tls_client, new_signer=signers(own.credentials))
        self._processes: dict[int, Process] = {}
        self._addresses: dict[int, str] = {}
        self._tasks: list[asyncio.Task[None]] = []
        self._masters: dict[str, str] = {}
        """Broker name to address; without replicas, all are masters and it is empty."""
        self._stopped = asyncio.Event()

    def __repr__(self) -> str:
        return f"<BrokerProcesses {self._name_server!r} brokers={len(self._processes)}>"

    @property
    def namesrv(self) -> str:
        return format_address(self.settings.reachable_host, self._name_server.address[1])

    @property
    def grpc_address(self) -> str:
        """For RocketMQ 5 clients; empty if there is no gRPC."""
        if self._proxy is None:
            return ""
        return format_address(self.settings.reachable_host, self._proxy.address[1])

    @property
    def addresses(self) -> list[tuple[str, int]]:
        """Where it can be reached, on `host` as it was given."""
        ports = [parse_address(address)[1] for address in self._addresses.values()]
        if self._proxy is not None:
            ports.append(self._proxy.address[1])
        return [(self.settings.host, port) for port in (self._name_server.address[1], *ports)]

    async def start(self) -> None:
        await self._name_server.start()
        try:
            if self._controller is not None:
                await self._controller.start()
            await asyncio.gather(*map(self._start_broker, range(self.settings.broker_count)))
            await self._find_masters()
            if self.settings.grpc_port is not None:
                proxy = self.settings.proxy(self.settings.grpc_port, self.namesrv)
                await proxy.start()
                self._proxy = proxy
        except BaseException:
            await self.stop()
            raise
        self._tasks = [asyncio.create_task(self._look_after(number)) for number in self._processes]
        if self._controller is not None:
            self._tasks.append(asyncio.create_task(self._announce_masters()))

    async def run_until_stopped(self) -> None:
        await self._stopped.wait()

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._proxy is not None:
            await self._proxy.stop()
        await asyncio.gather(*map(child_processes.end, self._processes.values()))
        await self._dialer.close()
        if self._controller is not None:
            await self._controller.stop()
        await self._name_server.stop()
        self._stopped.set()

    def lines(self) -> list[str]:
        """The list of brokers, and how to kill each."""
        shown = []
        for number, process in sorted(self._processes.items()):
            address = self._addresses[number]
            is_master = self._controller is None or address in self._masters.values()
            role = "master " if is_master else "replica"
            shown.append(f"  {self._name(number)}  {role}  {address}  kill -9 {process.pid}")
        return shown

    def _name(self, number: int) -> str:
        return self.settings.directory_of(number).name

    # Brokers

    async def _start_broker(self, number: int) -> None:
        settings = {
            "store": str(self.settings.store),
            "host": self.settings.host,
            "broker_port": self.settings.broker_port,
            "flush": self.settings.flush,
            "brokers": self.settings.brokers,
            "replicas": self.settings.replicas,
            "lite": self.settings.lite,
        }
        controller = self._controller.advertised_address if self._controller is not None else ""
        arguments = json.dumps([settings, self.namesrv, number, controller, self._is_secure])
        log = self.settings.store / f"{self._name(number)}.log"
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("ab") as stderr:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "pyromq.apps.replica", arguments),
                stdin=DEVNULL,
                stdout=PIPE,
                stderr=stderr,
                start_new_session=True,  # Ctrl-C stops them in order, through this process
            )
        self._processes[number] = process
        assert process.stdout is not None
        async with asyncio.timeout(_START_TIMEOUT_S):
            line = await process.stdout.readline()
        word, _, address = line.decode().strip().partition(" ")
        if word != READY:
            raise StateError(f"{self._name(number)} did not start: {_last_line(log)}")
        self._addresses[number] = address

    async def _look_after(self, number: int) -> None:
        while True:
            await self._processes[number].wait()
            self._say(f"{self._name(number)} has died; it starts again in {RESTART_S:.0f} s")
            await asyncio.sleep(RESTART_S)
            try:
                await self._start_broker(number)
            except (StateError, TimeoutError) as problem:
                self._say(f"{self._name(number)}: {problem}")
            else:
                pid = self._processes[number].pid
                self._say(f"{self._name(number)} is back; to kill it again: kill -9 {pid}")

    # Masters

    async def _announce_masters(self) -> None:
        while True:
            before = dict(self._masters)
            await self._find_masters()
            for broker_name, master in self._masters.items():
                if master != before.get(broker_name):
                    names = {address: self._name(number) for number, address in self._addresses.items()}
                    self._say(f"{names.get(master, master)} is the master now")
            await asyncio.sleep(_LOOK_S)

    async def _find_masters(self) -> None:
        if self._controller is None:
            return
        for broker_name in self.settings.broker_names():
            request = GetReplicaInfo(broker_name=broker_name)
            try:
                answer = await self._dialer.call(self._controller.advertised_address, request, _CALL_S)
            except PyroError as problem:
                _log.info("no word from the controller: %s", problem)
            else:
                if answer.master_address:
                    self._masters[broker_name] = answer.master_address


def _last_line(log: Path) -> str:
    lines = log.read_text(errors="replace").splitlines()
    return lines[-1] if lines else f"see {log}"
