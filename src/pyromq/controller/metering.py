"""The metrics of a controller, under the names of Apache's controller."""

from collections.abc import Mapping

from pyromq.controller.liveness import Liveness
from pyromq.controller.store import ControllerStore, Leader
from pyromq.metrics import Metrics
from pyromq.protocol.catalogue import Declaration, declaration_of
from pyromq.protocol.codes import ResponseCode
from pyromq.protocol.requests.brokers import SendBrokerHeartbeat
from pyromq.remoting.channel import Channel

_FOLLOWER, _LEADER = 2, 3
_HEARTBEAT = declaration_of(SendBrokerHeartbeat)
# java: microseconds
_LATENCY_MICROSECONDS = (*(step * 10**power for power in range(7) for step in (1, 3, 5)), 10_000_000)
# java: an answer with such a code is not a failure
_SUCCEEDED = (ResponseCode.SUCCESS, ResponseCode.CONTROLLER_MASTER_STILL_EXIST)


class ControllerMetering:
    def __init__(
        self,
        own: Leader,
        group_name: str,
        store: ControllerStore,
        liveness: Liveness[Channel],
        labels: Mapping[str, str],
    ) -> None:
        self.metrics = Metrics({**labels, "address": own.address, "group": group_name, "peer_id": own.id})
        self._requests = self.metrics.counter(
            "request", "Requests handled.", ("request_type", "request_handle_status")
        )
        self._latency = self.metrics.histogram(
            "request_latency", "Microseconds of a request.", ("request_type",), _LATENCY_MICROSECONDS
        )
        self._elections = self.metrics.counter(
            "election", "Elections, by result.", ("cluster", "broker_set", "election_result")
        )
        self.metrics.gauge("role", "2 follows, 3 leads.", lambda: _LEADER if store.is_leading else _FOLLOWER)
        self.metrics.gauge(
            "dledger_disk_usage", "Bytes of the controller's journal.", lambda: store.size_bytes
        )
        self.metrics.labelled_gauge(
            "active_broker_num", "Brokers that are alive.", liveness.counts, ("cluster", "broker_set")
        )

    def __repr__(self) -> str:
        return f"<ControllerMetering {self.metrics!r}>"

    def count_election(self, cluster: str, group: str, result: str) -> None:
        self._elections.add((cluster, group, result))

    def request_handled(
        self, declaration: Declaration | None, code: int, result_code: int, seconds: float, waited: bool
    ) -> None:
        # Anyone may send any code: all unknown ones count as one.
        name = "unknown" if declaration is None else declaration.java_name.upper()
        # Brokers send heartbeats to every controller: those that follow have nothing to do with them.
        is_done = result_code in _SUCCEEDED or (
            declaration is _HEARTBEAT and result_code == ResponseCode.CONTROLLER_NOT_LEADER
        )
        self._requests.add((name, "success" if is_done else "failed"))
        self._latency.observe(seconds * 1_000_000, (name,))
