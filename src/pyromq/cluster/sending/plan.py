"""The way of one message to a broker that stores it: what to do next, and what came of it.

Pure: the caller passes the time and the route, does what `next` says, and reports the result. Whoever has a
socket can carry out a plan, and hand it over to somebody else in the middle.
"""

from collections.abc import Callable
from typing import Final, NamedTuple

import msgspec

from pyromq.cluster.retry_table import Retry, retry_of
from pyromq.cluster.routes import Route
from pyromq.cluster.sending.choice import BrokerFaults, RoundRobin
from pyromq.errors import ConnectFailed, Refused, TransportError
from pyromq.protocol.body import MessageQueue
from pyromq.protocol.codes import ResponseCode

FIRST_PAUSE_S: Final = 0.05
MAX_PAUSE_S: Final = 0.5
MIN_RETRY_S: Final = 0.01
"""With less time left no broker can answer; timers of a busy loop are not more exact."""


class SendPolicy(NamedTuple):
    timeout_s: float
    """For all tries together."""
    retries: int = 2
    try_timeout_s: float | None = None
    """For one try, while there are other brokers; None: half of the time that is left."""
    retry_unsafe_stores: bool = False
    """Whether a message that is stored, but not as safely as it should be, is sent again."""

    def limit_s(self, left_s: float, route: Route) -> float:
        """The time that one broker may take: a silent one must leave time for the others."""
        if len(route.brokers) > 1:
            return min(left_s, self.try_timeout_s or left_s / 2)
        return left_s

    def first_limit_s(self, route: Route) -> float:
        """The same for the first try of a message without a chosen queue."""
        return self.limit_s(self.timeout_s, route) if self.retries else self.timeout_s


class Try(msgspec.Struct, frozen=True, gc=False):
    """Send the message to this queue, and wait for the answer up to the limit."""

    queue: MessageQueue
    broker_name: str
    address: str | None
    """None: it must be found out first."""
    limit_s: float


class Wait(NamedTuple):
    """Pause, or until the topic has another route: the same broker comes next."""

    seconds: float


class Ask(NamedTuple):
    """Ask a name server for the route: the queue may be gone."""


class Failed(NamedTuple):
    attempts: tuple[str, ...]
    refusal: Refused | None
    """A refusal that no retry helps against."""


Step = Try | Wait | Ask | Failed


class SendRules(NamedTuple):
    """The common state of one sender's plans."""

    choice: RoundRobin
    faults: BrokerFaults
    policy: SendPolicy
    masters: Callable[[str], str | None]
    """The address of a broker's master, if one is known."""


class SendPlan:
    """Without a chosen queue, a failure moves on to another broker.

    If the failure leaves open whether the message is stored, its broker group is tried once more before, for
    half of the time that is left: only there a repeated send is recognized. The last retry is for others.
    """

    current: Try | None = None
    attempts: tuple[str, ...] = ()
    """The outcome of each failed try."""
    is_over = False
    """Whether nothing can be tried any more, as far as is known without the route."""
    problem: TransportError | Refused | None = None
    """Why the last try failed."""
    is_resent = False
    """Whether an earlier try may have stored the message."""
    _held: MessageQueue | None = None
    _held_until = 0.0
    _refusal: Refused | None = None
    _failed_broker: str | None = None
    _waited_for: MessageQueue | None = None
    _has_asked = False
    _tried: frozenset[str | None] = frozenset()
    _refusing: frozenset[str] = frozenset()

    def __init__(
        self,
        rules: SendRules,
        now: float,
        queue: MessageQueue | None = None,
        timeout_s: float | None = None,
    ) -> None:
        policy = rules.policy
        self._rules = rules
        self._queue = queue
        self._tries_left = policy.retries
        self.started = now
        """When the current try began."""
        self.deadline = now + (policy.timeout_s if timeout_s is None else timeout_s)

    def __repr__(self) -> str:
        return f"<SendPlan {self.current} tries_left={self._tries_left} {self.attempts}>"

    def next(self, now: float, route: Route) -> Step:
        """`route`: that of the message's topic, with at least one queue to write to."""
        if self._refusal is not None:
            verdict = self._verdict(self._refusal, now, route)
            if verdict is not None:
                return verdict
            self._refusal = None
        if self.is_over or now >= self.deadline - (MIN_RETRY_S if self.attempts else 0):
            return Failed(self.attempts, None)
        rules, queue, has_waited = self._rules, self._waited_for or self._queue, self._waited_for is not None
        if queue is None and self._held is not None and self._may_answer(self._held, now, route):
            queue = self._held
        if queue is None:
            queue = rules.choice.choose(route.publish_queues, now * 1000, self._failed_broker)
        broker_name = route.broker_of(queue)
        address = rules.masters(broker_name)
        left_s = self.deadline - now
        if address in self._tried and not has_waited:
            self._waited_for = queue
            return Wait(min(FIRST_PAUSE_S * 2 ** min(len(self.attempts), 10), MAX_PAUSE_S, left_s))
        if has_waited:
            self._waited_for = None
        if self._tries_left and self._queue is None:
            left_s = rules.policy.limit_s(left_s, route)
        step = Try(queue, broker_name, address, left_s)
        self.current, self.started = step, now
        return step

    def begin(self, first: Try, now: float) -> None:
        """This try is under way: somebody else has chosen it."""
        self.current, self.started = first, now

    def answered(self, code: int, now: float) -> bool:
        """The broker has stored the message; returns whether that is the end."""
        assert self.current is not None
        broker_name = self.current.queue.broker_name
        self._rules.faults.answered(broker_name, (now - self.started) * 1000, now * 1000)
        if code == ResponseCode.SUCCESS or not self._rules.policy.retry_unsafe_stores or not self._tries_left:
            return True
        self._note_failure(f"stored, but code {code}")
        self.is_resent = True
        self._tries_left -= 1
        return False

    def failed(self, problem: TransportError | Refused, now: float) -> bool:
        """The broker has not stored the message, or not said so; returns whether its route is in doubt."""
        assert self.current is not None
        self._note_failure(str(problem))
        self.problem = problem
        # A broker that refuses connections may be starting. Nothing was sent, so this is not a retry.
        if not isinstance(problem, ConnectFailed):
            self.is_over = not self._tries_left
            self._tries_left = max(0, self._tries_left - 1)
            self._held = None
        if isinstance(problem, Refused):
            retry = retry_of(problem.code)
            self._refusal = problem
            self._has_asked = False
            self.is_over |= Retry.ELSEWHERE not in retry and not self._may_be_gone(problem)
            return Retry.NEW_ROUTE in retry
        self._rules.faults.failed(self.current.queue.broker_name, now * 1000, is_reachable=False)
        if not isinstance(problem, ConnectFailed) and not self.is_resent:
            self.is_resent = True
            if self._tries_left:
                self._held, self._held_until = self.current.queue, (now + self.deadline) / 2
        return True

    def _may_answer(self, queue: MessageQueue, now: float, route: Route) -> bool:
        """Whether the broker group of a queue may still say what became of the message: it can be reached, or
        has another broker that may become master."""
        if now >= self._held_until:
            return False
        return (
            not isinstance(self.problem, ConnectFailed) or len(route.brokers.get(queue.broker_name, ())) > 1
        )

    def _note_failure(self, what: str) -> None:
        assert self.current is not None
        self.attempts = (*self.attempts, f"{self.current.broker_name}: {what}")
        self._tried |= {self.current.address}
        self._failed_broker = self.current.queue.broker_name

    def _may_be_gone(self, refusal: Refused) -> bool:
        """Whether the refusal may mean that the topic has lost the queue."""
        return refusal.code == ResponseCode.INVALID_PARAMETER and self._queue is None

    def _verdict(self, refusal: Refused, now: float, route: Route) -> Ask | Failed | None:
        """None: another try may help."""
        assert self.current is not None
        queue, retry = self.current.queue, retry_of(refusal.code)
        if Retry.ELSEWHERE in retry:
            if Retry.HERE not in retry:
                self._refusing |= {queue.broker_name}
                others = {each.broker_name for each in route.publish_queues} - self._refusing
                if self._queue is not None or not others:
                    return Failed(self.attempts, refusal)
            self._rules.faults.failed(queue.broker_name, now * 1000, is_reachable=True)
            return None
        if self._may_be_gone(refusal):
            if not self._has_asked:
                self._has_asked = True
                return Ask()
            if queue not in route.publish_queues:  # the topic has lost it, and the route was out of date
                return None
        return Failed(self.attempts, refusal)
