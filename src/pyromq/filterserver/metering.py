"""The metrics of a filter server."""

from collections.abc import Callable, Mapping

from pyromq.metrics import Metrics
from pyromq.protocol.catalogue import Declaration
from pyromq.protocol.codes import code_name

_SECONDS = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0)


class FilterMetering:
    def __init__(self, labels: Mapping[str, str]) -> None:
        self.metrics = Metrics(dict(labels))
        self.failures = self.metrics.counter(
            "pyromq_filter_failures",
            "Pulls that a filter failed: error, or ended for taking too much.",
            ("kind",),
        )
        names = ("consumer_group", "topic")
        self._examined = self.metrics.counter(
            "pyromq_filter_examined_messages", "Messages that filters have seen.", names
        )
        self._passed = self.metrics.counter("pyromq_filter_passed_messages", "Messages that matched.", names)
        self._passed_bytes = self.metrics.counter(
            "pyromq_filter_passed_bytes", "Bytes of messages that matched.", names
        )
        self._requests = self.metrics.counter(
            "pyromq_filter_requests", "Requests handled.", ("request", "result")
        )
        self._latency = self.metrics.histogram(
            "pyromq_filter_request_seconds",
            "Duration of requests; pulls wait for messages.",
            ("request",),
            _SECONDS,
        )

    def __repr__(self) -> str:
        return f"<FilterMetering {self.metrics!r}>"

    def watch_filters(self, count: Callable[[], int]) -> None:
        self.metrics.gauge("pyromq_filter_filters", "Filters, each with a process of its own.", count)

    def filtered(self, group: str, topic: str, examined: int, passed: int, passed_bytes: int) -> None:
        self._examined.add((group, topic), examined)
        self._passed.add((group, topic), passed)
        self._passed_bytes.add((group, topic), passed_bytes)

    def request_handled(
        self, declaration: Declaration | None, code: int, result_code: int, seconds: float, waited: bool
    ) -> None:
        # Anyone may send any code: all unknown ones count as one.
        name = "unknown" if declaration is None else declaration.name
        self._requests.add((name, code_name(result_code)))
        self._latency.observe(seconds, (name,))
