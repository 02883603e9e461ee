"""Messages of pull answers, and those that are held; for the other compiled modules."""

from libc.stdint cimport int64_t


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


cdef class HeldMessages:
    cdef public bint is_dropped
    cdef public bint is_closing
    cdef public Py_ssize_t size_bytes
    cdef public double last_done
    cdef readonly dict _messages
    cdef public int64_t _last_offset
    cdef public object _has_room_again
    cdef public object _idle
    cdef int end(self, message) except -1
    cdef int let_go(self, Py_ssize_t size_bytes) except -1
