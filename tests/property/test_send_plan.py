"""Whatever brokers do, a plan ends in time, within its retries, and never asks one broker twice in a row."""

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.chance import examples

from pyromq.cluster.routes import Route
from pyromq.cluster.sending.choice import BrokerFaults, RoundRobin
from pyromq.cluster.sending.plan import Failed, SendPlan, SendPolicy, SendRules, Try, Wait
from pyromq.errors import CallTimeout, ConnectFailed, ConnectionLost, Refused, TransportError
from pyromq.protocol.body import MessageQueue
from pyromq.protocol.codes import ResponseCode

_NAMES = ("a", "b", "c")
_ROUTES = st.dictionaries(st.sampled_from(_NAMES), st.integers(1, 3), min_size=1).map(
    lambda counts: Route(
        "Orders",
        tuple(MessageQueue("Orders", name, each) for name, count in counts.items() for each in range(count)),
        brokers={name: {0: name} for name in counts},
    )
)
_CODES = st.sampled_from(
    [
        ResponseCode.SUCCESS,
        ResponseCode.FLUSH_DISK_TIMEOUT,
        ResponseCode.SYSTEM_BUSY,
        ResponseCode.SERVICE_NOT_AVAILABLE,
        ResponseCode.NO_PERMISSION,
        ResponseCode.INVALID_PARAMETER,
        ResponseCode.MESSAGE_ILLEGAL,
        ResponseCode.FLOW_CONTROL,
    ]
)
_STORED = (ResponseCode.SUCCESS, ResponseCode.FLUSH_DISK_TIMEOUT)
_PROBLEMS = st.sampled_from([ConnectFailed("away"), ConnectionLost("lost"), CallTimeout("silent")])
_EVENTS = st.tuples(_CODES | _PROBLEMS, st.sampled_from([0.0, 0.001, 0.3, 1.0, 100.0]))
_POLICIES = st.builds(
    SendPolicy,
    st.sampled_from([0.0, 0.005, 1.0, 3.0]),
    st.integers(0, 4),
    st.sampled_from([None, 0.2, 5.0]),
    st.booleans(),
)


@settings(max_examples=examples(400))
@given(st.data(), _POLICIES, st.booleans(), st.booleans())
def test_every_plan_ends_in_time(
    data: st.DataObject, policy: SendPolicy, avoids: bool, is_chosen: bool
) -> None:
    now, route = 50.0, data.draw(_ROUTES)
    chosen = data.draw(st.sampled_from(route.publish_queues)) if is_chosen else None
    faults = BrokerFaults()
    choice = RoundRobin(faults if avoids else None, random_below=lambda _: 0)
    plan = SendPlan(SendRules(choice, faults, policy, lambda name: name), now, chosen)
    deadline = now + policy.timeout_s
    sent, failures, last = 0, 0, ""
    tried: set[str | None] = set()
    while True:
        step = plan.next(now, route)
        if isinstance(step, Failed):
            # It gives up for a reason: a final refusal, no tries left, or no time.
            assert step.refusal is not None or sent > policy.retries or now >= deadline - 0.01
            assert len(step.attempts) == failures
            return
        if isinstance(step, Wait):
            assert 0 < step.seconds <= deadline - now
            now += step.seconds
            tried.clear()
            continue
        if not isinstance(step, Try):
            route = data.draw(_ROUTES)
            continue
        assert now < deadline
        assert 0 < step.limit_s <= deadline - now
        assert chosen in (None, step.queue)
        assert step.address not in tried, "it must wait first"
        others = {queue.broker_name for queue in route.publish_queues} - {last}
        is_asked_again = (
            plan.is_resent and step.queue.broker_name == last
        )  # whether it has stored the message
        assert chosen is not None or not others or step.queue.broker_name in others or is_asked_again
        tried.add(step.address)
        last = step.queue.broker_name
        outcome, took_s = data.draw(_EVENTS)
        now += min(took_s, step.limit_s)
        sent += not isinstance(outcome, ConnectFailed)
        assert sent <= 1 + policy.retries
        if outcome in _STORED:
            if plan.answered(int(outcome), now):
                is_safe = outcome is ResponseCode.SUCCESS
                assert is_safe or not policy.retry_unsafe_stores or sent > policy.retries
                return
        elif isinstance(outcome, TransportError):
            assert plan.failed(outcome, now), "the route is in doubt"
        else:
            plan.failed(Refused(int(outcome), "no"), now)
        failures += 1
