"""Counts that are added to the statistics once per read."""

from libc.stdint cimport int64_t


cdef class Counted:
    cdef object series
    cdef long calls
    cdef long messages
    cdef int64_t size_bytes

    cdef int settle(self) except -1


cdef class Touched:
    cdef list counted

    cdef int count(self, Counted counted, long messages, int64_t size_bytes) except -1
    cdef int settle(self) except -1
