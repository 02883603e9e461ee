"""Connections and requests, in metrics that Apache does not have."""

from collections.abc import Callable, Iterable

from pyromq.metrics import Metrics
from pyromq.remoting.server import ServerStatistics


def register_traffic(
    metrics: Metrics, traffic: Callable[[], Iterable[ServerStatistics]], held_pulls: Callable[[], int]
) -> None:
    def total(figure: str) -> Callable[[], int]:
        return lambda: sum(getattr(each, figure) for each in traffic())

    metrics.gauge("pyromq_broker_held_pulls", "Pulls that wait for messages.", held_pulls)
    metrics.gauge("pyromq_broker_connections", "Open connections.", total("connections"))
    metrics.gauge("pyromq_broker_in_flight_requests", "Requests not answered yet.", total("in_flight"))
    for figure, sentence in (
        ("frames_read", "Frames read."),
        ("busy_answers", "Requests answered SYSTEM_BUSY because a limit was reached."),
        ("unsupported_requests", "Requests that the broker does not serve."),
        ("closed_for_bad_input", "Connections closed because of invalid input."),
        ("closed_for_idling", "Connections closed because they were idle."),
        ("closed_for_not_reading", "Connections closed because they did not read their answers."),
    ):
        metrics.read_counter(f"pyromq_broker_{figure}_total", sentence, total(figure))
