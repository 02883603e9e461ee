"""The console as a server: started, run and stopped like the others; uvicorn does the HTTP."""

import asyncio
import contextlib
from collections.abc import Iterator
from contextlib import AsyncExitStack
from typing import ClassVar

import anyio
import uvicorn

from pyromq.clock import SystemClock
from pyromq.console.app import make_app
from pyromq.console.bodies import Decode
from pyromq.console.metering import console_metrics
from pyromq.console.rendering import compile_all
from pyromq.console.security.users import Users
from pyromq.console.settings import ConsoleSettings
from pyromq.console.state import State
from pyromq.errors import ConfigError
from pyromq.metrics import Metrics
from pyromq.remoting.addresses import format_address
from pyromq.remoting.exporters import exporters
from pyromq.remoting.ports import Ports
from pyromq.remoting.program import Program, Work

_STOPPING_S = 2
_MAX_CONNECTIONS = 2000


class _Uvicorn(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """The program has its own handling of signals."""
        yield


class Console(Program):
    NAME = "console"
    COLLECT_AT: ClassVar[tuple[int, int, int]] = (2_000, 5, 100)
    """For the garbage collector: pages and connections make many objects; a look at 50,000 takes 50 ms."""

    def __init__(self, settings: ConsoleSettings, *, decode: Decode | None = None) -> None:
        """Raises ConfigError if it would listen beyond this machine without users. `decode` reads bodies that
        name a schema."""
        super().__init__(exporters(settings, settings.PART, ("", 0), {}, SystemClock()))
        self.settings = settings
        users = Users(settings.users_file).load()
        self.first_password: str | None = None
        """The password of the first administrator, if this start made one; it is kept nowhere else."""
        if not len(users) and settings.anonymous_role == "NONE" and not settings.oidc_issuer:
            if not settings.is_on_loopback:
                raise ConfigError(
                    "bindAddress",
                    settings.bind_address,
                    "a loopback address, because there are no users: `pyromq console user add NAME` adds one",
                )
            self.first_password = users.make_first()
        self.state = State(settings, users, decode=decode)
        self._port = settings.listen_port

    def __repr__(self) -> str:
        return f"<Console {self.url}>"

    @property
    def url(self) -> str:
        scheme = "https" if self.settings.tls_cert_path is not None else "http"
        return (
            f"{scheme}://{format_address(self.settings.bind_address, self._port)}{self.settings.base_path}/"
        )

    async def _open(self, opened: AsyncExitStack) -> None:
        compile_all()
        async with anyio.create_task_group():
            pass  # the first stream would have to load what this needs
        settings = self.settings
        listener = Ports().listen(settings.bind_address, settings.listen_port)
        self._port = listener.getsockname()[1]
        config = uvicorn.Config(
            make_app(self.state),
            http="h11",
            ws="none",
            lifespan="off",
            log_config=None,
            log_level="warning",
            access_log=False,
            proxy_headers=False,
            server_header=False,
            limit_concurrency=_MAX_CONNECTIONS,
            timeout_graceful_shutdown=_STOPPING_S,
            ssl_certfile=settings.tls_cert_path,
            ssl_keyfile=settings.tls_key_path,
        )
        try:
            config.load()
        except OSError as problem:
            listener.close()
            raise ConfigError(
                "tlsCertPath", settings.tls_cert_path, f"a certificate and its key: {problem}"
            ) from None
        await self.state.open()
        opened.push_async_callback(self.state.close)
        self._server, self._listener = _Uvicorn(config), listener

    def _work(self) -> Work:
        return {"console": self._server.serve([self._listener])}

    async def _settle(self) -> None:
        # uvicorn has no event for this; the socket accepts connections already.
        while not self._server.started and not self._background["console"].done():  # noqa: ASYNC110
            await asyncio.sleep(0.005)

    async def _drain(self) -> None:
        self.state.is_stopping = True
        self._server.should_exit = True
        await self._background["console"]

    def _measured(self) -> Metrics:
        return console_metrics(self.state)

    def _described(self) -> str:
        return f"url={self.url}"
