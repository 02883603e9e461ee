"""Unique keys of messages, made without a call for each."""

from libc.stdint cimport int64_t, uint32_t


cdef int64_t (*monotonic_us)() noexcept


cdef class KeyMaker:
    cdef object _unique_keys, _now_ms
    cdef bytes _start
    cdef int64_t _moment_ms
    cdef uint32_t _counter, _counters_left
    cdef int64_t time_ms(self) except? -1
    cdef object next(self, int64_t now_ms)
