"""The first page of a cluster: what is wrong, then how much goes through it."""

from collections.abc import Sequence
from heapq import nsmallest

from pyromq.console.charts import chart, span_of
from pyromq.console.listing import Key, listed
from pyromq.console.page import Data
from pyromq.console.pages.topics import known_topics
from pyromq.console.visit import Visit
from pyromq.console.watch.values import BrokerView, Problem, Severity

_SHOWN = 20
"""More problems than these are on their own page."""
_BROKERS_SHOWN = 20
"""The page shows at most this many brokers: silent ones first, then those with the fullest disks."""
_ORDER = {severity: place for place, severity in enumerate(Severity)}
_KEYS: dict[str, Key[Problem]] = {
    "severity": lambda problem: (_ORDER[problem.severity], -problem.since_ms),
    "since": lambda problem: problem.since_ms,
}


async def show(visit: Visit) -> Data:
    snapshot, shown = visit.snapshot, visit.shown
    assert shown is not None
    span_s = span_of(visit)
    lags = [group.lag for group in snapshot.groups.values() if group.lag is not None and not group.is_system]
    return {
        "at_ms": snapshot.at_ms,
        "problems": snapshot.problems,
        "shown": _SHOWN,
        "in_per_s": snapshot.in_per_s,
        "out_per_s": snapshot.out_per_s,
        "lag": sum(lags) if lags else None,
        "topics": len(known_topics(shown, with_system=False)),
        "groups": sum(not group.is_system for group in snapshot.groups.values()),
        "brokers": snapshot.brokers,
        "_worst_brokers": _worst(snapshot.brokers),
        "name_servers": snapshot.name_servers,
        "chart": chart(visit, span_s, ("cluster", "", "in"), ("cluster", "", "out")),
        "lag_chart": chart(visit, span_s, ("cluster", "", "lag")),
        "span": visit.text("span", "1h"),
    }


def _worst(brokers: Sequence[BrokerView]) -> Sequence[BrokerView]:
    if len(brokers) <= _BROKERS_SHOWN:
        return brokers
    return nsmallest(
        _BROKERS_SHOWN, brokers, key=lambda each: (each.told.is_answering, -(each.disk_ratio or 0.0))
    )


async def problems(visit: Visit) -> Data:
    """The standing problems, the worst first."""
    severity = visit.text("severity")
    only = (lambda problem: problem.severity == severity) if severity else None
    page = listed(
        visit, visit.snapshot.problems, _KEYS, name=lambda problem: problem.name, sort="severity", only=only
    )
    alerts = visit.state.alerts
    return {
        "problems": page.rows,
        "list": page,
        "severity": severity,
        "severities": list(Severity),
        "webhook_problem": "" if alerts is None else alerts.problem,
    }


async def clusters(visit: Visit) -> Data:
    """All clusters of this console, each with its problems."""
    found = [
        {
            "name": name,
            "namesrv": shown.namesrv,
            "is_first": shown.snapshot.is_first,
            "brokers": len(shown.snapshot.brokers),
            "silent": len(shown.snapshot.silent),
            "topics": len(shown.snapshot.topics),
            "groups": len(shown.snapshot.groups),
            "problems": len(shown.snapshot.problems),
            "in_per_s": shown.snapshot.in_per_s,
            "out_per_s": shown.snapshot.out_per_s,
        }
        for name, shown in visit.state.clusters.items()
    ]
    return {"found": found}
