"""The one table of refusals that a caller may try to overcome, and how. Every other refusal is final.

Pure: a value for each code.
"""

from collections.abc import Mapping
from enum import Flag, auto
from types import MappingProxyType
from typing import Final

from pyromq.errors import PyroError, Refused, TransportError
from pyromq.protocol.codes import ResponseCode


class Retry(Flag):
    """Where and when the same request may succeed."""

    NEVER = 0
    ELSEWHERE = auto()
    """Another broker may store the message."""
    HERE = auto()
    """The same broker may store the message later."""
    LATER = auto()
    """The same server may answer this request later, whatever it asks for."""
    OTHER_NAME_SERVER = auto()
    """Another name server may answer."""
    NEW_ROUTE = auto()
    """The route may be out of date: another broker may be the master now."""


_SEND = Retry.ELSEWHERE | Retry.HERE

RETRIES: Final[Mapping[int, Retry]] = MappingProxyType(
    {
        ResponseCode.SYSTEM_ERROR: _SEND | Retry.OTHER_NAME_SERVER,
        ResponseCode.SYSTEM_BUSY: _SEND | Retry.LATER | Retry.OTHER_NAME_SERVER,
        ResponseCode.GO_AWAY: _SEND | Retry.LATER | Retry.OTHER_NAME_SERVER,
        ResponseCode.SERVICE_NOT_AVAILABLE: _SEND | Retry.LATER | Retry.NEW_ROUTE,
        ResponseCode.TOPIC_NOT_EXIST: _SEND,
        # java: other brokers may have other rules; the same broker would only repeat these
        ResponseCode.NO_PERMISSION: Retry.ELSEWHERE,
        ResponseCode.NO_BUYER_ID: Retry.ELSEWHERE,
        ResponseCode.NOT_IN_CURRENT_UNIT: Retry.ELSEWHERE,
        ResponseCode.FLOW_CONTROL: Retry.LATER,
        # Stored, but not safe yet: the same request again waits for that.
        ResponseCode.FLUSH_DISK_TIMEOUT: Retry.LATER,
        ResponseCode.FLUSH_SLAVE_TIMEOUT: Retry.LATER,
        # A replica answers while its master is away; a queue has moved.
        ResponseCode.SLAVE_NOT_AVAILABLE: Retry.LATER,
        ResponseCode.NOT_LEADER_FOR_QUEUE: Retry.LATER,
    }
)


def retry_of(code: int) -> Retry:
    return RETRIES.get(code, Retry.NEVER)


def require_safe(code: int, remark: str | None = None) -> None:
    """Raises Refused if a message is stored, but would be lost with its broker."""
    if code != ResponseCode.SUCCESS:
        raise Refused(code, remark or "stored, but the next master may not have it")


def is_passing(problem: PyroError) -> bool:
    """Whether the same request may be answered later: the server is away, or says so."""
    if isinstance(problem, Refused):
        return Retry.LATER in retry_of(problem.code)
    return isinstance(problem, TransportError)
