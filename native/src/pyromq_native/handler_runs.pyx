# cython: boundscheck=False, wraparound=False
"""Twin of `pyromq.client.consumer.handling.runs`: async handlers that do not wait, one after the other."""

from types import CoroutineType

from cpython.object cimport PyObject
from cpython.ref cimport Py_DECREF

cdef extern from "Python.h":
    ctypedef enum PySendResult:
        PYGEN_RETURN
        PYGEN_ERROR
        PYGEN_NEXT
    int PyIter_Send(object iterator, object argument, PyObject **result) except? PYGEN_ERROR


def run_handlers(function, lot, monotonic, double turn_ends):
    cdef list messages = lot.messages
    held = lot.held
    cdef Py_ssize_t index = lot.next
    cdef double begun = monotonic()
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
            return None, False, None, problem, begun, monotonic()
        value = <object>given
        Py_DECREF(value)
        if how == PYGEN_NEXT:
            return coroutine, True, value, None, begun, now
        now = monotonic()
        if now > turn_ends:
            break
    return None, False, None, None, begun, now
