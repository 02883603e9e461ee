# cython: boundscheck=False, wraparound=False
"""Twin of `pyromq.client.pulled_message`: messages of a pull answer, decoded only as far as they are asked.

A message keeps a copy of its own record and nothing else of the answer, so holding one of them is cheap.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.string cimport memcmp

from pyromq.protocol.record import decode_record

from pyromq_native.big_endian cimport get_int32
from pyromq_native.records cimport Outline, outline_record

cdef enum:
    # A body that must be decompressed, or taken out of an inner batch.
    CLOSED = 0x81


cdef class PulledMessage:
    cdef public object queue
    cdef public object topic
    cdef readonly int64_t queue_offset
    cdef readonly Py_ssize_t body_bytes
    cdef public object _properties
    cdef object _stored
    cdef bytes _record
    cdef bytes _body
    cdef Py_ssize_t _body_at
    cdef Py_ssize_t _properties_at

    def __init__(self, stored, queue, topic=None):
        self.queue = queue
        self.topic = stored.topic if topic is None else topic
        self.queue_offset = stored.queue_offset
        self._stored = stored
        self._body = stored.body
        self.body_bytes = PyBytes_GET_SIZE(self._body)

    @property
    def stored(self):
        if self._stored is None:
            self._stored = decode_record(self._record, check_crc=False)
            self._body = self._stored.body
            self._record = None
        return self._stored

    @property
    def body(self):
        if self._body is None:
            self._body = PyBytes_FromStringAndSize(PyBytes_AS_STRING(self._record) + self._body_at, self.body_bytes)
        return self._body

    @property
    def raw_properties(self):
        if self._stored is not None:
            return self._stored.properties
        return self._record[self._properties_at :]


def pulled_messages(type kind, bytes data not None, queue, int32_t queue_id, bytes topic not None, shown, int64_t first, int64_t end):
    """The messages of an answer as objects of `kind`, in order; None if the general path must decode it.

    `topic` and `queue_id` must be those of each record, and the offsets rise from `first` to below `end`.
    """
    cdef const uint8_t *start = <const uint8_t *>PyBytes_AS_STRING(data)
    cdef const uint8_t *wanted = <const uint8_t *>PyBytes_AS_STRING(topic)
    cdef Py_ssize_t topic_bytes = PyBytes_GET_SIZE(topic)
    cdef Py_ssize_t available = PyBytes_GET_SIZE(data)
    cdef Py_ssize_t position = 0
    cdef Py_ssize_t length_at
    cdef Outline outline
    cdef PulledMessage message
    cdef list messages = []
    if not issubclass(kind, PulledMessage):
        raise TypeError(f"{kind} is not a PulledMessage")
    while position < available:
        if not outline_record(start + position, available - position, &outline):
            return None
        if (
            outline.queue_id != queue_id
            or outline.queue_offset < first
            or outline.queue_offset >= end
            or outline.sys_flag & CLOSED
            or outline.topic_bytes != topic_bytes
            or memcmp(start + position + outline.topic_start, wanted, <size_t>topic_bytes)
        ):
            return None
        first = outline.queue_offset + 1
        message = PulledMessage.__new__(kind)
        message.queue = queue
        message.topic = shown
        message.queue_offset = outline.queue_offset
        # The body's length is behind both hosts, the store timestamp, reconsume times and prepared offset.
        length_at = 84 + (12 if outline.sys_flag & 0x10 else 0) + (12 if outline.sys_flag & 0x20 else 0)
        message._body_at = length_at + 4
        message.body_bytes = get_int32(start + position + length_at)
        message._properties_at = outline.properties_start
        message._record = PyBytes_FromStringAndSize(<const char *>start + position, outline.size)
        messages.append(message)
        position += outline.size
    return messages


def hold(dict held not None, messages, int64_t last):
    """Twin of `in_flight.hold`."""
    cdef Py_ssize_t size_bytes = 0
    for message in messages:
        if isinstance(message, PulledMessage):
            last = (<PulledMessage>message).queue_offset
            size_bytes += (<PulledMessage>message).body_bytes
        else:
            last = message.queue_offset
            size_bytes += message.body_bytes
        held[last] = message
    return last, size_bytes


def let_go(dict held not None, messages):
    """Twin of `in_flight.let_go`."""
    cdef Py_ssize_t size_bytes = 0
    for message in messages:
        if isinstance(message, PulledMessage):
            if held.pop((<PulledMessage>message).queue_offset, None) is not None:
                size_bytes += (<PulledMessage>message).body_bytes
        elif held.pop(message.queue_offset, None) is not None:
            size_bytes += message.body_bytes
    return size_bytes
