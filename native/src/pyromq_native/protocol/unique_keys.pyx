# cython: boundscheck=False, wraparound=False
"""The same keys as those of `UniqueKeys.next`, and the times of messages."""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport int64_t, uint32_t
from libc.string cimport memcpy

cdef extern from "Python.h":
    object PyUnicode_New(Py_ssize_t size, Py_UCS4 max_char)
    void *PyUnicode_DATA(object text)

cdef extern from "time.h" nogil:
    ctypedef int clockid_t
    cdef struct timespec:
        int64_t tv_sec
        long tv_nsec
    int CLOCK_REALTIME
    int CLOCK_MONOTONIC
    int clock_gettime(clockid_t clock, timespec *now)

cdef enum:
    KEYS_AT_ONCE = 64
    COUNTER_CHARS = 4

cdef const char *HEX = b"0123456789ABCDEF"


cdef object _monotonic = None


cdef int64_t _machine_us() noexcept:
    cdef timespec now
    clock_gettime(CLOCK_MONOTONIC, &now)
    return now.tv_sec * 1000000 + now.tv_nsec // 1000


cdef int64_t _told_us() noexcept:
    return <int64_t>(<double>_monotonic() * 1e6)


monotonic_us = _machine_us


def set_monotonic(function):
    """Where the time comes from that no caller gives; None is the machine. For simulations only."""
    global _monotonic, monotonic_us
    _monotonic = function
    monotonic_us = _machine_us if function is None else _told_us


cdef class KeyMaker:
    def __init__(self, unique_keys, now_ms):
        """`now_ms` tells the time, None is the machine's own."""
        self._unique_keys = unique_keys
        self._now_ms = now_ms
        self._moment_ms = -1

    cdef int64_t time_ms(self) except? -1:
        cdef timespec now
        if self._now_ms is not None:
            return self._now_ms()
        clock_gettime(CLOCK_REALTIME, &now)
        return <int64_t>now.tv_sec * 1000 + now.tv_nsec // 1000000

    cdef object next(self, int64_t now_ms):
        """Numbers are taken several at a time, for one moment."""
        if now_ms != self._moment_ms:
            self._start = self._unique_keys.start_of(now_ms).encode()
            self._moment_ms = now_ms
            self._counters_left = 0
        if not self._counters_left:
            self._counter = self._unique_keys.reserve(KEYS_AT_ONCE) & 0xFFFFFFFF
            self._counters_left = KEYS_AT_ONCE
        cdef uint32_t number = self._counter
        self._counter += 1
        self._counters_left -= 1
        cdef Py_ssize_t size = PyBytes_GET_SIZE(self._start)
        cdef object key = PyUnicode_New(size + COUNTER_CHARS, 127)
        cdef char *at = <char *>PyUnicode_DATA(key)
        memcpy(at, PyBytes_AS_STRING(self._start), <size_t>size)
        at[size] = HEX[number >> 12 & 15]
        at[size + 1] = HEX[number >> 8 & 15]
        at[size + 2] = HEX[number >> 4 & 15]
        at[size + 3] = HEX[number & 15]
        return key
