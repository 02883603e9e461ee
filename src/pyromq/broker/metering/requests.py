"""How long requests take: the only metrics that are recorded while the broker works."""

from bisect import bisect_left

from pyromq.broker.fast_path import BrokerFastPath as BrokerFastPath
from pyromq.broker.metering.labels import REMOTING, UNKNOWN, word
from pyromq.broker.metering.stalls import HELD_S, REQUEST, Stalls
from pyromq.clock import Clock
from pyromq.metrics import Distribution, Histogram, Labels, Metrics
from pyromq.protocol.catalogue import Declaration, declaration_of
from pyromq.protocol.codes import ResponseCode
from pyromq.protocol.requests.groups import CreateOrUpdateGroup, CreateOrUpdateGroups
from pyromq.protocol.requests.popping import AckMessage
from pyromq.protocol.requests.pulling import LitePullMessage, PullMessage
from pyromq.protocol.requests.sending import SendMessageV2
from pyromq.protocol.requests.topics import CreateOrUpdateTopic, CreateOrUpdateTopics
from pyromq.protocol.requests.transactions import EndTransaction
from pyromq.remoting.connection import Connection
from pyromq.remoting.connection_group import FastPath

_RPC_MS = (1, 3, 5, 7, 10, 100, 1000, 2000, 3000)
_RPC_SECONDS = tuple(bound / 1000 for bound in _RPC_MS)

_SEND = declaration_of(SendMessageV2)
_CREATION_MS = (10, 100, 1000, 3000, 5000)
_TOPIC_CREATIONS = [declaration_of(each).code for each in (CreateOrUpdateTopic, CreateOrUpdateTopics)]
_GROUP_CREATIONS = [declaration_of(each).code for each in (CreateOrUpdateGroup, CreateOrUpdateGroups)]
_PULL = declaration_of(PullMessage)
_END = declaration_of(EndTransaction)
_ACK = declaration_of(AckMessage)
_PULLS = (_PULL.code, declaration_of(LitePullMessage).code)


class RequestTimes:
    """Observes every request."""

    def __init__(self, metrics: Metrics, clock: Clock, stalls: Stalls) -> None:
        self._clock = clock
        self._stalls = stalls
        self._requests: dict[tuple[int, int, bool], Distribution] = {}
        self._latency = metrics.histogram(
            "rocketmq_rpc_latency_milliseconds",
            "Time from reading a request to its answer.",
            ("protocol_type", "request_code", "response_code", "is_long_polling", "result"),
            _RPC_MS,
        )
        status = ("invocation_status",)
        topic_creations = metrics.histogram(
            "rocketmq_topic_create_execution_time_milliseconds",
            "Time to create or change topics.",
            (*status, "is_system"),
            _CREATION_MS,
        )
        group_creations = metrics.histogram(
            "rocketmq_consumer_group_create_execution_time_milliseconds",
            "Time to create or change consumer groups.",
            status,
            _CREATION_MS,
        )
        # System topics are never created by request.
        self._creations: dict[int, tuple[Histogram, Labels]] = {
            **dict.fromkeys(_TOPIC_CREATIONS, (topic_creations, ("false",))),
            **dict.fromkeys(_GROUP_CREATIONS, (group_creations, ())),
        }

    def __len__(self) -> int:
        """The number of kinds of requests and results so far."""
        return len(self._requests)

    def request_handled(
        self, declaration: Declaration | None, code: int, result_code: int, seconds: float, waited: bool
    ) -> None:
        try:
            distribution = self._requests[code, result_code, waited]
        except KeyError:
            distribution = self._first(declaration, code, result_code, waited)
        distribution.counts[bisect_left(_RPC_SECONDS, seconds)] += 1
        distribution.total += seconds * 1000
        if seconds >= HELD_S and not waited:
            self._stalls.note(REQUEST, seconds, _name(declaration))
        if code in self._creations:
            histogram, more_labels = self._creations[code]
            status = "success" if result_code == ResponseCode.SUCCESS else "failure"
            histogram.observe(seconds * 1000, (status, *more_labels))

    def timed(self, fast_path: BrokerFastPath) -> FastPath:
        """The fast path, timed: the answers of one read leave together, so one time counts for all."""
        monotonic, note = self._clock.monotonic, self._stalls.note

        def timed_path(data: bytes, connection: Connection) -> tuple[int, int]:
            started = monotonic()
            frames, position = fast_path(data, connection)
            if frames:
                seconds = monotonic() - started
                if seconds >= HELD_S:
                    note(REQUEST, seconds, "several")
                others = {
                    # Nearly all clients send by SEND_MESSAGE_V2 and pull by PULL_MESSAGE.
                    _PULL: fast_path.pulls_taken,
                    _END: fast_path.ends_taken,
                    _ACK: fast_path.acks_taken,
                }
                for declaration, count in ((_SEND, frames - sum(others.values())), *others.items()):
                    if count:
                        self._count_together(declaration, count, seconds)
            return frames, position

        return timed_path

    def _count_together(self, declaration: Declaration, count: int, seconds: float) -> None:
        key = declaration.code, ResponseCode.SUCCESS, False
        distribution = self._requests.get(key)
        if distribution is None:
            distribution = self._first(declaration, *key)
        distribution.counts[bisect_left(_RPC_SECONDS, seconds)] += count
        distribution.total += seconds * 1000 * count

    def _first(
        self, declaration: Declaration | None, code: int, result_code: int, waited: bool
    ) -> Distribution:
        try:
            result = ResponseCode(result_code).name.lower()
        except ValueError:
            result = str(result_code)
        outcome = "oneway" if declaration is not None and declaration.oneway else "success"
        is_held = word(waited and code in _PULLS)
        distribution = self._latency.of((REMOTING, _name(declaration), result, is_held, outcome))
        if declaration is not None:  # Clients may send any code: all unknown codes count as one.
            self._requests[code, result_code, waited] = distribution
        return distribution


def _name(declaration: Declaration | None) -> str:
    return UNKNOWN if declaration is None else declaration.java_name
