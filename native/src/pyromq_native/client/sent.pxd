"""A send begins, is awaited and gets its result here; kinds of sends say how."""

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


cdef class PlainSends:
    cdef object generally
    cdef bint is_closed
    cdef Sent new(self, message)


cdef class Wakeup:
    cdef list _sends
    cdef Py_ssize_t _told
    cdef object _loop, _nowhere, _after
    cdef bint is_running
    cdef bint _is_planned
    cdef int wake(self, list sends) except -1
    cdef int wake_one(self, Sent sent) except -1
    cdef int _plan(self) except -1
