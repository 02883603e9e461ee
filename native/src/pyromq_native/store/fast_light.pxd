"""Where light queues and their entries are written next, for compiled appends and dispatch."""

from cpython cimport array
from cpython.object cimport PyObject
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t, uintptr_t


cdef struct Entry:
    int64_t queue_offset
    int64_t jump


cdef uint64_t hash_of(const uint8_t *text, Py_ssize_t length) noexcept nogil
cdef uint64_t hash_of_queue(const uint8_t *name, Py_ssize_t length) noexcept nogil


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
    # By number: the name, or NULL if it is not known, or is not ASCII.
    cdef PyObject **_names
    cdef int64_t _room
    # A cache of numbers, in buckets of one cache line: the upper half of a slot is a part of the name's hash, the
    # lower half one more than the number. A name may be missing here, or its number belong to another one by now.
    cdef uint64_t *_slots
    cdef uint64_t _buckets
    cdef uint64_t _evicted

    cdef int64_t add(self, name, int64_t first) except -1
    cdef void expect(self, uint64_t name_hash) noexcept
    cdef void expect_name(self, uint64_t name_hash) noexcept
    cdef int64_t recall(self, const uint8_t *name, Py_ssize_t length, uint64_t name_hash) noexcept
    cdef object name_of(self, int64_t number)
    cdef int learn(self, int64_t number) except -1
    cdef int _insert(self, uint64_t name_hash, int64_t number) except -1
    cdef int _grow(self) except -1
    cdef void _drop_slots(self) noexcept


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
    # One before the address that entry 0 had, if all were where the last one was written: only for prefetching.
    cdef uintptr_t _before_entries

    cdef int64_t find(self, name) except -2
    cdef int64_t find_or_add(self, name) except -1
    cdef int appended(self, name, int64_t number) except -1
    cdef int enter(
        self,
        name,
        int64_t number,
        int64_t queue_offset,
        int64_t log_offset,
        int32_t size,
        int64_t tags_code,
    ) except -1
