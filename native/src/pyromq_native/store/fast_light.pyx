# cython: boundscheck=False, wraparound=False
"""The usual case of light queues: a record that names one of them, whose entry fits in the file that is written.

Anything else is declined before anything has changed, and `pyromq.store.light.light_queues` does it.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_GET_SIZE, PyByteArray_Resize
from cpython cimport array
from cpython.object cimport PyObject
from cpython.ref cimport Py_INCREF, Py_XDECREF
from libc.stdint cimport UINT32_MAX, int32_t, int64_t, uint8_t, uint32_t, uint64_t, uintptr_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcmp, memcpy, memset

from pyromq_native.big_endian cimport get_int64, put_int32, put_int64
from pyromq_native.protocol.checksums cimport crc32_of
from pyromq_native.protocol.declared cimport LIGHT_ENTRY_BYTES, LIGHT_NAME_HEAD_BYTES
from pyromq_native.prefetch cimport prefetch

cdef extern from "Python.h":
    const char *PyUnicode_AsUTF8AndSize(object text, Py_ssize_t *length) except NULL
    bint PyUnicode_IS_COMPACT_ASCII(PyObject *text)
    Py_ssize_t PyUnicode_GET_LENGTH(PyObject *text)
    const uint8_t *PyUnicode_1BYTE_DATA(PyObject *text)

cdef extern from "<sys/mman.h>" nogil:
    """
    #ifndef MAP_ANONYMOUS
    #define MAP_ANONYMOUS MAP_ANON
    #endif
    """
    enum: PROT_READ, PROT_WRITE, MAP_PRIVATE, MAP_ANONYMOUS
    void *MAP_FAILED
    void *mmap(void *address, size_t length, int protection, int flags, int file, long offset)
    int munmap(void *address, size_t length)

cdef enum:
    SLOTS = 8
    LINE_BYTES = 64
    FIRST_BUCKETS = 64


cdef uint64_t hash_of(const uint8_t *text, Py_ssize_t length) noexcept nogil:
    """Names that were made to collide are only looked up in the slower way."""
    cdef uint64_t value = <uint64_t>length, piece
    while length >= 8:
        memcpy(&piece, text, 8)
        value = (value ^ piece) * <uint64_t>0x9E3779B97F4A7C15u
        value ^= value >> 32
        text += 8
        length -= 8
    if length:
        piece = 0
        memcpy(&piece, text, <size_t>length)
        value = (value ^ piece) * <uint64_t>0x9E3779B97F4A7C15u
        value ^= value >> 32
    value *= <uint64_t>0xD6E8FEB86659FD93u
    return value ^ value >> 32


cdef uint64_t hash_of_queue(const uint8_t *name, Py_ssize_t length) noexcept nogil:
    """Of the part up to the last `$` and of the lite topic behind it, so that the first is known beforehand."""
    cdef Py_ssize_t start = length
    while start and name[start - 1] != c"$":
        start -= 1
    return hash_of(name, start) + hash_of(name + start, length - start)


cdef inline void read_entry(const uint8_t *at, Entry *entry) noexcept nogil:
    entry.queue_offset = get_int64(at + 8)
    entry.jump = get_int64(at + 32)


cdef class EntriesEnd:
    """Where the next entry is written: `buffer` is the file of the entries from `buffer_start` to `buffer_end`."""

    cdef bint find(self, const uint8_t *tail, int64_t place, Entry *entry) except -1:
        """Read the entry that another one names; False if it is not kept. `tail` is the start of `buffer`."""
        cdef int64_t number = place - 1, start
        cdef Py_buffer view
        if place <= self.first:
            return False
        if self.buffer_start <= number < self.buffer_end:
            read_entry(tail + (number - self.buffer_start) * LIGHT_ENTRY_BYTES, entry)
            return True
        start = number - number % self.per_file
        PyObject_GetBuffer(self.mapped[start].buffer, &view, PyBUF_SIMPLE)
        read_entry(<const uint8_t *>view.buf + (number - start) * LIGHT_ENTRY_BYTES, entry)
        PyBuffer_Release(&view)
        return True


cdef inline int append(array.array column, int64_t value) except -1:
    cdef Py_ssize_t length = len(column)
    array.resize_smart(column, length + 1)
    column.data.as_longlongs[length] = value
    return 0


cdef class NamesEnd:
    """The names of light queues, and those that are to be written."""

    cdef int64_t add(self, name, int64_t first) except -1:
        """Give a light queue a number; its entries come from `first` on. See `pyromq.store.light.names`."""
        cdef int64_t number
        cdef Py_ssize_t length, start = PyByteArray_GET_SIZE(self.unwritten)
        cdef const char *text = PyUnicode_AsUTF8AndSize(name, &length)
        cdef uint8_t *at
        PyByteArray_Resize(self.unwritten, start + LIGHT_NAME_HEAD_BYTES + length)
        if self.unused:
            number = self.unused.pop()
            self.firsts.data.as_longlongs[number] = first
        else:
            number = len(self.firsts)
            append(self.firsts, first)
        self.numbers[name] = number
        self.note(number, name)
        at = <uint8_t *>PyByteArray_AS_STRING(self.unwritten) + start
        put_int32(at + 4, <uint32_t>number)
        put_int64(at + 8, first)
        at[16], at[17] = <uint8_t>(length >> 8), <uint8_t>length
        memcpy(at + LIGHT_NAME_HEAD_BYTES, text, <size_t>length)
        put_int32(at, crc32_of(at + 4, LIGHT_NAME_HEAD_BYTES - 4 + length))
        return number

    def __dealloc__(self):
        self.forget()
        free(self._names)

    def note(self, int64_t number, name):
        """The number has this name, which `numbers` has, or none."""
        cdef PyObject **names
        cdef int64_t room = self._room
        if number >= room:
            if name is None:
                return
            room = max(2 * room, number + 1, 64)
            names = <PyObject **>realloc(self._names, <size_t>room * sizeof(PyObject *))
            if names is NULL:
                raise MemoryError()
            memset(names + self._room, 0, <size_t>(room - self._room) * sizeof(PyObject *))
            self._names, self._room = names, room
        Py_XDECREF(self._names[number])
        self._names[number] = NULL
        if name is not None and PyUnicode_IS_COMPACT_ASCII(<PyObject *>name):
            Py_INCREF(name)
            self._names[number] = <PyObject *>name
            self.learn(number)

    def forget(self):
        """No number has a name."""
        cdef int64_t number
        for number in range(self._room):
            Py_XDECREF(self._names[number])
            self._names[number] = NULL
        self._drop_slots()

    cdef object name_of(self, int64_t number):
        return <object>self._names[number]

    cdef void expect(self, uint64_t name_hash) noexcept:
        """A name with this hash is asked for soon."""
        if self._buckets:
            prefetch(<uintptr_t>(self._slots + (name_hash & (self._buckets - 1)) * SLOTS))

    cdef void expect_name(self, uint64_t name_hash) noexcept:
        """Later, and still before it is asked for."""
        cdef const uint64_t *bucket
        cdef int64_t number
        cdef int index
        if self._buckets:
            bucket = self._slots + (name_hash & (self._buckets - 1)) * SLOTS
            for index in range(SLOTS):
                if bucket[index] >> 32 == name_hash >> 32:
                    number = <int64_t><uint32_t>bucket[index] - 1
                    if number >= 0:
                        prefetch(<uintptr_t>self._names[number])
                        prefetch(<uintptr_t>self._names[number] + LINE_BYTES)
                    return

    cdef int64_t recall(self, const uint8_t *name, Py_ssize_t length, uint64_t name_hash) noexcept:
        """The number of the light queue with this name; -1 if that must be looked up in `numbers`."""
        cdef uint64_t tag = name_hash >> 32
        cdef const uint64_t *bucket
        cdef PyObject *found
        cdef int64_t number
        cdef int index
        if not self._buckets:
            return -1
        bucket = self._slots + (name_hash & (self._buckets - 1)) * SLOTS
        for index in range(SLOTS):
            if bucket[index] >> 32 == tag:
                number = <int64_t><uint32_t>bucket[index] - 1
                found = self._names[number] if number >= 0 else NULL
                if (
                    found is not NULL
                    and PyUnicode_GET_LENGTH(found) == length
                    and not memcmp(PyUnicode_1BYTE_DATA(found), name, <size_t>length)
                ):
                    return number
        return -1

    cdef int learn(self, int64_t number) except -1:
        """Have the name of a number found by `recall`."""
        cdef PyObject *name = self._names[number] if number < self._room else NULL
        if name is not NULL and number < UINT32_MAX:
            self._insert(hash_of_queue(PyUnicode_1BYTE_DATA(name), PyUnicode_GET_LENGTH(name)), number)
        return 0

    cdef int _insert(self, uint64_t name_hash, int64_t number) except -1:
        cdef uint64_t *bucket
        cdef uint64_t slot = name_hash >> 32 << 32 | <uint64_t>(number + 1)
        cdef int index
        if not self._buckets:
            self._grow()
        while True:
            bucket = self._slots + (name_hash & (self._buckets - 1)) * SLOTS
            for index in range(SLOTS):
                if not bucket[index]:
                    bucket[index] = slot
                    return 0
            if 4 * self._buckets * SLOTS >= 5 * <uint64_t>len(self.numbers):
                break
            self._grow()
        self._evicted += 1
        bucket[self._evicted % SLOTS] = slot
        return 0

    cdef int _grow(self) except -1:
        """Names come back one by one when they are asked for: to move a million of them would take long."""
        cdef uint64_t buckets = max(2 * self._buckets, <uint64_t>FIRST_BUCKETS)
        cdef void *memory
        self._drop_slots()
        # Zeros, whose pages cost nothing until they are written; and the system has them back at once.
        memory = mmap(NULL, buckets * LINE_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)
        if memory == MAP_FAILED:
            raise MemoryError()
        self._slots = <uint64_t *>memory
        self._buckets = buckets
        return 0

    cdef void _drop_slots(self) noexcept:
        if self._buckets:
            munmap(self._slots, self._buckets * LINE_BYTES)
        self._slots = NULL
        self._buckets = 0


cdef class LightEnd:
    """The numbers of light queues by their names, and by number where each is written next."""

    cdef int64_t find(self, name) except -2:
        """The number of a light queue; -1 if it has none."""
        cdef object found = self.numbers.get(name)
        if found is None:
            return -1
        self.names_end.learn(<int64_t>found)
        return <int64_t>found

    cdef int64_t find_or_add(self, name) except -1:
        cdef int64_t number = self.find(name)
        if number < 0:
            number = self.names_end.add(name, self.chain.end)
            if number == len(self.ends):
                append(self.ends, 0)
                append(self.nexts, 0)
                append(self.lasts, 0)
                append(self.epochs, 0)
        return number

    cdef int appended(self, name, int64_t number) except -1:
        """A message without an epoch that got the next offset of a light queue is in the log."""
        if number < 0:
            number = self.find_or_add(name)
        if not self.nexts.data.as_longlongs[number]:
            self.count += 1
        self.nexts.data.as_longlongs[number] += 1
        self.epochs.data.as_longlongs[number] = 0
        prefetch(<uintptr_t>&self.ends.data.as_longlongs[number])
        prefetch(self._before_entries + <uintptr_t>self.lasts.data.as_longlongs[number] * LIGHT_ENTRY_BYTES)
        return 0

    cdef int enter(
        self,
        name,
        int64_t number,
        int64_t queue_offset,
        int64_t log_offset,
        int32_t size,
        int64_t tags_code,
    ) except -1:
        """Add a record to one light queue, whose number may be given; 0 if that was declined."""
        cdef EntriesEnd entries = self.chain
        cdef int64_t place, jump
        cdef Py_buffer view
        cdef uint8_t *at
        cdef Entry previous, far, further
        if (
            log_offset < self.usual_from
            or log_offset < self.after
            or entries.buffer is None
            or not entries.buffer_start <= entries.end < entries.buffer_end
        ):
            return 0
        if number < 0:
            number = self.find_or_add(name)
        PyObject_GetBuffer(entries.buffer, &view, PyBUF_WRITABLE)
        self._before_entries = <uintptr_t>view.buf - <uintptr_t>(entries.buffer_start + 1) * LIGHT_ENTRY_BYTES
        try:
            place = jump = self.lasts.data.as_longlongs[number]
            if (
                not entries.find(<uint8_t *>view.buf, place, &previous)
                or queue_offset < self.ends.data.as_longlongs[number]
            ):
                place = jump = 0
            elif entries.find(<uint8_t *>view.buf, previous.jump, &far) and entries.find(
                <uint8_t *>view.buf, far.jump, &further
            ):
                if previous.queue_offset - far.queue_offset == far.queue_offset - further.queue_offset:
                    jump = far.jump
            at = <uint8_t *>view.buf + (entries.end - entries.buffer_start) * LIGHT_ENTRY_BYTES
            put_int64(at, log_offset)
            put_int64(at + 8, queue_offset)
            put_int64(at + 16, tags_code)
            put_int64(at + 24, place)
            put_int64(at + 32, jump)
            put_int32(at + 40, <uint32_t>size)
            put_int32(at + 44, <uint32_t>number)
        finally:
            PyBuffer_Release(&view)
        if not entries.is_dirty:
            entries.dirty.add(entries.buffer_start)
            entries.is_dirty = True
        entries.end += 1
        self.lasts.data.as_longlongs[number] = entries.end
        self.ends.data.as_longlongs[number] = queue_offset + 1
        if self.nexts.data.as_longlongs[number] < queue_offset + 1:
            if not self.nexts.data.as_longlongs[number]:
                self.count += 1
            self.nexts.data.as_longlongs[number] = queue_offset + 1
            self.epochs.data.as_longlongs[number] = -1
        self.after = log_offset + 1
        return 1
