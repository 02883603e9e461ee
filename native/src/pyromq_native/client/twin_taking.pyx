# cython: boundscheck=False, wraparound=False
"""Twin of `pyromq.client.consumer.handling.taking`: streams take messages, and those before are done."""

import asyncio
import sys
from asyncio.events import _get_running_loop
from collections import deque
from types import CoroutineType

cimport cython
from cpython.object cimport PyObject, PyTypeObject
from cpython.ref cimport Py_DECREF, Py_INCREF

from pyromq.client.consumer.handling.loops import FAILED, is_left_on_purpose
from pyromq_native.client.twin_pulled_message cimport HeldMessages

cdef extern from "Python.h":
    ctypedef enum PySendResult:
        PYGEN_RETURN
        PYGEN_ERROR
        PYGEN_NEXT
    int PyIter_Send(object iterator, object argument, PyObject **result) except? PYGEN_ERROR

cdef extern from *:
    """
    static void pyromq_set_send(PyTypeObject *kind, void *send) {
        kind->tp_as_async->am_send = (sendfunc)send;
    }
    """
    void set_send "pyromq_set_send"(PyTypeObject *kind, void *send)

try:
    from _asyncio import _current_tasks
except ImportError:  # since 3.14 there is no such table
    _current_tasks = None

cdef dict TASKS = _current_tasks


cdef inline object _current_task():
    return TASKS.get(_get_running_loop()) if TASKS is not None else asyncio.current_task()


cdef class Offer:
    cdef readonly list messages
    cdef readonly Py_ssize_t next
    cdef object _is_dropped, _settle

    def __init__(self, list messages not None, is_dropped, settle):
        self.messages = messages
        self._is_dropped = is_dropped
        self._settle = settle

    @property
    def waiting(self):
        return len(self.messages) - self.next

    cdef object taken(self):
        if self.next >= len(self.messages) or self.drops():
            return None
        message = self.messages[self.next]
        self.next += 1
        return message

    cdef bint drops(self) except -1:
        return self._is_dropped()

    def settle(self, message, problem):
        self.end(message, problem)

    cdef int end(self, message, problem) except -1:
        self._settle(message, problem)
        return 0


cdef class QueueOffer(Offer):
    cdef HeldMessages _held
    cdef object _counts, _monotonic
    cdef double _started

    def __init__(self, list messages not None, HeldMessages held not None, counts, monotonic, otherwise):
        Offer.__init__(self, messages, bool, otherwise)
        self._held = held
        self._counts = counts
        self._monotonic = monotonic
        self._started = monotonic()

    cdef bint drops(self) except -1:
        return self._held.is_closing

    cdef int end(self, message, problem) except -1:
        cdef double now
        cdef HeldMessages held = self._held
        counts = self._counts
        if problem is not None:
            self._settle(message, problem)
        elif not held.is_dropped:
            now = self._monotonic()
            held.end(message)
            held.last_done = now
            counts.handled += 1
            counts.handle_ms += (now - self._started) * 1000
            counts.succeeded += 1
        return 0


cdef class Taking:
    cdef readonly object _waiting
    cdef readonly dict _taken, _loops, _left
    cdef public object _all_settled
    cdef public bint _is_observed

    def __init__(self):
        self._waiting = deque()
        self._taken = {}
        self._loops = {}
        self._left = {}

    def __aiter__(self):
        cdef Loop loop = Loop.__new__(Loop)
        loop._stream = self
        return loop

    def __anext__(self):
        return self.following()

    cdef Next following(self):
        cdef Next following = Next.__new__(Next)
        following._stream = self
        return following

    cpdef object _take(self, me):
        """The next message, if one is there; the reader's last one is done now."""
        cdef Offer offer
        if me in self._taken:
            self._settle(me, FAILED if self._left and self._has_failed(me) else None)
        waiting = self._waiting
        while waiting:
            offer = waiting[0]
            message = offer.taken()
            if message is not None:
                self._taken[me] = (message, offer)
                return message
            waiting.popleft()
        return None

    cpdef object _settle(self, reader, problem):
        cdef tuple entry = self._forget(reader)
        (<Offer?>entry[1]).end(entry[0], problem)
        if self._all_settled is not None:
            self._tell_finisher()

    cpdef tuple _forget(self, reader):
        """The reader's last message is no longer its own."""
        if self._left:
            self._left.pop(reader, None)
        return self._taken.pop(reader)

    def enter(self, reader, loop):
        if reader in self._loops and reader in self._taken:
            self._left[reader] = False
        self._loops[reader] = loop

    def leave(self, reader, loop, *, on_purpose):
        if self._loops.get(reader) == loop:
            del self._loops[reader]
            if reader in self._taken:
                self._left[reader] = on_purpose

    def _has_failed(self, reader):
        return not self._left.get(reader, True)

    cpdef object _tell_finisher(self):
        if self._all_settled is not None and not self._taken and not self._all_settled.done():
            self._all_settled.set_result(None)


cdef class Loop:
    """One `async for` over a stream."""

    cdef Taking _stream
    cdef object _reader

    def __aiter__(self):
        return self

    def __anext__(self):
        if self._reader is None:
            self._reader = _current_task()
            self._stream.enter(self._reader, id(self))
        return self._stream.following()

    def __del__(self):
        if self._reader is not None:
            # A compiled method has no frame: this is the one of the loop.
            self._stream.leave(self._reader, id(self), on_purpose=is_left_on_purpose(sys._getframe()))


@cython.freelist(8)
cdef class Next:
    """The result of `__anext__`, a coroutine in all but type: whoever awaits it is the reader."""

    cdef Taking _stream
    cdef object _waiting
    """A coroutine or an iterator, once the reader had to wait."""

    def __await__(self):
        return self

    def __next__(self):
        return self.send(None)

    def send(self, value):
        cdef PyObject *given = NULL
        cdef int how = step(self, value, &given)
        result = <object>given
        Py_DECREF(result)
        if how == PYGEN_NEXT:
            return result
        raise StopIteration(result)

    def throw(self, *problem):
        if self._waiting is None:
            self._stream = None
            raise problem[1] if len(problem) > 1 and problem[1] is not None else problem[0]
        try:
            return self._waiting.throw(*problem)
        except StopIteration as stop:
            message = stop.value
        self._stream = None
        if message is None:
            raise StopAsyncIteration
        raise StopIteration(message)

    def close(self):
        self._stream = None
        if self._waiting is not None:
            self._waiting.close()


cdef int step(Next self, object value, PyObject **given) except -1:
    cdef Taking stream = self._stream
    cdef int how
    given[0] = NULL
    if stream is None:
        raise RuntimeError("cannot reuse already awaited coroutine")
    if self._waiting is None:
        me = _current_task()
        message = None if stream._is_observed else stream._take(me)
        if message is not None:
            self._stream = None
            Py_INCREF(message)
            given[0] = <PyObject *>message
            return PYGEN_RETURN
        waiting = stream.next_for(me)
        self._waiting = waiting if type(waiting) is CoroutineType else waiting.__await__()
    how = PyIter_Send(self._waiting, value, given)
    if how == PYGEN_RETURN:
        self._stream = None
        if <object>given[0] is None:
            Py_DECREF(<object>given[0])
            given[0] = NULL
            raise StopAsyncIteration
    return how


# Without this, every message would be the value of a StopIteration.
set_send(<PyTypeObject *>Next, <void *>step)
