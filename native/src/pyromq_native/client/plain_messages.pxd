"""Messages of applications, read without a call for each field."""

from cpython.object cimport PyObject
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


cdef enum:
    MAX_FIELDS = 32


cdef enum Field:
    TOPIC
    BODY
    TAGS
    KEYS
    PROPERTIES
    FLAG
    OTHERS


cdef class PlainMessages:
    cdef tuple _names
    # Keeps those of `_default_at`.
    cdef list _defaults
    cdef PyObject *_default_at[MAX_FIELDS]
    cdef Py_ssize_t _fields
    cdef Py_ssize_t _at[MAX_FIELDS]
    cdef object _kind
    cdef object field(self, object message, int which)
    cdef bint _has_defaults(self, object message) except -1
    cdef bint read(self, object message, Py_ssize_t body_limit, Plain *into) except -1
