"""The metrics of the console: numbers alone, no names of topics, groups or people."""

from collections.abc import Callable, Mapping

from pyromq.console.clusters import Clusters, ShownCluster
from pyromq.console.state import State
from pyromq.metrics import Labels, Metrics


def console_metrics(state: State) -> Metrics:
    metrics = Metrics(state.settings.metric_labels)
    metrics.gauge("pyromq_console_sessions", "People who are logged in.", lambda: len(state.sessions))
    if (alerts := state.alerts) is not None:
        metrics.read_counter(
            "pyromq_console_alerts_sent", "Alerts posted to webhookUrl.", lambda: alerts.sent
        )
        metrics.read_counter(
            "pyromq_console_alerts_dropped", "Alerts that could not be posted.", lambda: alerts.dropped
        )
    metrics.labelled_read_counter(
        "pyromq_console_questions",
        "Requests to the servers of a cluster.",
        lambda: {(name,): shown.watch.asked for name, shown in state.clusters.items()},
        ("cluster",),
    )

    def age_s(shown: ShownCluster) -> float:
        at_ms = shown.snapshot.at_ms
        return max(0, state.clock.now_ms() - at_ms) / 1000 if at_ms else float("nan")

    figures: dict[str, tuple[str, Callable[[ShownCluster], float]]] = {
        "snapshot_age_seconds": ("Age of what the pages show.", age_s),
        "brokers": ("Brokers.", lambda shown: len(shown.snapshot.brokers)),
        "brokers_silent": ("Brokers that do not answer.", lambda shown: len(shown.snapshot.silent)),
        "topics": ("Topics.", lambda shown: len(shown.snapshot.topics)),
        "groups": ("Consumer groups.", lambda shown: len(shown.snapshot.groups)),
        "problems": ("Problems that the overview shows.", lambda shown: len(shown.snapshot.problems)),
    }
    for name, (sentence, read) in figures.items():
        metrics.labelled_gauge(
            f"pyromq_console_{name}", sentence, _of_each(state.clusters, read), ("cluster",)
        )
    return metrics


def _of_each(
    clusters: Clusters, read: Callable[[ShownCluster], float]
) -> Callable[[], Mapping[Labels, float]]:
    return lambda: {(name,): read(shown) for name, shown in clusters.items()}
