# cython: boundscheck=False, wraparound=False
"""Twin of `pyromq.client.consumer.handling.runs`: async handlers that do not wait, one after the other."""

from time import monotonic as time_monotonic
from types import CoroutineType

from cpython.object cimport PyObject
from cpython.ref cimport Py_DECREF
from cpython.time cimport monotonic as c_monotonic

from pyromq_native.client.twin_pulled_message cimport HeldMessages

cdef extern from "Python.h":
    ctypedef enum PySendResult:
        PYGEN_RETURN
        PYGEN_ERROR
        PYGEN_NEXT
    int PyIter_Send(object iterator, object argument, PyObject **result) except? PYGEN_ERROR


cdef class Lot:
    cdef readonly HeldMessages held
    cdef readonly list messages
    cdef readonly object handler
    cdef readonly object counts
    cdef public Py_ssize_t next

    def __init__(self, HeldMessages held not None, list messages not None, handler, counts, Py_ssize_t next=0):
        self.held = held
        self.messages = messages
        self.handler = handler
        self.counts = counts
        self.next = next

    @property
    def waiting(self):
        return len(self.messages) - self.next

    def take(self, Py_ssize_t count):
        taken = self.messages[self.next : self.next + count]
        self.next += len(taken)
        return taken

    def cut(self):
        del self.messages[self.next :]


cdef inline double _time(monotonic) except? -1:
    return c_monotonic() if monotonic is time_monotonic else monotonic()


def run_handlers(function, Lot lot not None, monotonic, double turn_ends):
    cdef list messages = lot.messages
    cdef HeldMessages held = lot.held
    cdef Py_ssize_t index = lot.next
    cdef double begun = _time(monotonic)
    cdef double now = begun
    cdef PyObject *given = NULL
    cdef int how
    while index < len(messages) and not held.is_closing:
        message = messages[index]
        index += 1
        lot.next = index
        begun = now
        try:
            coroutine = function(message)
            if type(coroutine) is not CoroutineType:
                return coroutine, False, None, None, begun, now
            how = PyIter_Send(coroutine, None, &given)
        except BaseException as problem:
            return None, False, None, problem, begun, _time(monotonic)
        value = <object>given
        Py_DECREF(value)
        if how == PYGEN_NEXT:
            return coroutine, True, value, None, begun, now
        now = _time(monotonic)
        if now > turn_ends:
            break
    return None, False, None, None, begun, now
