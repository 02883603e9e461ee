"""The codes that clients branch on, and which of them a refusal of a broker becomes."""

from enum import IntEnum
from typing import Any

from pyromq.errors import BadExpression, CallTimeout, NoRoute, PyroError, Refused, TransportError
from pyromq.protocol.codes import ResponseCode
from pyromq.proxy.messages import message

Status = message("Status")


class Code(IntEnum):
    OK = 20000
    MULTIPLE_RESULTS = 30000
    BAD_REQUEST = 40000
    ILLEGAL_TOPIC = 40002
    ILLEGAL_CONSUMER_GROUP = 40003
    ILLEGAL_MESSAGE_TAG = 40004
    ILLEGAL_MESSAGE_KEY = 40005
    ILLEGAL_MESSAGE_GROUP = 40006
    ILLEGAL_MESSAGE_PROPERTY_KEY = 40007
    INVALID_TRANSACTION_ID = 40008
    ILLEGAL_MESSAGE_ID = 40009
    ILLEGAL_FILTER_EXPRESSION = 40010
    ILLEGAL_INVISIBLE_TIME = 40011
    ILLEGAL_DELIVERY_TIME = 40012
    INVALID_RECEIPT_HANDLE = 40013
    MESSAGE_PROPERTY_CONFLICT_WITH_TYPE = 40014
    UNRECOGNIZED_CLIENT_TYPE = 40015
    MESSAGE_CORRUPTED = 40016
    CLIENT_ID_REQUIRED = 40017
    ILLEGAL_POLLING_TIME = 40018
    ILLEGAL_LITE_TOPIC = 40020
    UNAUTHORIZED = 40100
    FORBIDDEN = 40300
    MESSAGE_NOT_FOUND = 40401
    TOPIC_NOT_FOUND = 40402
    CONSUMER_GROUP_NOT_FOUND = 40403
    MESSAGE_BODY_TOO_LARGE = 41301
    MESSAGE_BODY_EMPTY = 41302
    TOO_MANY_REQUESTS = 42900
    LITE_TOPIC_QUOTA_EXCEEDED = 42901
    LITE_SUBSCRIPTION_QUOTA_EXCEEDED = 42902
    MESSAGE_PROPERTIES_TOO_LARGE = 43101
    INTERNAL_SERVER_ERROR = 50001
    HA_NOT_AVAILABLE = 50002
    NOT_IMPLEMENTED = 50100
    PROXY_TIMEOUT = 50400
    MASTER_PERSISTENCE_TIMEOUT = 50401
    SLAVE_PERSISTENCE_TIMEOUT = 50402
    FAILED_TO_CONSUME_MESSAGE = 60000


class Rejected(PyroError):
    """A request that is answered with a status other than OK."""

    def __init__(self, code: Code, text: str) -> None:
        super().__init__(text)
        self.code = code


_OF_BROKER = {
    ResponseCode.SUCCESS: Code.OK,
    ResponseCode.SYSTEM_BUSY: Code.TOO_MANY_REQUESTS,
    ResponseCode.FLOW_CONTROL: Code.TOO_MANY_REQUESTS,
    ResponseCode.POLLING_FULL: Code.TOO_MANY_REQUESTS,
    ResponseCode.REQUEST_CODE_NOT_SUPPORTED: Code.NOT_IMPLEMENTED,
    ResponseCode.TOPIC_NOT_EXIST: Code.TOPIC_NOT_FOUND,
    ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST: Code.CONSUMER_GROUP_NOT_FOUND,
    ResponseCode.FLUSH_DISK_TIMEOUT: Code.MASTER_PERSISTENCE_TIMEOUT,
    ResponseCode.FLUSH_SLAVE_TIMEOUT: Code.SLAVE_PERSISTENCE_TIMEOUT,
    ResponseCode.SLAVE_NOT_AVAILABLE: Code.HA_NOT_AVAILABLE,
    ResponseCode.NO_MESSAGE: Code.INVALID_RECEIPT_HANDLE,
    ResponseCode.LMQ_QUOTA_EXCEEDED: Code.LITE_TOPIC_QUOTA_EXCEEDED,
    ResponseCode.LITE_SUBSCRIPTION_QUOTA_EXCEEDED: Code.LITE_SUBSCRIPTION_QUOTA_EXCEEDED,
}
OK = Status(code=Code.OK, message="OK")


def code_of_broker(code: int) -> Code:
    return _OF_BROKER.get(ResponseCode(code), Code.INTERNAL_SERVER_ERROR) if code in _KNOWN else _UNKNOWN


_KNOWN = frozenset(map(int, ResponseCode))
_UNKNOWN = Code.INTERNAL_SERVER_ERROR


def code_of_problem(problem: PyroError) -> Code:
    if isinstance(problem, Rejected):
        return problem.code
    if isinstance(problem, Refused):
        return code_of_broker(problem.code)
    if isinstance(problem, NoRoute):
        return Code.TOPIC_NOT_FOUND
    if isinstance(problem, CallTimeout):
        return Code.PROXY_TIMEOUT
    if isinstance(problem, BadExpression):
        return Code.ILLEGAL_FILTER_EXPRESSION
    if isinstance(problem, TransportError):
        return Code.HA_NOT_AVAILABLE
    return Code.INTERNAL_SERVER_ERROR


def status_of(problem: PyroError) -> Any:
    return Status(code=code_of_problem(problem), message=str(problem))
