"""The metrics of a front: calls are counted as they end, the rest is read on request."""

from collections import Counter
from collections.abc import Callable

from pyromq.metrics import Metrics
from pyromq.proxy.clients import Clients
from pyromq.proxy.codes import Code
from pyromq.proxy.grpc.server import GrpcServer
from pyromq.proxy.grpc.status import GrpcCode
from pyromq.proxy.messages import enum_values
from pyromq.proxy.renewal import Renewal
from pyromq.proxy.settings import ProxySettings
from pyromq.proxy.transactions import ProxyTransactions

_CLIENT_TYPES = {number: name.lower() for name, number in enum_values("ClientType").items()}
_STATUSES = {int(code): code.name for kind in (Code, GrpcCode) for code in kind}


class ProxyMetering:
    def __init__(
        self,
        settings: ProxySettings,
        node: str,
        grpc: Callable[[], GrpcServer | None],
        clients: Clients,
    ) -> None:
        """`grpc`: the server, while it serves."""
        self._grpc = grpc
        # java: the labels of Apache's proxy
        labels = {"cluster": settings.cluster_name, "node_type": "proxy", "node_id": node}
        self.metrics = metrics = Metrics(
            {**settings.metric_labels, **labels, "proxy_mode": settings.mode.lower()}
        )
        metrics.gauge("rocketmq_proxy_up", "1 while the proxy takes calls.", lambda: self._is_ready)
        self._calls = metrics.counter(
            "pyromq_proxy_calls", "Calls that ended, by rpc and status.", ("rpc", "status")
        )
        self._seconds = metrics.histogram(
            "pyromq_proxy_call_seconds", "Time from a request to its answer, without streams.", ("rpc",)
        )
        metrics.labelled_gauge(
            "pyromq_proxy_open_calls", "Calls that are not over: streams, long polls and others.",
            self._open_calls, ("rpc",),
        )  # fmt: skip
        metrics.gauge("pyromq_proxy_connections", "Connections of clients.", lambda: len(grpc() or ()))
        metrics.labelled_gauge(
            "pyromq_proxy_clients",
            "Clients that have sent their settings.",
            lambda: {(_CLIENT_TYPES[kind],): count for kind, count in _kinds(clients).items()},
            ("client_type",),
        )

    def __repr__(self) -> str:
        return f"<ProxyMetering {self.metrics!r}>"

    def watch(self, renewal: Renewal, transactions: ProxyTransactions) -> None:
        self.metrics.gauge(
            "pyromq_proxy_held_messages",
            "Messages that are renewed for push consumers.",
            lambda: len(renewal),
        )
        self.metrics.read_counter(
            "pyromq_proxy_renewals", "Times that messages were hidden for longer.", lambda: renewal.renewed
        )
        self.metrics.gauge(
            "pyromq_proxy_open_transactions",
            "Transactions that can be ended here without a check.",
            lambda: len(transactions),
        )

    def call_ended(self, rpc: str, status: int, seconds: float | None) -> None:
        """`seconds`: None for a stream."""
        self._calls.add((rpc, _STATUSES.get(status) or str(status)))
        if seconds is not None:
            self._seconds.observe(seconds, (rpc,))

    @property
    def _is_ready(self) -> bool:
        grpc = self._grpc()
        return grpc is not None and not grpc.is_draining

    def _open_calls(self) -> dict[tuple[str, ...], float]:
        grpc = self._grpc()
        return {} if grpc is None else {(name,): count for name, count in grpc.open_calls().items()}


def _kinds(clients: Clients) -> Counter[int]:
    return Counter(int(client.settings.client_type) for client in clients)
