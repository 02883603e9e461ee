"""The answer to a send: its code and its fields.

The fields are declared here once. The general path fills them in as a dictionary; the fast path writes the
same answer from `SendAnswerPieces`, the bytes between the values.
"""

from typing import NamedTuple

import msgspec

from pyromq.protocol.binary_header import encode_ext
from pyromq.protocol.codes import CURRENT_VERSION, ResponseCode
from pyromq.store.results import AppendStatus

SEND_CODES = {
    AppendStatus.PUT_OK: ResponseCode.SUCCESS,
    AppendStatus.FLUSH_DISK_TIMEOUT: ResponseCode.FLUSH_DISK_TIMEOUT,
    AppendStatus.FLUSH_SLAVE_TIMEOUT: ResponseCode.FLUSH_SLAVE_TIMEOUT,
    AppendStatus.SLAVE_NOT_AVAILABLE: ResponseCode.SLAVE_NOT_AVAILABLE,
    AppendStatus.SERVICE_NOT_AVAILABLE: ResponseCode.SERVICE_NOT_AVAILABLE,
    AppendStatus.CREATE_MAPPED_FILE_FAILED: ResponseCode.SYSTEM_ERROR,
    AppendStatus.MESSAGE_ILLEGAL: ResponseCode.MESSAGE_ILLEGAL,
    AppendStatus.PROPERTIES_SIZE_EXCEEDED: ResponseCode.MESSAGE_ILLEGAL,
    AppendStatus.LMQ_CONSUME_QUEUE_NUM_EXCEEDED: ResponseCode.LMQ_QUOTA_EXCEEDED,
    AppendStatus.WHEEL_TIMER_MSG_ILLEGAL: ResponseCode.MESSAGE_ILLEGAL,
    AppendStatus.WHEEL_TIMER_FLOW_CONTROL: ResponseCode.SYSTEM_ERROR,
    AppendStatus.WHEEL_TIMER_NOT_ENABLE: ResponseCode.SYSTEM_ERROR,
}

_MESSAGE_ID, _QUEUE_ID, _QUEUE_OFFSET, _UNIQUE_KEY = "msgId", "queueId", "queueOffset", "transactionId"

RECALL_HANDLE = "recallHandle"
"""Only in the answer for a message that waits for its time."""

LITE_OFFSET = "liteOffset"
"""Only in the answer for a message of a lite topic that states an epoch."""


def send_answer_fields(
    message_ids: str, queue_id: int, queue_offset: int, fixed: dict[str, str], unique_key: str | None
) -> dict[str, str]:
    """`fixed`: the fields that are the same in every answer of this broker."""
    fields = {
        _MESSAGE_ID: message_ids,
        _QUEUE_ID: str(queue_id),
        _QUEUE_OFFSET: str(queue_offset),
        **fixed,
    }
    if unique_key is not None:
        fields[_UNIQUE_KEY] = unique_key
    return fields


class SendAnswerPieces(NamedTuple):
    """The bytes before each value of a SUCCESS answer, in one header form.

    In a JSON header: message ids, queue id, queue offset, (`fixed` follows it), unique key and recall handle
    if there are any, opaque number, end. In a binary one the fields alone, without the lengths of their
    values.
    """

    message_ids: bytes
    queue_id: bytes
    queue_offset: bytes
    fixed: bytes
    unique_key: bytes
    recall_handle: bytes
    text_end: bytes = b""
    opaque: bytes = b""
    end: bytes = b""


def json_pieces(fixed: dict[str, str]) -> SendAnswerPieces:
    return SendAnswerPieces(
        message_ids=b'{"code":0,"extFields":{"%s":"' % _MESSAGE_ID.encode(),
        queue_id=b'","%s":"' % _QUEUE_ID.encode(),
        queue_offset=b'","%s":"' % _QUEUE_OFFSET.encode(),
        fixed=b'",' + msgspec.json.encode(fixed)[1:-1],
        unique_key=b',"%s":"' % _UNIQUE_KEY.encode(),
        recall_handle=b',"%s":"' % RECALL_HANDLE.encode(),
        text_end=b'"',
        opaque=b'},"flag":1,"language":"PYTHON","opaque":',
        end=b',"serializeTypeCurrentRPC":"JSON","version":%d}' % CURRENT_VERSION,
    )


def binary_pieces(fixed: dict[str, str]) -> SendAnswerPieces:
    return SendAnswerPieces(
        message_ids=_binary_name(_MESSAGE_ID),
        queue_id=_binary_name(_QUEUE_ID),
        queue_offset=_binary_name(_QUEUE_OFFSET),
        fixed=encode_ext(fixed),
        unique_key=_binary_name(_UNIQUE_KEY),
        recall_handle=_binary_name(RECALL_HANDLE),
    )


def _binary_name(name: str) -> bytes:
    return len(name).to_bytes(2, "big") + name.encode()
