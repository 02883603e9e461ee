"""Exporters: where the metrics of a server go. Nothing else knows which exporters there are.

An exporter runs from before a server opens its files until everything is closed. Until the server has
started it has nothing to show.
"""

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Literal, Protocol, TypeAlias

from pyromq.clock import Clock
from pyromq.metrics import content_type

if TYPE_CHECKING:
    from pyromq.remoting.http_status import Answer, HttpStatus, Page

_log = logging.getLogger(__name__)

MetricsExporter = Literal["DISABLE", "PROM"]

TextPage: TypeAlias = Callable[[], tuple[int, str]]
"""Status and text."""

_TEXT = "text/plain; charset=utf-8"


class Measured(Protocol):
    def pieces(self) -> Iterable[bytes]:
        """All metrics as Prometheus reads them, in pieces: the loop does other work between them."""
        ...


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

    async def stop(self) -> None: ...


def exporters(
    kind: MetricsExporter, address: tuple[str, int], pages: Mapping[str, TextPage], clock: Clock
) -> list[Exporter]:
    """The exporters that the settings ask for. `pages`: others that one with an HTTP port serves."""
    return [PrometheusPages(address, pages, clock)] if kind == "PROM" else []


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
        return 200, content_type(), await in_turns(self._measured.pieces())


def _health() -> "Answer":
    return 200, _TEXT, b"alive\n"
