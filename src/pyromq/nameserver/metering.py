"""The metrics of a name server, for Prometheus."""

from dataclasses import dataclass

from pyromq.metrics import Distribution, Labels, Metrics
from pyromq.nameserver.kv_table import KvTable
from pyromq.nameserver.readiness import Readiness
from pyromq.nameserver.route_table import RouteTable
from pyromq.nameserver.watch import Watches
from pyromq.protocol.catalogue import Declaration, declaration_of
from pyromq.protocol.codes import ResponseCode
from pyromq.protocol.requests.routes import GetRoute
from pyromq.remoting.channel import Channel

_UNKNOWN = "unknown"
_GET_ROUTE = declaration_of(GetRoute)
_FOUND = (str(_GET_ROUTE.code), _GET_ROUTE.name, ResponseCode.SUCCESS.name)


@dataclass(frozen=True, slots=True)
class FoundQueries:
    """Where the fast path counts the route queries that it has answered."""

    counts: dict[Labels, int]
    labels: Labels
    distribution: Distribution
    bounds: tuple[float, ...]


class NameServerMetering:
    """Counts every request; reads all other figures when metrics are requested."""

    def __init__(
        self,
        metrics: Metrics,
        table: RouteTable,
        kv: KvTable,
        watches: Watches[Channel],
        readiness: Readiness,
    ) -> None:
        self._metrics = metrics
        self._requests = metrics.counter(
            "pyromq_namesrv_requests", "Requests handled, by code and result.", ("code", "request", "result")
        )
        self._seconds = metrics.histogram(
            "pyromq_namesrv_request_seconds", "Time from reading a request to its answer.", ("request",)
        )
        self.departures = metrics.counter(
            "pyromq_namesrv_broker_departures",
            "Brokers that left the routes: unregistered, disconnected or silent for too long.",
            ("reason",),
        )
        # Alerts see the first one of its kind only if the count was there before.
        for reason in ("unregistered", "disconnected", "expired"):
            self.departures.add((reason,), 0)
        self._labels: dict[tuple[int, int], tuple[str, str, str]] = {}
        metrics.labelled_gauge(
            "pyromq_namesrv_table_size",
            "Entries of each table.",
            lambda: {(name,): size for name, size in _sizes(table, kv).items()},
            ("table",),
        )
        metrics.gauge(
            "pyromq_namesrv_live_brokers",
            "Broker processes that are alive.",
            lambda: table.sizes().live_brokers,
        )
        metrics.gauge(
            "pyromq_namesrv_ready", "1 once route queries are answered.", lambda: readiness.is_ready
        )
        metrics.gauge("pyromq_namesrv_watches", "Routes that clients watch.", lambda: len(watches))
        metrics.gauge(
            "pyromq_namesrv_watching_connections",
            "Connections that watch routes.",
            lambda: watches.connections,
        )
        metrics.read_counter(
            "pyromq_namesrv_route_encodings",
            "Routes that had to be encoded.",
            lambda: table.answers.encodings,
        )
        metrics.read_counter(
            "pyromq_namesrv_repeated_registrations",
            "Registrations that brought no news.",
            lambda: table.repetitions,
        )

    def __repr__(self) -> str:
        return f"<NameServerMetering {self._metrics!r}>"

    def request_handled(
        self, declaration: Declaration | None, code: int, result_code: int, seconds: float, waited: bool
    ) -> None:
        labels = self._labels.get((code, result_code))
        if labels is None:
            labels = self._new_labels(declaration, code, result_code)
        self._requests.add(labels)
        self._seconds.observe(seconds, (labels[1],))

    def found_queries(self) -> FoundQueries:
        counts, seconds = self._requests.counts, self._seconds
        return FoundQueries(counts, _FOUND, seconds.of(_FOUND[1:2]), seconds.bounds)

    def _new_labels(
        self, declaration: Declaration | None, code: int, result_code: int
    ) -> tuple[str, str, str]:
        try:
            result = ResponseCode(result_code).name
        except ValueError:
            result = str(result_code)
        if declaration is None:  # Clients may send any code: all unknown ones count as one.
            return _UNKNOWN, _UNKNOWN, result
        labels = self._labels[code, result_code] = (str(code), declaration.name, result)
        return labels


def _sizes(table: RouteTable, kv: KvTable) -> dict[str, float]:
    sizes = table.sizes()
    return {
        "topics": sizes.topics,
        "layouts": sizes.layouts,
        "topic_broker_pairs": sizes.topic_broker_pairs,
        "broker_groups": sizes.broker_groups,
        "clusters": sizes.clusters,
        "live_brokers": sizes.live_brokers,
        "filter_servers": sizes.filter_servers,
        "static_topics": sizes.static_topics,
        "kv_entries": len(kv),
    }
