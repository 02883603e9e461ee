"""For `opentelemetry-instrument`: while it is on, clients that are made have spans, as with `otel=True`."""

from collections.abc import Collection
from typing import Any

from opentelemetry.instrumentation.instrumentor import BaseInstrumentor

from pyromq.client import tracing_choice


class PyromqInstrumentor(BaseInstrumentor):  # type: ignore[misc]
    """`PyromqInstrumentor().instrument()`; needs `opentelemetry-instrumentation`."""

    def instrumentation_dependencies(self) -> Collection[str]:
        return ("pyromq",)

    def _instrument(self, **kwargs: Any) -> None:
        tracing_choice.is_instrumented = True

    def _uninstrument(self, **kwargs: Any) -> None:
        tracing_choice.is_instrumented = False
