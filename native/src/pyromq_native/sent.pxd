"""A send is begun, awaited and told here; kinds of sends say how."""

from cpython.object cimport PyObject

cdef enum State:
    NEW
    WAITING
    TOLD
    CANCELLED
    ELSEWHERE
    OVER


cdef resume_in_c(object kind)


cdef class Sent:
    cdef object loop
    cdef object otherwise
    """A coroutine that sends the message in another way."""
    cdef object _callback, _context, _reason
    cdef State _state
    cdef bint _is_blocking

    cdef object begin(self)
    cdef bint is_settled(self)
    cdef object outcome(self)
    cdef int give_up(self) except -1
    cdef int resume(self, object value, PyObject **result) except -1
    cpdef bint done(self)
    cdef object _cancellation(self)
    cdef int tell(self) except -1
