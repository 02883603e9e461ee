"""OpenTelemetry in Spark's tasks: a span for the rows that one task sends or receives.

Imported only with the option `otel`. Tasks run in other processes than the program: the option `traceparent`
says to which trace they belong.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from pyromq.errors import ConfigError
from pyromq.version import version

try:
    from opentelemetry import propagate, trace
    from opentelemetry.context import Context
    from opentelemetry.trace import Span, SpanKind, Status, StatusCode
except ImportError as _problem:
    raise ConfigError(
        "otel", True, f"OpenTelemetry on all executors: pip install 'pyromq[otel]' (no {_problem.name})"
    ) from None

_tracer = trace.get_tracer("pyromq", version(), schema_url="https://opentelemetry.io/schemas/1.44.0")


@contextmanager
def _task_span(operation: str, kind: SpanKind, topic: str | None, traceparent: str | None) -> Iterator[Span]:
    """Not made the current span: a task that is a generator shares its thread with whoever reads it."""
    parent = propagate.extract({"traceparent": traceparent} if traceparent else {}, Context())
    about = {
        "messaging.system": "rocketmq",
        "messaging.operation.name": operation,
        "messaging.operation.type": operation,
    }
    if topic is not None:
        about["messaging.destination.name"] = topic
    span = _tracer.start_span(f"{operation} {topic}" if topic else operation, parent, kind, about)
    try:
        yield span
    except Exception as problem:
        span.record_exception(problem)
        span.set_status(Status(StatusCode.ERROR, str(problem)))
        span.set_attribute("error.type", type(problem).__qualname__)
        raise
    finally:
        span.end()


@contextmanager
def sending(topic: str | None, traceparent: str | None) -> Iterator[tuple[Span, str | None]]:
    """The span, and the context that its messages carry; `topic` is None if rows name theirs."""
    with _task_span("send", SpanKind.PRODUCER, topic, traceparent) as span:
        carried: dict[str, str] = {}
        propagate.inject(carried, trace.set_span_in_context(span, Context()))
        yield span, carried.get("traceparent")


@contextmanager
def receiving(topic: str, group: str, traceparent: str | None) -> Iterator[Span]:
    with _task_span("receive", SpanKind.CLIENT, topic, traceparent) as span:
        span.set_attribute("messaging.consumer.group.name", group)
        yield span
