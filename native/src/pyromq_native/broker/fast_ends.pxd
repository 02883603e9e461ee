"""Ends of transactions, for the fast path."""

from libc.stdint cimport int64_t, uint8_t

from pyromq_native.store.fast_appending cimport Appender
from pyromq_native.broker.counting cimport Touched
from pyromq_native.broker.known_queues cimport KnownQueues
from pyromq_native.protocol.requests cimport End


cdef class FastEnds:
    cdef Appender _appender
    cdef bytes _store_host, _half_topic
    cdef object _transactions
    cdef KnownQueues _queues
    cdef Touched _touched

    cdef bint take(self, End *end, set granted) except -1
    cdef tuple _end_half(self, End *end, set granted, const uint8_t *at, int64_t room)
