"""What a producer is answered with, by what became of its message."""

from pyromq.protocol.codes import ResponseCode
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
}
