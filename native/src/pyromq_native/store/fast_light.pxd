"""Where light queues and their entries are written next, for compiled appends and dispatch."""

from cpython cimport array
from libc.stdint cimport int32_t, int64_t, uint8_t


cdef struct Entry:
    int64_t queue_offset
    int64_t jump


cdef class EntriesEnd:
    cdef public int64_t first
    cdef public int64_t end
    cdef public int64_t per_file
    cdef public int64_t buffer_start
    cdef public int64_t buffer_end
    cdef public object buffer
    cdef public bint is_dirty
    cdef public set dirty
    cdef public dict mapped

    cdef bint find(self, const uint8_t *tail, int64_t place, Entry *entry) except -1


cdef class NamesEnd:
    cdef public dict numbers
    cdef public array.array firsts
    cdef public list unused
    cdef public bytearray unwritten

    cdef int64_t add(self, name, int64_t first) except -1


cdef class LightEnd:
    cdef public NamesEnd names_end
    cdef public dict numbers
    cdef public array.array ends
    cdef public array.array nexts
    cdef public array.array lasts
    cdef public array.array epochs
    cdef public int64_t count
    cdef public int64_t after
    cdef public int64_t usual_from
    cdef public EntriesEnd chain

    cdef int64_t find(self, name) except -2
    cdef int64_t find_or_add(self, name) except -1
    cdef int appended(self, name, int64_t number) except -1
    cdef int enter(
        self,
        name,
        int64_t queue_offset,
        int64_t log_offset,
        int32_t size,
        int64_t tags_code,
    ) except -1
