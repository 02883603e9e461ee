# cython: boundscheck=False, wraparound=False
"""The usual case of light queues: a record that names one of them, whose entry fits in the file that is written.

Anything else is declined before anything has changed, and `pyromq.store.light.light_queues` does it.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_GET_SIZE, PyByteArray_Resize
from cpython cimport array
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t
from libc.string cimport memcpy

from pyromq_native.big_endian cimport get_int64, put_int32, put_int64
from pyromq_native.protocol.checksums cimport crc32_of
from pyromq_native.protocol.declared cimport LIGHT_ENTRY_BYTES, LIGHT_NAME_HEAD_BYTES

cdef extern from "Python.h":
    const char *PyUnicode_AsUTF8AndSize(object text, Py_ssize_t *length) except NULL


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
        at = <uint8_t *>PyByteArray_AS_STRING(self.unwritten) + start
        put_int32(at + 4, <uint32_t>number)
        put_int64(at + 8, first)
        at[16], at[17] = <uint8_t>(length >> 8), <uint8_t>length
        memcpy(at + LIGHT_NAME_HEAD_BYTES, text, <size_t>length)
        put_int32(at, crc32_of(at + 4, LIGHT_NAME_HEAD_BYTES - 4 + length))
        return number


cdef class LightEnd:
    """The numbers of light queues by their names, and by number where each is written next."""

    cdef int64_t find(self, name) except -2:
        """The number of a light queue; -1 if it has none."""
        cdef object number = self.numbers.get(name)
        return -1 if number is None else <int64_t>number

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
        return 0

    cdef int enter(
        self,
        name,
        int64_t queue_offset,
        int64_t log_offset,
        int32_t size,
        int64_t tags_code,
    ) except -1:
        """Add a record to one light queue; 0 if that was declined."""
        cdef EntriesEnd entries = self.chain
        cdef int64_t number, place, jump
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
        number = self.find_or_add(name)
        PyObject_GetBuffer(entries.buffer, &view, PyBUF_WRITABLE)
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
