"""Metrics, figures, readiness and health over HTTP, from before the recovery of the store until the stop."""

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from pyromq.broker.metering.metering import BrokerMetering
from pyromq.broker.settings import BrokerSettings
from pyromq.clock import Clock
from pyromq.errors import StateError
from pyromq.metrics import content_type
from pyromq.store.message_store import MessageStore

if TYPE_CHECKING:
    from pyromq.remoting.http_status import HttpStatus

_log = logging.getLogger(__name__)

_TEXT = "text/plain; charset=utf-8"


class StatusPages:
    """Serves nothing unless the settings ask for it."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._http: HttpStatus | None = None
        self._metering: BrokerMetering | None = None
        self._store: MessageStore | None = None
        self._problem: Callable[[], str] = str
        self._figures: Callable[[], dict[str, str]] = dict

    def __repr__(self) -> str:
        return f"<StatusPages {self._http!r}>"

    @property
    def address(self) -> tuple[str, int]:
        """Raises StateError if there are no pages."""
        if self._http is None:
            raise StateError("metrics are off: metricsExporterType is not PROM")
        return self._http.address

    async def start(self, settings: BrokerSettings) -> None:
        if settings.metrics_exporter != "PROM":
            return
        from pyromq.remoting.http_status import HttpStatus

        content_type()  # load its modules before clients come
        self._http = HttpStatus(
            {
                "/metrics": self._metrics,
                "/status": self._status,
                "/ready": self._ready,
                "/health": _health,
            },
            clock=self._clock,
        )
        await self._http.start(settings.metrics_address or settings.broker_ip1, settings.metrics_port)

    def show(
        self,
        metering: BrokerMetering | None,
        store: MessageStore,
        problem: Callable[[], str],
        figures: Callable[[], dict[str, str]],
    ) -> None:
        """The broker has started: serve its metrics from now on. It is not ready if there is a `problem`.

        `figures`: what `mqadmin brokerStatus` shows.
        """
        self._metering = metering
        self._store = store
        self._problem = problem
        self._figures = figures

    async def stop(self) -> None:
        if self._http is not None:
            await self._http.stop()

    async def _metrics(self) -> tuple[int, str, bytes]:
        from pyromq.remoting.http_status import in_turns

        if self._metering is None:
            return 503, _TEXT, b"starting\n"
        return 200, content_type(), await in_turns(self._metering.pieces())

    def _status(self) -> tuple[int, str, bytes]:
        if self._store is None:
            return 503, _TEXT, b"starting\n"
        lines = [f"{name:<40}: {value}\n" for name, value in self._figures().items()]
        return 200, _TEXT, "".join(lines).encode()

    def _ready(self) -> tuple[int, str, bytes]:
        if self._store is None:
            return 503, _TEXT, b"starting\n"
        if self._store.faults:
            reason = self._store.statistics().fault_reason
            return 503, _TEXT, f"the store accepts no messages: {reason}\n".encode()
        if problem := self._problem():
            return 503, _TEXT, f"{problem}\n".encode()
        return 200, _TEXT, b"ready\n"


def _health() -> tuple[int, str, bytes]:
    return 200, _TEXT, b"alive\n"
