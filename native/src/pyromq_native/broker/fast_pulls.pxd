"""Pulls, for the fast path."""

from libc.stdint cimport int32_t, int64_t

from pyromq_native.broker.counting cimport Touched
from pyromq_native.growing cimport Growing
from pyromq_native.protocol.headers cimport Header
from pyromq_native.protocol.requests cimport Pull


cdef class ReadGrant:
    cdef object group
    cdef object topic
    cdef object tag_codes
    cdef int32_t queues
    cdef int64_t newest_version
    cdef int64_t suggested_near
    cdef int64_t suggested_far
    cdef dict counted


cdef class FastPulls:
    cdef object _read, _read_grants, _offsets, _statistics, _found
    cdef Touched _touched
    cdef Py_ssize_t _max_frame_bytes
    cdef dict _known_grants
    cdef Growing _scratch
    cdef bytes _json_end

    cdef Py_ssize_t take(self, Header *header, Pull *pull, connection) except -2
    cdef ReadGrant _find_grant(self, int32_t code, Pull *pull)
