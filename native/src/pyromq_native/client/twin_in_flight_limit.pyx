"""Twin of `InterpretedCounts`: what is in flight is counted for every message."""

from collections import deque


cdef class InFlightCounts:
    def __init__(self, Py_ssize_t max_count, Py_ssize_t max_bytes):
        self._max_count = max_count
        self._max_bytes = max_bytes
        self._waiting = deque()

    cpdef bint try_enter(self, Py_ssize_t size_bytes) except -1:
        cdef Py_ssize_t total_bytes = self.size_bytes + size_bytes
        if self._waiting:
            return False
        if self.count and (self.count >= self._max_count or total_bytes > self._max_bytes):
            return False
        self.count += 1
        self.size_bytes = total_bytes
        return True
