"""Adds a hint to a failure that does not carry one."""

from pyromq.admin.failures import Incomplete, NoNameServer
from pyromq.cli.hints import SIGN, USE_TLS, is_hung_up
from pyromq.errors import CallTimeout, PyroError, Refused, RemoteProtocolError, TransportError
from pyromq.protocol.codes import ResponseCode

_AFTER_REFUSAL = {
    ResponseCode.REQUEST_CODE_NOT_SUPPORTED: "is that the address of a broker, and is it new enough?",
    ResponseCode.NO_PERMISSION: SIGN,
    ResponseCode.TOPIC_NOT_EXIST: "`mqadmin topicList` lists all topics, `mqadmin updateTopic` creates one",
    ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST: "`mqadmin updateSubGroup` creates it",
    ResponseCode.SYSTEM_BUSY: "the broker is busy; try again",
}


def with_advice(problem: PyroError, *, is_signed: bool = False, is_tls: bool = False) -> str:
    """The failure on one line, with a hint. `is_signed`, `is_tls`: the request was, the connection had it."""
    text = " ".join(str(problem).split())
    advice = None
    if isinstance(problem, Incomplete):
        first = with_advice(problem.first, is_signed=is_signed, is_tls=is_tls)
        return text + first.removeprefix(" ".join(str(problem.first).split()))
    if isinstance(problem, Refused):
        at = f"{problem.server}: " if problem.server else ""
        text = at + " ".join((problem.remark or f"refused with code {problem.code}").split())
        known = _AFTER_REFUSAL.get(ResponseCode(problem.code)) if problem.code in _CODES else None
        advice = known if known is not None else f"the server answered with code {problem.code}"
        if problem.code == ResponseCode.NO_PERMISSION and is_signed:
            advice = None
    elif isinstance(problem, CallTimeout):
        advice = "--timeout SECONDS waits longer"
    elif isinstance(problem, TransportError) and is_hung_up(text) and not is_tls:
        advice = USE_TLS
    elif isinstance(problem, TransportError) and not isinstance(problem, NoNameServer):
        advice = "is a server running there? `mqadmin clusterList` shows the brokers"
    elif isinstance(problem, RemoteProtocolError):
        advice = "is that the address of a name server or broker?"
    return text if advice is None else f"{text}; {advice}"


_CODES = frozenset(ResponseCode)
