"""Acknowledgements, for the fast path."""

from libc.stdint cimport int32_t, int64_t

from pyromq_native.growing cimport Growing
from pyromq_native.protocol.headers cimport Header
from pyromq_native.protocol.requests cimport Ack


cdef class AckRun:
    cdef object found
    cdef bytes group, topic, receipt
    cdef int32_t queue_id
    cdef int64_t first, end
    cdef list offsets

    cdef bint is_of(self, Ack *ack) noexcept


cdef class FastAcks:
    cdef object _acks
    cdef bytes _before, _after
    cdef AckRun _run
    cdef Growing _answers

    cdef bint take(self, Header *header, Ack *ack, connection) except -1
    cdef int end(self, connection) except -1
    cdef AckRun _begin(self, Ack *ack)
