"""Queues that take messages, by the bytes of their topics."""

from libc.stdint cimport int32_t, uint64_t

from pyromq_native.broker.counting cimport Counted
from pyromq_native.protocol.headers cimport Span


cdef class WritableQueue(Counted):
    cdef object topic
    cdef object queue_id
    cdef int32_t number
    cdef int32_t sys_flag
    cdef bint has_quota
    # What the light queues of its lite topics begin with; None if it has none.
    cdef bytes lite_prefix
    cdef uint64_t lite_hash


cdef class KnownQueues:
    cdef object _writable_queues, _statistics
    cdef bint _has_light_queues
    cdef dict _queues
    cdef bytes _last_topic
    cdef list _last_queues

    cdef WritableQueue find(self, Span *topic, int32_t queue_id)
    cdef WritableQueue _open(self, Span *topic, int32_t queue_id)
