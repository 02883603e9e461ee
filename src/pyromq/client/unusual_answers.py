"""What a quick send got instead of a plain success, in the words of the general path, which then goes on."""

from typing import Any

from pyromq.client.quick_targets import PlainParts, Target
from pyromq.client.sending import SendOutcome
from pyromq.cluster.sending.plan import SendPlan
from pyromq.errors import CallTimeout, ConnectionLost, Refused
from pyromq.protocol.catalogue import decode_answer
from pyromq.protocol.codes import ResponseCode
from pyromq.protocol.requests.sending import SendMessageV2
from pyromq.remoting.connection import Connection


def judged(
    parts: PlainParts,
    kind: type[SendMessageV2],
    target: Target,
    connection: Connection,
    started: float,
    answer: Any,
) -> SendOutcome | SendPlan:
    """An outcome, or the plan by which the message is sent on.

    `answer` is a Frame or an error; one that no retry helps against is raised.
    """
    sender = parts.sender
    latency_ms = (parts.session.clock.monotonic() - started) * 1000
    try:
        if isinstance(answer, BaseException):
            raise answer
        read = decode_answer(kind, answer)
    except TimeoutError:
        problem: CallTimeout | ConnectionLost | Refused = CallTimeout(
            f"{target.address}: no answer to {kind.__name__} in {target.limit_s:.3g} s"
        )
    except (ConnectionLost, Refused) as failure:
        problem = failure
    else:
        sender.note_answer(target.queue.broker_name, latency_ms)
        return SendOutcome(read, target.queue, target.address, latency_ms)
    if isinstance(problem, Refused) and problem.code == ResponseCode.GO_AWAY:
        # Another server may listen by now: as if nothing had been sent.
        parts.session.retire(target.address, connection)
        return sender.plan()
    plan = sender.plan_after(target, started)
    sender.note_failure(plan, target.queue.topic, problem)
    return plan
