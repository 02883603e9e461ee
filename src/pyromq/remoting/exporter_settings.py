"""The settings of exporters, the same for every server and under the keys of Apache's broker."""
# ruff: noqa: E501, RUF009 (a table: one line per setting, however long)

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

from pyromq.config.kinds import POSITIVE, Millis
from pyromq.config.options import HIDDEN, setting
from pyromq.config.settings import Settings
from pyromq.errors import ConfigError

MetricsExporter = Literal["PROM", "OTLP_GRPC", "LOG"]

_EXPORTERS: tuple[MetricsExporter, ...] = ("PROM", "OTLP_GRPC", "LOG")
_PAIRS = "name:value,name:value"


# fmt: off
@dataclass(frozen=True, kw_only=True, repr=False)
class ExporterSettings(Settings):
    # Metrics
    metrics_exporter: str = setting("DISABLE", "Where metrics go. PROM: served over HTTP. OTLP_GRPC: sent to an OpenTelemetry collector. LOG: written to the log. DISABLE: nowhere. Several are separated by commas.", key="metricsExporterType")
    metrics_target: str = setting("", "Address of the collector of OTLP_GRPC, as http://host:4317 or https://host:4317. Without http:// or https://, the server uses TLS.", key="metricsGrpcExporterTarget", local=True)
    metrics_headers: str = setting("", "Headers sent to the collector of OTLP_GRPC, as name:value,name:value.", key="metricsGrpcExporterHeader", secret=True)
    metrics_trust_path: Path | None = setting(None, "Trusted certificates for verifying the collector of OTLP_GRPC, PEM. If empty, those that gRPC trusts.", key="metricsGrpcExporterTrustCertPath")
    metrics_timeout_ms: Millis = setting(3000, "How long the server waits for the collector of OTLP_GRPC to answer.", key="metricGrpcExporterTimeOutInMills", check=POSITIVE)
    metrics_interval_ms: Millis = setting(60_000, "How often OTLP_GRPC sends metrics.", key="metricGrpcExporterIntervalInMills", check=POSITIVE)
    metrics_log_interval_ms: Millis = setting(10_000, "How often LOG writes metrics.", key="metricLoggingExporterIntervalInMills", check=POSITIVE)
    metrics_in_delta: bool = setting(False, "For OTLP_GRPC and LOG: counters and histograms report what was added since the last time, not since the start.", key="metricsInDelta")
    metrics_batch: int = setting(1000, "Maximum number of data points in one request of OTLP_GRPC, or in one line of LOG.", key="metricsExportBatchMaxDataPoints", check=POSITIVE)
    metrics_labels: str = setting("", "Labels added to every metric, as name:value,name:value.", key="metricsLabel")
    # fmt: on

    def verify_together(self) -> None:
        super().verify_together()
        chosen = self.metric_exporters
        _ = self.metric_labels, self.metric_headers  # reading them checks them
        if "OTLP_GRPC" in chosen:
            _ = self.metrics_collector
        if "LOG" in chosen and getattr(self, "log_level", "INFO") not in ("DEBUG", "INFO"):
            raise ConfigError("metricsExporterType", self.metrics_exporter, "logLevel to be INFO, which LOG writes at")

    @property
    def metric_exporters(self) -> frozenset[MetricsExporter]:
        named = {each.strip().upper() for each in self.metrics_exporter.split(",")}
        if named == {"DISABLE"}:
            return frozenset()
        found = frozenset(each for each in _EXPORTERS if each in named)
        if len(found) != len(named):
            raise ConfigError("metricsExporterType", self.metrics_exporter, f"DISABLE, or some of {', '.join(_EXPORTERS)}")
        return found

    @property
    def metrics_collector(self) -> tuple[str, bool]:
        """The address of the collector, and whether it is reached by TLS."""
        # java: an address that does not begin with http is one with TLS
        target = self.metrics_target if self.metrics_target.startswith("http") else f"https://{self.metrics_target}"
        expected = "http://host:port, because metricsExporterType names OTLP_GRPC"
        try:
            parts = urlsplit(target)
            if parts.scheme not in ("http", "https") or not parts.hostname or parts.path.strip("/"):
                raise ConfigError("metricsGrpcExporterTarget", self.metrics_target, expected)
            port = parts.port or 4317
        except ValueError:
            raise ConfigError("metricsGrpcExporterTarget", self.metrics_target, expected) from None
        host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
        return f"{host}:{port}", parts.scheme == "https"

    @property
    def metric_headers(self) -> Mapping[str, str]:
        found = _pairs(self.metrics_headers)
        if found is None or not all(name.isascii() and name.replace("-", "").replace("_", "").replace(".", "").isalnum() for name in found):
            raise ConfigError("metricsGrpcExporterHeader", HIDDEN, _PAIRS)
        return {name.lower(): value for name, value in found.items()}

    @property
    def metric_labels(self) -> Mapping[str, str]:
        found = _pairs(self.metrics_labels)
        if found is None or not all(name.isascii() and name.isidentifier() for name in found):
            raise ConfigError("metricsLabel", self.metrics_labels, _PAIRS)
        return found


def _pairs(text: str) -> dict[str, str] | None:
    """None if it has a pair without a colon."""
    found: dict[str, str] = {}
    for pair in filter(None, map(str.strip, text.split(","))):
        name, colon, value = pair.partition(":")
        if not colon:
            return None
        found[name.strip()] = value.strip()
    return found
