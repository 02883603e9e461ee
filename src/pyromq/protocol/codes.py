"""The numbers of the protocol that are not requests: answers, languages, versions."""

from enum import IntEnum
from typing import Final


class ResponseCode(IntEnum):
    SUCCESS = 0
    SYSTEM_ERROR = 1
    SYSTEM_BUSY = 2
    REQUEST_CODE_NOT_SUPPORTED = 3
    TRANSACTION_FAILED = 4

    FLUSH_DISK_TIMEOUT = 10
    SLAVE_NOT_AVAILABLE = 11
    FLUSH_SLAVE_TIMEOUT = 12
    MESSAGE_ILLEGAL = 13
    SERVICE_NOT_AVAILABLE = 14
    VERSION_NOT_SUPPORTED = 15
    NO_PERMISSION = 16
    TOPIC_NOT_EXIST = 17
    TOPIC_EXIST_ALREADY = 18
    PULL_NOT_FOUND = 19
    PULL_RETRY_IMMEDIATELY = 20
    PULL_OFFSET_MOVED = 21
    QUERY_NOT_FOUND = 22
    SUBSCRIPTION_PARSE_FAILED = 23
    SUBSCRIPTION_NOT_EXIST = 24
    SUBSCRIPTION_NOT_LATEST = 25
    SUBSCRIPTION_GROUP_NOT_EXIST = 26
    FILTER_DATA_NOT_EXIST = 27
    FILTER_DATA_NOT_LATEST = 28
    INVALID_PARAMETER = 29

    TRANSACTION_SHOULD_COMMIT = 200
    TRANSACTION_SHOULD_ROLLBACK = 201
    TRANSACTION_STATE_UNKNOWN = 202
    TRANSACTION_STATE_GROUP_WRONG = 203
    NO_BUYER_ID = 204
    NOT_IN_CURRENT_UNIT = 205
    CONSUMER_NOT_ONLINE = 206
    CONSUME_MSG_TIMEOUT = 207
    NO_MESSAGE = 208
    # java: 4.9 uses 209, 210 and 211 for failed changes of its access lists
    POLLING_FULL = 209
    POLLING_TIMEOUT = 210
    BROKER_NOT_EXIST = 211
    BROKER_DISPATCH_NOT_COMPLETE = 212
    BROADCAST_CONSUMPTION = 213
    FLOW_CONTROL = 215

    NOT_LEADER_FOR_QUEUE = 501
    ILLEGAL_OPERATION = 604
    GO_AWAY = 1500

    RPC_UNKNOWN = -1000
    RPC_ADDR_IS_NULL = -1002
    RPC_SEND_TO_CHANNEL_FAILED = -1004
    RPC_TIME_OUT = -1006

    CONTROLLER_FENCED_MASTER_EPOCH = 2000
    CONTROLLER_FENCED_SYNC_STATE_SET_EPOCH = 2001
    CONTROLLER_INVALID_MASTER = 2002
    CONTROLLER_INVALID_REPLICAS = 2003
    CONTROLLER_MASTER_NOT_AVAILABLE = 2004
    CONTROLLER_INVALID_REQUEST = 2005
    CONTROLLER_BROKER_NOT_ALIVE = 2006
    CONTROLLER_NOT_LEADER = 2007
    CONTROLLER_BROKER_METADATA_NOT_EXIST = 2008
    CONTROLLER_INVALID_CLEAN_BROKER_METADATA = 2009
    CONTROLLER_BROKER_NEED_TO_BE_REGISTERED = 2010
    CONTROLLER_MASTER_STILL_EXIST = 2011
    CONTROLLER_ELECT_MASTER_FAILED = 2012
    CONTROLLER_ALTER_SYNC_STATE_SET_FAILED = 2013
    CONTROLLER_BROKER_ID_INVALID = 2014
    CONTROLLER_JRAFT_INTERNAL_ERROR = 2015
    CONTROLLER_BROKER_LIVE_INFO_NOT_EXISTS = 2016
    LMQ_QUOTA_EXCEEDED = 2017
    LITE_SUBSCRIPTION_QUOTA_EXCEEDED = 2018

    USER_NOT_EXIST = 3001
    POLICY_NOT_EXIST = 3002

    # Of PyroMQ alone.
    LITE_FENCED = 30_101
    LITE_OFFSET_TAKEN = 30_102


class Language(IntEnum):
    JAVA = 0
    CPP = 1
    DOTNET = 2
    PYTHON = 3
    DELPHI = 4
    ERLANG = 5
    RUBY = 6
    OTHER = 7
    HTTP = 8
    GO = 9
    PHP = 10
    OMS = 11
    RUST = 12
    NODE_JS = 13


# The version on the wire is the position of a release in Apache's list of releases, in which every
# release is preceded by its snapshot and x.0 to x.9 all have a place.
V3_0_11 = 37
V4_9_4 = 401
V5_0_0 = 413
V5_3_1 = 475
V5_3_3 = 479
HIGHER_VERSION = 612

CURRENT_VERSION = V5_3_3
"""The release whose protocol PyroMQ implements."""

_MAJOR_ORIGIN = {4: 213, 5: 413}


def code_name(code: int) -> str:
    """The name of a response code; the number if it has none."""
    return ResponseCode(code).name if code in _RESPONSE_CODES else str(code)


_RESPONSE_CODES = frozenset(ResponseCode)


def version_name(ordinal: int) -> str:
    """The release with this wire number, as RocketMQ's tools print it."""
    if ordinal >= HIGHER_VERSION:
        return "HIGHER_VERSION"
    for major in (5, 4):
        if ordinal >= _MAJOR_ORIGIN[major] - 1:
            steps = ordinal - _MAJOR_ORIGIN[major] + 1
            minor, rest = divmod(steps, 20)
            patch, released = divmod(rest, 2)
            return f"V{major}_{minor}_{patch}" + ("" if released else "_SNAPSHOT")
    return f"V3_BEFORE_4_0({ordinal})"


REPLICA_REMARK: Final = "this broker is a replica: its master's tables replace this change, so make it there"
"""java: tools send some changes to masters and replicas, so a replica does not refuse them. It answers
SUCCESS with this remark, which promises nothing."""
