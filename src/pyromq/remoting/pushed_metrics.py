"""Metrics that a server sends by itself, at intervals: to a collector over gRPC, or into its log.

Reading them takes turns with other work of the loop; sending and encoding happen in a thread.
"""

import asyncio
import logging
import os
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from pyromq.clock import Clock
from pyromq.errors import ConfigError, PyroError, TransportError
from pyromq.metrics import Measured
from pyromq.remoting.exporter_settings import ExporterSettings

if TYPE_CHECKING:
    from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

    from pyromq.remoting.otlp import OtlpMetrics

_log = logging.getLogger(__name__)
_lines = logging.getLogger("pyromq.metrics")

_EXPORT = "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export"


class MetricsSink(Protocol):
    def open(self) -> None:
        """Raises ConfigError."""
        ...

    def send(self, request: "ExportMetricsServiceRequest") -> None:
        """Called in a thread. Raises TransportError."""
        ...

    def close(self) -> None: ...


class PushedMetrics:
    """Reads and sends the metrics of a server until it ends, and a last time then."""

    address = None

    def __init__(
        self, sink: MetricsSink, interval_ms: int, settings: ExporterSettings, service: str, clock: Clock
    ) -> None:
        self._sink = sink
        self._interval_s = interval_ms / 1000
        self._settings = settings
        self._service = service
        self._clock = clock
        self._measured: Measured | None = None
        self._otlp: OtlpMetrics | None = None
        self._pushing: asyncio.Task[None] | None = None
        self._failures = 0

    def __repr__(self) -> str:
        return f"<PushedMetrics {self._sink!r} every={self._interval_s}s failures={self._failures}>"

    async def start(self) -> None:
        try:
            from pyromq.remoting.otlp import OtlpMetrics

            await asyncio.to_thread(self._sink.open)
        except ImportError as problem:
            kind, needed = self._settings.metrics_exporter, f"pip install 'pyromq[otlp]' ({problem})"
            raise ConfigError("metricsExporterType", kind, needed) from None
        self._otlp = OtlpMetrics(
            {
                "service.name": f"pyromq-{self._service}",
                "host.name": socket.gethostname(),
                "process.pid": str(os.getpid()),
            },
            started_ns=self._clock.now_ms() * 1_000_000,
            is_delta=self._settings.metrics_in_delta,
            max_points=self._settings.metrics_batch,
        )

    def show(self, measured: Measured) -> None:
        self._measured = measured
        self._pushing = asyncio.create_task(self._push_again_and_again(), name="metrics")

    async def finish(self) -> None:
        if self._pushing is not None:
            self._pushing.cancel()
            await asyncio.wait([self._pushing])
            await self._push()

    async def stop(self) -> None:
        self._sink.close()

    async def _push_again_and_again(self) -> None:
        while True:
            await asyncio.sleep(self._interval_s)
            await self._push()

    async def _push(self) -> None:
        assert self._measured is not None
        assert self._otlp is not None
        try:
            for batch in self._otlp.batches(self._measured.families(), self._clock.now_ms() * 1_000_000):
                if batch is None:
                    await asyncio.sleep(0)
                    continue
                await asyncio.to_thread(self._sink.send, batch.request)
                self._otlp.arrived(batch)
        except PyroError as problem:
            self._failures += 1
            if self._failures == 1:
                _log.warning("metrics were not sent sink=%r: %s", self._sink, problem)
        except Exception:  # a figure that cannot be read must not end all others
            _log.exception("metrics could not be read")
        else:
            if self._failures:
                _log.info("metrics are sent again sink=%r failures=%d", self._sink, self._failures)
            self._failures = 0


class Collector:
    """An OpenTelemetry collector, reached by OTLP over gRPC."""

    def __init__(
        self, target: str, uses_tls: bool, trust: Path | None, headers: Mapping[str, str], timeout_ms: int
    ) -> None:
        self._target = target
        self._uses_tls = uses_tls
        self._trust = trust
        self._headers = tuple(headers.items())
        self._timeout_s = timeout_ms / 1000
        self._channel: Any = None
        self._export: Any = None

    def __repr__(self) -> str:
        return f"<Collector {self._target}>"

    def open(self) -> None:
        import grpc
        from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2 as service

        # The other connections of servers use no proxies either.
        options = [("grpc.enable_http_proxy", 0)]
        if self._uses_tls:
            credentials = grpc.ssl_channel_credentials(self._trusted())
            self._channel = grpc.secure_channel(self._target, credentials, options)
        else:
            self._channel = grpc.insecure_channel(self._target, options)
        self._export = self._channel.unary_unary(
            _EXPORT,
            request_serializer=service.ExportMetricsServiceRequest.SerializeToString,
            response_deserializer=service.ExportMetricsServiceResponse.FromString,
        )

    def send(self, request: "ExportMetricsServiceRequest") -> None:
        import grpc

        try:
            answer = self._export(request, timeout=self._timeout_s, metadata=self._headers)
        except grpc.RpcError as problem:
            raise TransportError(f"{problem.code().name}: {problem.details()}") from None
        if answer.partial_success.rejected_data_points or answer.partial_success.error_message:
            _log.warning(
                "the collector refused metrics points=%d: %s",
                answer.partial_success.rejected_data_points,
                answer.partial_success.error_message,
            )

    def close(self) -> None:
        if self._channel is not None:
            self._channel.close()

    def _trusted(self) -> bytes | None:
        try:
            return self._trust.read_bytes() if self._trust is not None else None
        except OSError as problem:
            raise ConfigError(
                "metricsGrpcExporterTrustCertPath", self._trust, f"a readable file ({problem.strerror})"
            ) from None


class LogLines:
    """java: each request as a line of JSON, in the form that OpenTelemetry gives it."""

    def __repr__(self) -> str:
        return "<LogLines>"

    def open(self) -> None:
        from google.protobuf import json_format  # noqa: F401  (loads it before the first line)

    def send(self, request: "ExportMetricsServiceRequest") -> None:
        from google.protobuf.json_format import MessageToJson

        for metrics in request.resource_metrics:
            _lines.info("%s", MessageToJson(metrics, indent=None, use_integers_for_enums=True))

    def close(self) -> None:
        pass
