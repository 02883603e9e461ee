"""Exporters: where the metrics of a server go. Nothing else knows which exporters there are.

An exporter runs from before a server opens its files until everything is closed. Until the server has
started it has nothing to show.
"""

import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Protocol, TypeAlias

from pyromq.clock import Clock
from pyromq.metrics import Measured, content_type, text_of
from pyromq.remoting.exporter_settings import ExporterSettings
from pyromq.remoting.pushed_metrics import Collector, LogLines, PushedMetrics

if TYPE_CHECKING:
    from pyromq.remoting.http_status import Answer, HttpStatus, Page

_log = logging.getLogger(__name__)

TextPage: TypeAlias = Callable[[], tuple[int, str]]
"""Status and text."""

_TEXT = "text/plain; charset=utf-8"


class Exporter(Protocol):
    @property
    def address(self) -> tuple[str, int] | None:
        """Where it listens, if it does."""
        ...

    async def start(self) -> None:
        """Raises OSError."""
        ...

    def show(self, measured: Measured) -> None:
        """The server has started."""
        ...

    async def finish(self) -> None:
        """The server accepts nothing more, and its parts will be closed: the last figures are there."""
        ...

    async def stop(self) -> None: ...


def exporters(
    settings: ExporterSettings,
    service: str,
    address: tuple[str, int],
    pages: Mapping[str, TextPage],
    clock: Clock,
) -> list[Exporter]:
    """The exporters that the settings ask for. `pages`: others that one with an HTTP port serves."""
    chosen = settings.metric_exporters
    found: list[Exporter] = []
    if "PROM" in chosen:
        found.append(PrometheusPages(address, pages, clock))
    if "OTLP_GRPC" in chosen:
        collector = Collector(
            *settings.metrics_collector,
            settings.metrics_trust_path,
            settings.metric_headers,
            settings.metrics_timeout_ms,
        )
        found.append(PushedMetrics(collector, settings.metrics_interval_ms, settings, service, clock))
    if "LOG" in chosen:
        found.append(PushedMetrics(LogLines(), settings.metrics_log_interval_ms, settings, service, clock))
    return found


class PrometheusPages:
    """Metrics for Prometheus, health, and the pages of a server, over HTTP."""

    def __init__(self, address: tuple[str, int], pages: Mapping[str, TextPage], clock: Clock) -> None:
        self._wanted = address
        self._pages = pages
        self._clock = clock
        self._http: HttpStatus | None = None
        self._measured: Measured | None = None

    def __repr__(self) -> str:
        return f"<PrometheusPages {self._http!r}>"

    @property
    def address(self) -> tuple[str, int] | None:
        return self._http.address if self._http is not None else None

    async def start(self) -> None:
        from pyromq.remoting.http_status import HttpStatus

        content_type()  # load its modules before clients come
        pages = {path: self._page(page) for path, page in self._pages.items()}
        self._http = HttpStatus({"/metrics": self._metrics, "/health": _health, **pages}, clock=self._clock)
        await self._http.start(*self._wanted)
        _log.info("serving metrics and health address=%s:%d", *self._http.address)

    def show(self, measured: Measured) -> None:
        self._measured = measured

    async def finish(self) -> None:
        """The pages stay: probes see that it ends."""

    async def stop(self) -> None:
        if self._http is not None:
            await self._http.stop()

    def _page(self, page: TextPage) -> "Page":
        def answer() -> "Answer":
            status, text = page() if self._measured is not None else (503, "starting\n")
            return status, _TEXT, text.encode()

        return answer

    async def _metrics(self) -> "Answer":
        from pyromq.remoting.http_status import in_turns

        if self._measured is None:
            return 503, _TEXT, b"starting\n"
        return 200, content_type(), await in_turns(text_of(self._measured.families()))


def _health() -> "Answer":
    return 200, _TEXT, b"alive\n"
