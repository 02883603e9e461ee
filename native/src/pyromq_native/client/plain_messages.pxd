"""Messages of applications, read without a call for each field."""

from libc.stdint cimport int32_t


cdef struct Text:
    const char *at
    Py_ssize_t size


cdef struct Plain:
    Text body
    # Empty without them.
    Text tags
    Text keys
    int32_t flag


cdef class PlainMessages:
    cdef tuple _names
    cdef Py_ssize_t _at[11]
    cdef object _kind
    cdef object field(self, object message, int which)
    cdef bint read(self, object message, Py_ssize_t body_limit, Plain *into) except -1


cdef enum Field:
    TOPIC = 0
    BODY = 1
    TAGS = 2
    KEYS = 3
    PROPERTIES = 4
    DELAY_LEVEL = 5
    DELAY_MS = 6
    DELIVER_AT_MS = 7
    WAIT_STORED = 8
    FLAG = 9
    PRIORITY = 10
