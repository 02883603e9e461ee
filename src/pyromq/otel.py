"""OpenTelemetry for loops of the application: `pip install pyromq[otel]`.

Producers with `otel=True` make spans and put the trace context into messages, push consumers make spans
around handlers. Only a loop over a stream or over `poll` must say which part of it handles a message.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from opentelemetry import propagate
from opentelemetry.trace import Span

from pyromq.client import spans
from pyromq.client.values import ReceivedMessage

__all__ = ["processing", "trace_options"]


@contextmanager
def processing(messages: ReceivedMessage | Sequence[ReceivedMessage]) -> Iterator[Span]:
    """`with processing(message): ...` is the span of its handling, in the trace in which it was sent.

    With a list, the span is the beginning of a trace, with a link to each message.
    """
    with spans.processing(messages) as span:
        yield span


def trace_options() -> dict[str, str]:
    """For Spark: `df.write.format("rocketmq").options(**trace_options())` belongs to the current trace."""
    carried: dict[str, str] = {}
    propagate.inject(carried)
    return {"otel": "true"} | {name: text for name, text in carried.items() if name == "traceparent"}
