"""A collector of OpenTelemetry's metrics, by gRPC's own server, that keeps what it gets."""

from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import grpc
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
    ExportMetricsServiceResponse,
)
from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric
from tests.support.certificates import CertificateFiles


@dataclass
class KeptMetrics:
    target: str = ""
    requests: list[ExportMetricsServiceRequest] = field(default_factory=list)
    headers: list[Mapping[str, str]] = field(default_factory=list)
    refusal: str = ""

    def metrics(self) -> dict[str, Metric]:
        """The last value of each metric by name."""
        return {
            metric.name: metric
            for request in self.requests
            for resource in request.resource_metrics
            for scope in resource.scope_metrics
            for metric in scope.metrics
        }

    def services(self) -> set[str]:
        return {
            attribute.value.string_value
            for request in self.requests
            for resource in request.resource_metrics
            for attribute in resource.resource.attributes
            if attribute.key == "service.name"
        }

    def export(self, request: ExportMetricsServiceRequest, context: Any) -> ExportMetricsServiceResponse:
        self.headers.append(dict(context.invocation_metadata()))
        self.requests.append(request)
        answer = ExportMetricsServiceResponse()
        if self.refusal:
            answer.partial_success.rejected_data_points = 1
            answer.partial_success.error_message = self.refusal
        return answer


@contextmanager
def otlp_collector(certificate: CertificateFiles | None = None) -> Iterator[KeptMetrics]:
    kept = KeptMetrics()
    handler = grpc.unary_unary_rpc_method_handler(
        kept.export,
        request_deserializer=ExportMetricsServiceRequest.FromString,
        response_serializer=ExportMetricsServiceResponse.SerializeToString,
    )
    service = "opentelemetry.proto.collector.metrics.v1.MetricsService"
    server = grpc.server(
        ThreadPoolExecutor(2), [grpc.method_handlers_generic_handler(service, {"Export": handler})]
    )
    if certificate is None:
        kept.target = f"http://127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    else:
        pair = certificate.key.read_bytes(), certificate.certificate.read_bytes()
        credentials = grpc.ssl_server_credentials([pair])
        kept.target = f"localhost:{server.add_secure_port('127.0.0.1:0', credentials)}"
    server.start()
    try:
        yield kept
    finally:
        server.stop(None).wait()
