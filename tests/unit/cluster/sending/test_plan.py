"""How a message finds a broker that stores it, without sockets and without waiting."""

from collections.abc import Sequence

import pytest

from pyromq.cluster.routes import Route
from pyromq.cluster.sending.choice import BrokerFaults, RoundRobin
from pyromq.cluster.sending.plan import Ask, Failed, SendPlan, SendPolicy, SendRules, Step, Try, Wait
from pyromq.errors import CallTimeout, ConnectFailed, ConnectionLost, Refused, TransportError
from pyromq.protocol.body import MessageQueue
from pyromq.protocol.codes import ResponseCode

BUSY = Refused(ResponseCode.SYSTEM_BUSY, "too many")
FORBIDDEN = Refused(ResponseCode.NO_PERMISSION, "read-only")
NO_QUEUE = Refused(ResponseCode.INVALID_PARAMETER, "no such queue")
SILENT = CallTimeout("no answer")
LOST = ConnectionLost("closed")
AWAY = ConnectFailed("refused")
USUAL = SendPolicy(10.0)


def route_of(*names: str, queues: int = 1) -> Route:
    return Route(
        "Orders",
        tuple(MessageQueue("Orders", name, queue_id) for name in names for queue_id in range(queues)),
        brokers={name: {0: f"{name}:10911"} for name in names},
    )


class Sends:
    """Carries out one plan, on a clock that only moves when the plan says so."""

    def __init__(
        self,
        route: Route,
        policy: SendPolicy = USUAL,
        queue: MessageQueue | None = None,
        timeout_s: float | None = None,
    ) -> None:
        self.route = route
        self.now = 100.0
        self.faults = BrokerFaults()
        self.masters = {name: each[0] for name, each in route.brokers.items() if 0 in each}
        choice = RoundRobin(self.faults, random_below=lambda _: 0)
        rules = SendRules(choice, self.faults, policy, self.masters.get)
        self.plan = SendPlan(rules, self.now, queue, timeout_s)

    def next(self) -> Step:
        return self.plan.next(self.now, self.route)

    def tries(self, after_s: float = 0.0) -> str:
        """The broker that is tried next."""
        self.now += after_s
        step = self.next()
        assert isinstance(step, Try), step
        return step.broker_name

    def fails(self, problem: TransportError | Refused, after_s: float = 0.0) -> bool:
        self.now += after_s
        return self.plan.failed(problem, self.now)

    def waits(self) -> float:
        step = self.next()
        assert isinstance(step, Wait), step
        self.now += step.seconds
        return step.seconds

    def gives_up(self) -> Failed:
        step = self.next()
        assert isinstance(step, Failed), step
        return step


def test_one_broker_after_the_other_is_tried() -> None:
    sends = Sends(route_of("a", "b", "c"))
    assert sends.tries() == "a"
    sends.fails(BUSY)
    assert sends.tries() == "b"
    sends.fails(BUSY)
    assert sends.tries() == "c"
    assert sends.plan.answered(ResponseCode.SUCCESS, sends.now)


def test_the_queues_of_a_broker_that_failed_are_passed_over() -> None:
    sends = Sends(route_of("a", "b", queues=4))
    assert sends.tries() == "a"
    sends.fails(BUSY)
    assert sends.tries() == "b"


def test_after_all_retries_it_says_what_became_of_each() -> None:
    sends = Sends(route_of("a", "b", "c", "d"), SendPolicy(10.0, retries=2))
    for problem in (BUSY, FORBIDDEN, SILENT):
        sends.tries()
        sends.fails(problem)
    failed = sends.gives_up()
    assert failed.refusal is None
    assert failed.attempts == (f"a: {BUSY}", f"b: {FORBIDDEN}", "c: no answer")


def test_the_same_broker_is_tried_again_after_growing_pauses() -> None:
    sends = Sends(route_of("a"), SendPolicy(60.0, retries=9))
    sends.tries()
    pauses = []
    for _ in range(6):
        sends.fails(BUSY)
        pauses.append(sends.waits())
        sends.tries()
    assert pauses == [0.1, 0.2, 0.4, 0.5, 0.5, 0.5]


def test_a_new_master_is_tried_without_a_pause() -> None:
    sends = Sends(route_of("a"))
    sends.tries()
    assert sends.fails(Refused(ResponseCode.SERVICE_NOT_AVAILABLE, "not the master")), "the route is in doubt"
    sends.masters["a"] = "a2:10911"
    step = sends.next()
    assert isinstance(step, Try)
    assert step.address == "a2:10911"


def test_a_broker_that_refuses_connections_costs_no_retry() -> None:
    sends = Sends(route_of("a"), SendPolicy(3.0, retries=0))
    failures = 0
    while True:
        step = sends.next()
        if isinstance(step, Failed):
            break
        if isinstance(step, Wait):
            sends.now += step.seconds
        else:
            sends.fails(AWAY)
            failures += 1
    assert failures > 5
    assert 102.9 < sends.now <= 103.0


def test_a_silent_broker_leaves_half_of_the_time_to_the_others() -> None:
    sends = Sends(route_of("a", "b"), SendPolicy(8.0, retries=2))
    step = sends.next()
    assert isinstance(step, Try)
    assert step.limit_s == 4.0
    sends.fails(SILENT, after_s=4.0)
    assert sends.waits() == 0.1
    step = sends.next()
    assert isinstance(step, Try)
    assert step.limit_s == pytest.approx(3.9 / 2)


def test_the_last_try_has_all_the_time_that_is_left() -> None:
    sends = Sends(route_of("a", "b"), SendPolicy(8.0, retries=1))
    sends.tries()
    sends.fails(LOST, after_s=1.0)
    step = sends.next()
    assert isinstance(step, Try)
    assert step.limit_s == 7.0


@pytest.mark.parametrize(("route", "expected"), [(route_of("a"), 8.0), (route_of("a", "b"), 1.5)])
def test_a_limit_for_one_try_counts_while_there_are_other_brokers(route: Route, expected: float) -> None:
    step = Sends(route, SendPolicy(8.0, try_timeout_s=1.5)).next()
    assert isinstance(step, Try)
    assert step.limit_s == expected


def test_nothing_is_tried_when_the_time_is_up() -> None:
    sends = Sends(route_of("a", "b"), timeout_s=2.0)
    sends.tries()
    sends.fails(SILENT, after_s=1.995)
    assert sends.gives_up().attempts == ("a: no answer",)


def test_a_refusal_that_no_retry_helps_against_is_final() -> None:
    illegal = Refused(ResponseCode.MESSAGE_ILLEGAL, "too large")
    sends = Sends(route_of("a", "b"))
    sends.tries()
    sends.fails(illegal)
    assert sends.plan.is_over
    assert sends.gives_up().refusal is illegal
    assert sends.faults.is_empty, "the broker is well"


def test_a_refusal_that_lasts_is_final_when_all_brokers_have_said_so() -> None:
    sends = Sends(route_of("a", "b"), SendPolicy(10.0, retries=5))
    sends.tries()
    sends.fails(FORBIDDEN)
    assert sends.tries() == "b"
    sends.fails(FORBIDDEN)
    assert sends.gives_up().refusal is FORBIDDEN


def test_a_chosen_queue_is_the_only_one_that_is_tried() -> None:
    chosen = MessageQueue("Orders", "b", 0)
    sends = Sends(route_of("a", "b", "c"), queue=chosen)
    assert sends.tries() == "b"
    sends.fails(LOST)
    sends.waits()
    assert sends.tries() == "b"


@pytest.mark.parametrize("refusal", [FORBIDDEN, NO_QUEUE])
def test_a_chosen_queue_that_is_refused_for_good_is_refused(refusal: Refused) -> None:
    sends = Sends(route_of("a", "b"), queue=MessageQueue("Orders", "b", 0))
    sends.tries()
    sends.fails(refusal)
    assert sends.gives_up().refusal is refusal


def test_a_queue_that_the_topic_has_lost_is_not_the_end() -> None:
    sends = Sends(route_of("a", queues=2))
    sends.tries()
    sends.fails(NO_QUEUE)
    assert isinstance(sends.next(), Ask)
    lost = sends.plan.current
    assert lost is not None
    sends.route = Route("Orders", (MessageQueue("Orders", "a", 1),), brokers=sends.route.brokers)
    sends.waits()
    assert sends.tries() == "a"
    assert sends.plan.current != lost
    assert sends.faults.is_empty


def test_a_parameter_that_was_invalid_indeed_is_the_end() -> None:
    sends = Sends(route_of("a", queues=2))
    sends.tries()
    sends.fails(NO_QUEUE)
    assert isinstance(sends.next(), Ask)
    assert sends.gives_up().refusal is NO_QUEUE


UNSAFE = ResponseCode.FLUSH_SLAVE_TIMEOUT


def test_a_message_that_is_stored_less_safely_is_stored() -> None:
    sends = Sends(route_of("a", "b"))
    sends.tries()
    assert sends.plan.answered(UNSAFE, sends.now)


def test_unsafe_stores_are_retried_on_demand_until_the_last_try() -> None:
    sends = Sends(route_of("a", "b"), SendPolicy(10.0, retries=1, retry_unsafe_stores=True))
    sends.tries()
    assert not sends.plan.answered(UNSAFE, sends.now)
    assert sends.tries() == "b"
    assert sends.plan.answered(UNSAFE, sends.now)


def test_a_slow_broker_is_avoided_by_the_next_message() -> None:
    sends = Sends(route_of("a", "b"))
    sends.tries()
    sends.plan.answered(ResponseCode.SUCCESS, sends.now + 4.0)
    assert not sends.faults.is_available("a", sends.now * 1000)


def test_a_plan_can_go_on_after_a_try_that_was_made_elsewhere() -> None:
    sends = Sends(route_of("a", "b"), SendPolicy(10.0, retries=1))
    sends.plan.begin(Try(MessageQueue("Orders", "a", 0), "a", "a:10911", 5.0), sends.now)
    sends.fails(LOST, after_s=1.0)
    assert sends.tries() == "b"
    sends.fails(LOST)
    assert len(sends.gives_up().attempts) == 2


def test_a_queue_of_a_static_topic_is_tried_where_it_is_now() -> None:
    queue = MessageQueue("Orders", "__syslo__0", 0)
    static = Route("Orders", (queue,), brokers={"a": {0: "a:10911"}}, hosts={queue: "a"})
    step = Sends(static).next()
    assert isinstance(step, Try)
    assert (step.queue, step.broker_name, step.address) == (queue, "a", "a:10911")


def test_a_broker_without_a_known_address_is_looked_for() -> None:
    sends = Sends(route_of("a"))
    sends.masters.clear()
    step = sends.next()
    assert isinstance(step, Try)
    assert step.address is None


def brokers_of(attempts: Sequence[str]) -> list[str]:
    return [attempt.partition(":")[0] for attempt in attempts]


def test_a_broker_that_died_is_left_for_the_one_that_lives() -> None:
    """Fail-over of a whole cluster: `a` hangs, `b` restarts, `c` is alive."""
    sends = Sends(route_of("a", "b", "c"), SendPolicy(12.0, retries=2))
    sends.tries()
    sends.fails(SILENT, after_s=6.0)
    sends.waits()
    assert sends.tries() == "a"
    sends.fails(SILENT, after_s=2.0)
    assert sends.tries() == "b"
    sends.fails(AWAY)
    assert sends.tries() == "c"
    assert sends.plan.answered(ResponseCode.SUCCESS, sends.now)
    assert brokers_of(sends.plan.attempts) == ["a", "a", "b"]


def with_replicas(route: Route) -> Route:
    brokers = {name: {**each, 1: f"{name}:10921"} for name, each in route.brokers.items()}
    return Route(route.topic, route.publish_queues, brokers=brokers)


@pytest.mark.parametrize("problem", [SILENT, LOST])
def test_a_send_of_unknown_fate_is_repeated_at_the_same_queue_first(problem: TransportError) -> None:
    sends = Sends(route_of("a", "b", queues=4))
    first = sends.next()
    assert isinstance(first, Try)
    sends.fails(problem)
    sends.waits()
    again = sends.next()
    assert isinstance(again, Try)
    assert again.queue == first.queue
    assert sends.plan.is_resent
    sends.fails(problem)
    assert sends.tries() == "b", "the last retry is for others"
    assert sends.plan.is_resent, "the next one may be at the first broker again"


@pytest.mark.parametrize("problem", [BUSY, AWAY, FORBIDDEN])
def test_a_send_that_was_not_stored_for_sure_is_not_marked(problem: TransportError | Refused) -> None:
    sends = Sends(route_of("a", "b"))
    sends.tries()
    sends.fails(problem)
    assert sends.tries() == "b"
    assert not sends.plan.is_resent


def test_the_only_retry_of_a_send_of_unknown_fate_is_for_another_broker() -> None:
    sends = Sends(route_of("a", "b"), SendPolicy(10.0, retries=1))
    sends.tries()
    sends.fails(LOST)
    assert sends.tries() == "b"
    assert sends.plan.is_resent


def test_a_group_without_a_master_has_half_of_the_time_to_find_one() -> None:
    sends = Sends(with_replicas(route_of("a", "b")))
    sends.tries()
    sends.fails(LOST, after_s=2.0)
    while sends.now < 106.0:
        sends.waits()
        assert sends.tries() == "a"
        sends.fails(AWAY)
    assert sends.tries() == "b"


def test_a_new_master_is_asked_what_became_of_a_send() -> None:
    sends = Sends(with_replicas(route_of("a", "b")))
    sends.tries()
    sends.fails(LOST)
    sends.waits()
    sends.tries()
    sends.fails(AWAY)
    sends.masters["a"] = "a:10921"
    step = sends.next()
    assert isinstance(step, Try)
    assert step.address == "a:10921"


def test_a_broker_that_is_alone_in_its_group_is_not_waited_for() -> None:
    sends = Sends(route_of("a", "b"))
    sends.tries()
    sends.fails(LOST)
    sends.waits()
    sends.tries()
    sends.fails(AWAY)
    assert sends.tries() == "b"


def test_an_unsafe_store_is_repeated_with_a_mark() -> None:
    sends = Sends(route_of("a"), SendPolicy(10.0, retry_unsafe_stores=True))
    sends.tries()
    assert not sends.plan.answered(UNSAFE, sends.now)
    assert sends.plan.is_resent
