"""Metrics as OpenTelemetry's protocol has them: what Prometheus would read comes in, requests go out.

Names and labels are the same for both. Counts may be sent as additions since the last request that
arrived; additions that are lost on the way are part of the next request.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, InstrumentationScope, KeyValue
from opentelemetry.proto.metrics.v1.metrics_pb2 import AggregationTemporality, NumberDataPoint

from pyromq.version import version

if TYPE_CHECKING:
    from prometheus_client.core import Metric

_Series: TypeAlias = tuple[str, tuple[tuple[str, str], ...]]
_Values: TypeAlias = tuple[float, ...]

_DELTA = {"aggregation": "delta"}
"""java: a label that says how to read the numbers"""


class _Measure(NamedTuple):
    name: str
    labels: Mapping[str, str]
    values: _Values
    """A single number, or the sum of a histogram and the count of each bucket."""
    bounds: tuple[float, ...] | None = None
    """Of the buckets but the last one."""


@dataclass(slots=True)
class MetricsBatch:
    request: ExportMetricsServiceRequest
    at_ns: int
    points: int = 0
    read: dict[_Series, _Values] = field(default_factory=dict)


class OtlpMetrics:
    def __init__(
        self, resource: Mapping[str, str], *, started_ns: int, is_delta: bool = False, max_points: int = 1000
    ) -> None:
        self._resource = _attributes(resource)
        self._started_ns = started_ns
        self._is_delta = is_delta
        self._max_points = max_points
        self._arrived: dict[_Series, tuple[_Values, int]] = {}

    def __repr__(self) -> str:
        return f"<OtlpMetrics delta={self._is_delta} series={len(self._arrived)}>"

    def batches(self, families: "Iterable[Metric | None]", at_ns: int) -> Iterator[MetricsBatch | None]:
        """The next request; None while it is incomplete, so that other work can be done."""
        batch = self._new_batch(at_ns)
        for family in families:
            yield None
            if family is None:
                continue
            for measure in _measures(family):
                if batch.points == self._max_points:
                    yield batch
                    batch = self._new_batch(at_ns)
                self._add(batch, family, measure)
        if batch.points:
            yield batch

    def arrived(self, batch: MetricsBatch) -> None:
        """The collector has it: in deltas, the next one reports what came later."""
        for series, values in batch.read.items():
            self._arrived[series] = values, batch.at_ns

    def _new_batch(self, at_ns: int) -> MetricsBatch:
        request = ExportMetricsServiceRequest()
        metrics = request.resource_metrics.add()
        metrics.resource.attributes.extend(self._resource)
        metrics.scope_metrics.add(scope=InstrumentationScope(name="pyromq", version=version()))
        return MetricsBatch(request, at_ns)

    def _add(self, batch: MetricsBatch, family: "Metric", measure: _Measure) -> None:
        metrics = batch.request.resource_metrics[0].scope_metrics[0].metrics
        if not metrics or metrics[-1].name != measure.name:
            metrics.add(name=measure.name, description=family.documentation)
        metric, labels = metrics[-1], dict(measure.labels)
        batch.points += 1
        if family.type not in ("counter", "histogram"):
            metric.gauge.data_points.append(
                _number(measure.values[0], attributes=_attributes(labels), time_unix_nano=batch.at_ns)
            )
            return
        temporality = AggregationTemporality.AGGREGATION_TEMPORALITY_CUMULATIVE
        values, since_ns = measure.values, self._started_ns
        if self._is_delta:
            temporality = AggregationTemporality.AGGREGATION_TEMPORALITY_DELTA
            series = measure.name, tuple(sorted(labels.items()))
            batch.read[series] = values
            values, since_ns = self._added(series, values)
            labels |= _DELTA
        times = {"start_time_unix_nano": since_ns, "time_unix_nano": batch.at_ns}
        if measure.bounds is None:
            metric.sum.is_monotonic = True
            metric.sum.aggregation_temporality = temporality
            metric.sum.data_points.append(_number(values[0], attributes=_attributes(labels), **times))
        else:
            metric.histogram.aggregation_temporality = temporality
            metric.histogram.data_points.add(
                attributes=_attributes(labels),
                sum=values[0],
                count=int(sum(values[1:])),
                bucket_counts=map(int, values[1:]),
                explicit_bounds=measure.bounds,
                **times,
            )

    def _added(self, series: _Series, values: _Values) -> tuple[_Values, int]:
        """The additions since the last request that arrived, and the time of that request."""
        before, at_ns = self._arrived.get(series, (None, self._started_ns))
        if before is None or any(new < old for new, old in zip(values, before, strict=True)):
            return values, at_ns  # the first time, or the count began again, as that of a topic made anew
        return tuple(new - old for new, old in zip(values, before, strict=True)), at_ns


def _measures(family: "Metric") -> Iterator[_Measure]:
    if family.type != "histogram":
        for sample in family.samples:
            yield _Measure(sample.name, sample.labels, (sample.value,))
        return
    bounds: list[float] = []
    counts: list[int] = []
    below = 0
    for sample in family.samples:  # the buckets of a histogram, then its count, then its sum
        if sample.name.endswith("_bucket"):
            # Counts may be estimates; their buckets still add up to the whole.
            bounds.append(float(sample.labels["le"]))
            counts.append(round(sample.value) - below)
            below = round(sample.value)
        elif sample.name.endswith("_sum"):
            yield _Measure(family.name, sample.labels, (sample.value, *counts), tuple(bounds[:-1]))
            bounds, counts, below = [], [], 0


def _number(value: float, **fields: object) -> NumberDataPoint:
    if isinstance(value, int):
        return NumberDataPoint(as_int=int(value), **fields)  # type: ignore[arg-type]
    return NumberDataPoint(as_double=value, **fields)  # type: ignore[arg-type]


def _attributes(labels: Mapping[str, str]) -> list[KeyValue]:
    return [KeyValue(key=name, value=AnyValue(string_value=value)) for name, value in labels.items()]
