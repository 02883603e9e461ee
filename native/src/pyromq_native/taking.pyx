# cython: boundscheck=False, wraparound=False
"""Twin of `pyromq.client.consumer.handling.taking`: streams take messages, and those before are done."""

import asyncio
from asyncio.events import _get_running_loop
from collections import deque

try:
    from _asyncio import _current_tasks
except ImportError:  # since 3.14 there is no such table
    _current_tasks = None

cdef dict TASKS = _current_tasks


cdef inline object _current_task():
    return TASKS.get(_get_running_loop()) if TASKS is not None else asyncio.current_task()


cdef class Offer:
    cdef object _held, _counts, _monotonic, _otherwise
    cdef double _started

    def __init__(self, held, counts, monotonic, otherwise):
        self._held = held
        self._counts = counts
        self._monotonic = monotonic
        self._otherwise = otherwise
        self._started = monotonic()

    def __call__(self, message, problem):
        self._settle(message, problem)

    cdef int _settle(self, message, problem) except -1:
        cdef double now
        held, counts = self._held, self._counts
        if problem is not None:
            self._otherwise(message, problem)
        elif not held.is_dropped:
            now = self._monotonic()
            held.done(message)
            held.last_done = now
            counts.handled += 1
            counts.handle_ms += (now - self._started) * 1000
            counts.succeeded += 1
        return 0


cdef class Taking:
    cdef readonly object _waiting
    cdef readonly dict _taken
    cdef public object _all_settled
    cdef public bint _is_observed

    def __init__(self):
        self._waiting = deque()
        self._taken = {}

    async def __anext__(self):
        me = _current_task()
        message = None if self._is_observed else self._take(me)
        if message is None:
            message = await self.next_for(me)
        if message is None:
            raise StopAsyncIteration
        return message

    cpdef object _take(self, me):
        """The next message, if one is there; the reader's last one is done now."""
        cdef dict taken = self._taken
        cdef tuple entry
        if me in taken:
            self._settle(me, None)
        waiting = self._waiting
        while waiting:
            entry = waiting.popleft()
            if not entry[1]():
                taken[me] = (entry[0], entry[2])
                return entry[0]
        return None

    cpdef object _settle(self, reader, problem):
        cdef tuple entry = self._taken.pop(reader)
        settle = entry[1]
        if type(settle) is Offer:
            (<Offer>settle)._settle(entry[0], problem)
        else:
            settle(entry[0], problem)
        if self._all_settled is not None:
            self._tell_finisher()

    cpdef object _tell_finisher(self):
        if self._all_settled is not None and not self._taken and not self._all_settled.done():
            self._all_settled.set_result(None)
