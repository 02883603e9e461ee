# cython: boundscheck=False, wraparound=False
"""Stored records become the buffers of Arrow columns, without an object for each record.

What is unusual (damaged records, packed bodies, inner batches, IPv6 hosts, text that is not UTF-8) is declined.
Buffers are made by the caller's `allocate`, which takes a number of bytes and gives something writable.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer, Py_buffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc, realloc
from libc.string cimport memchr, memcmp, memcpy, memset

from pyromq_native.protocol.declared cimport (
    FLAG_COMPRESSED,
    FLAG_HOSTS_MASK,
    FLAG_INNER_BATCH,
    FLAG_NEED_UNWRAP,
    MAGIC_V1,
    MAGIC_V2,
    MIN_RECORD_BYTES,
)


cdef enum:
    QUEUE_OFFSET_AT = 20
    SYS_FLAG_AT = 36
    BODY_LENGTH_AT = 84
    BODY_AT = 88
    MOST_PAIRS = 128
    MOST_COLUMNS = 16

# Compressed bodies, IPv6 hosts, inner batches: they must be opened first.
cdef uint32_t ODD = FLAG_COMPRESSED | FLAG_HOSTS_MASK | FLAG_NEED_UNWRAP | FLAG_INNER_BATCH

ctypedef const uint8_t *Bytes


cdef struct Record:
    Bytes at
    Bytes properties
    int32_t body_bytes
    int32_t properties_bytes


cdef struct Text:
    Bytes at
    int32_t size


# A column that is being filled; `data` has room for all properties.
cdef struct TextColumn:
    int32_t *edges
    uint8_t *data
    uint8_t *present
    int64_t used
    int64_t absent


cdef inline uint32_t u32(Bytes at) noexcept nogil:
    return (<uint32_t>at[0] << 24) | (<uint32_t>at[1] << 16) | (<uint32_t>at[2] << 8) | at[3]


cdef inline int32_t i32(Bytes at) noexcept nogil:
    return <int32_t>u32(at)


cdef inline int64_t i64(Bytes at) noexcept nogil:
    return <int64_t>((<uint64_t>u32(at) << 32) | u32(at + 4))


cdef inline int32_t i16(Bytes at) noexcept nogil:
    cdef int32_t value = (<int32_t>at[0] << 8) | at[1]
    return value - 65536 if value & 0x8000 else value


cdef bint is_utf8(Bytes at, Bytes end) noexcept nogil:
    cdef uint8_t first, second
    cdef uint64_t eight
    while at < end:
        if end - at >= 8:
            memcpy(&eight, at, 8)
            if not eight & <uint64_t>0x8080808080808080:
                at += 8
                continue
        first = at[0]
        if first < 0x80:
            at += 1
            continue
        if first < 0xC2 or first > 0xF4 or end - at < 2:
            return False
        second = at[1]
        if second & 0xC0 != 0x80:
            return False
        if first < 0xE0:
            at += 2
            continue
        # Neither longer than needed, nor half of a pair, nor beyond the last character.
        if (first == 0xE0 and second < 0xA0) or (first == 0xED and second > 0x9F):
            return False
        if end - at < 3 or at[2] & 0xC0 != 0x80:
            return False
        if first < 0xF0:
            at += 3
            continue
        if (first == 0xF0 and second < 0x90) or (first == 0xF4 and second > 0x8F):
            return False
        if end - at < 4 or at[3] & 0xC0 != 0x80:
            return False
        at += 4
    return True


cdef int split_pairs(Bytes at, Bytes end, Text *names, Text *values) noexcept nogil:
    """The pairs of one message, -1 if there are too many; of equal names the later value stays."""
    cdef int count = 0
    cdef int known
    cdef Bytes stop
    cdef Bytes cut
    cdef int32_t name_bytes
    while at < end:
        stop = <Bytes>memchr(at, 2, end - at)
        if stop == NULL:
            stop = end
        cut = <Bytes>memchr(at, 1, stop - at)
        if cut != NULL and cut > at and cut + 1 < stop:
            name_bytes = <int32_t>(cut - at)
            for known in range(count):
                if names[known].size == name_bytes and memcmp(names[known].at, at, name_bytes) == 0:
                    break
            else:
                known = count
                if count == MOST_PAIRS:
                    return -1
                count += 1
                names[known].at = at
                names[known].size = name_bytes
            values[known].at = cut + 1
            values[known].size = <int32_t>(stop - cut - 1)
        at = stop + 1
    return count


cdef inline void append(TextColumn *column, Bytes at, int32_t size) noexcept nogil:
    memcpy(column.data + column.used, at, size)
    column.used += size


cdef class _Target:
    """A buffer that is being written to, exported only while this lives."""
    cdef Py_buffer view
    cdef bint held
    cdef object owner

    def __cinit__(self, object allocate, int64_t size):
        self.owner = allocate(size)
        PyObject_GetBuffer(self.owner, &self.view, PyBUF_WRITABLE)
        self.held = True
        if self.view.len < size:
            raise ValueError("a buffer is smaller than what was asked for")

    def __dealloc__(self):
        if self.held:
            PyBuffer_Release(&self.view)


cdef class Scan:
    """The records of some answers, of which those from offset `start` to `end` are kept."""
    cdef Record *records
    cdef Py_buffer *views
    cdef Py_ssize_t held
    cdef readonly Py_ssize_t count
    cdef int64_t bodies_bytes
    cdef int64_t properties_bytes

    def __dealloc__(self):
        cdef Py_ssize_t index
        for index in range(self.held):
            PyBuffer_Release(&self.views[index])
        free(self.views)
        free(self.records)

    cdef bint _walk(self, int64_t start, int64_t end):
        """Find the records; False if one of them is not plain and whole."""
        cdef Py_ssize_t index, room = 0
        cdef int64_t left, size, topic_bytes, offset
        cdef int32_t body_bytes, properties_bytes
        cdef uint32_t magic
        cdef Bytes at
        cdef Bytes rest
        cdef Record *larger
        cdef Record *record
        for index in range(self.held):
            at = <Bytes>self.views[index].buf
            left = self.views[index].len
            while left:
                if left < MIN_RECORD_BYTES:
                    return False
                size = i32(at)
                magic = u32(at + 4)
                if size < MIN_RECORD_BYTES or size > left or u32(at + SYS_FLAG_AT) & ODD:
                    return False
                body_bytes = i32(at + BODY_LENGTH_AT)
                if body_bytes < 0 or body_bytes > size - MIN_RECORD_BYTES:
                    return False
                rest = at + BODY_AT + body_bytes
                if magic == <uint32_t>MAGIC_V1:
                    topic_bytes = rest[0] + 1
                elif magic == <uint32_t>MAGIC_V2:
                    topic_bytes = i16(rest) + 2
                    if topic_bytes < 2:
                        return False
                else:
                    return False
                if BODY_AT + body_bytes + topic_bytes + 2 > size:
                    return False
                rest += topic_bytes
                properties_bytes = i16(rest)
                if BODY_AT + body_bytes + topic_bytes + 2 + properties_bytes != size or properties_bytes < 0:
                    return False
                offset = i64(at + QUEUE_OFFSET_AT)
                if start <= offset < end:
                    if self.count == room:
                        room = max(2 * room, 1024)
                        larger = <Record *>realloc(self.records, room * sizeof(Record))
                        if larger == NULL:
                            raise MemoryError
                        self.records = larger
                    record = &self.records[self.count]
                    record.at = at
                    record.properties = rest + 2
                    record.body_bytes = body_bytes
                    record.properties_bytes = properties_bytes
                    self.bodies_bytes += body_bytes
                    self.properties_bytes += properties_bytes
                    self.count += 1
                at += size
                left -= size
        # Arrow counts in 32 bits.
        return self.bodies_bytes <= 0x7FFFFFFF and self.properties_bytes <= 0x7FFFFFFF

    def int32s(self, allocate, Py_ssize_t position):
        """The number at a position of each record's fixed part."""
        self._check(position, 4)
        cdef _Target target = _Target(allocate, self.count * sizeof(int32_t))
        cdef int32_t *out = <int32_t *>target.view.buf
        cdef Py_ssize_t row
        with nogil:
            for row in range(self.count):
                out[row] = i32(self.records[row].at + position)
        return target.owner

    def int64s(self, allocate, Py_ssize_t position, int64_t factor):
        """The same for numbers of eight bytes, multiplied."""
        self._check(position, 8)
        cdef _Target target = _Target(allocate, self.count * sizeof(int64_t))
        cdef uint64_t *out = <uint64_t *>target.view.buf
        cdef Py_ssize_t row
        with nogil:
            for row in range(self.count):
                out[row] = <uint64_t>i64(self.records[row].at + position) * <uint64_t>factor
        return target.owner

    cdef _check(self, Py_ssize_t position, int width):
        if position < 0 or position + width > BODY_AT:
            raise ValueError("outside the fixed part of a record")

    def bodies(self, allocate):
        """The edges and the bytes of all bodies."""
        cdef _Target edges = _Target(allocate, (self.count + 1) * sizeof(int32_t))
        cdef _Target data = _Target(allocate, self.bodies_bytes)
        cdef int32_t *edge = <int32_t *>edges.view.buf
        cdef uint8_t *out = <uint8_t *>data.view.buf
        cdef int32_t used = 0
        cdef Py_ssize_t row
        cdef Record *record
        with nogil:
            edge[0] = 0
            for row in range(self.count):
                record = &self.records[row]
                memcpy(out + used, record.at + BODY_AT, record.body_bytes)
                used += record.body_bytes
                edge[row + 1] = used
        return edges.owner, data.owner

    def properties(self, allocate, tuple wanted, bint as_map):
        """`wanted`: the names of properties that become columns. None if something is not UTF-8.

        Gives a list of (bits that say who has it, how many have not, edges, bytes, bytes used), one for each
        name, and (edges of the maps, edges and bytes of names, edges and bytes of values) or None.
        """
        cdef Py_ssize_t columns = len(wanted)
        cdef TextColumn column[MOST_COLUMNS]
        cdef Text name[MOST_COLUMNS]
        cdef Text names[MOST_PAIRS]
        cdef Text values[MOST_PAIRS]
        cdef TextColumn all_names
        cdef TextColumn all_values
        cdef int32_t *map_edges = NULL
        cdef Py_ssize_t index, row, pairs_room = 0
        cdef int64_t pairs = 0
        cdef int found, pair
        cdef bint is_read = True
        cdef Record *record
        if columns > MOST_COLUMNS:
            return None
        targets = []
        for index in range(columns):
            name[index].at = <Bytes>PyBytes_AS_STRING(wanted[index])
            name[index].size = <int32_t>PyBytes_GET_SIZE(wanted[index])
            bits = _Target(allocate, (self.count + 7) // 8)
            edges = _Target(allocate, (self.count + 1) * sizeof(int32_t))
            data = _Target(allocate, self.properties_bytes)
            targets.append((bits, edges, data))
            column[index].present = <uint8_t *>(<_Target>bits).view.buf
            column[index].edges = <int32_t *>(<_Target>edges).view.buf
            column[index].data = <uint8_t *>(<_Target>data).view.buf
            column[index].used = 0
            column[index].absent = 0
            column[index].edges[0] = 0
            memset(column[index].present, 0, (self.count + 7) // 8)
        map_targets = []
        if as_map:
            # A pair has four bytes at least, but for the last one, which may lack its end.
            pairs_room = self.properties_bytes // 4 + self.count + 1
            for size in (
                (self.count + 1) * sizeof(int32_t),
                (pairs_room + 1) * sizeof(int32_t),
                self.properties_bytes,
                (pairs_room + 1) * sizeof(int32_t),
                self.properties_bytes,
            ):
                map_targets.append(_Target(allocate, size))
            map_edges = <int32_t *>(<_Target>map_targets[0]).view.buf
            all_names.edges = <int32_t *>(<_Target>map_targets[1]).view.buf
            all_names.data = <uint8_t *>(<_Target>map_targets[2]).view.buf
            all_values.edges = <int32_t *>(<_Target>map_targets[3]).view.buf
            all_values.data = <uint8_t *>(<_Target>map_targets[4]).view.buf
            all_names.used = all_values.used = 0
            map_edges[0] = all_names.edges[0] = all_values.edges[0] = 0
        with nogil:
            for row in range(self.count):
                record = &self.records[row]
                if not is_utf8(record.properties, record.properties + record.properties_bytes):
                    is_read = False
                    break
                found = split_pairs(
                    record.properties, record.properties + record.properties_bytes, names, values
                )
                if found < 0:
                    is_read = False
                    break
                for index in range(columns):
                    for pair in range(found):
                        if (
                            names[pair].size == name[index].size
                            and memcmp(names[pair].at, name[index].at, name[index].size) == 0
                        ):
                            append(&column[index], values[pair].at, values[pair].size)
                            column[index].present[row >> 3] |= <uint8_t>(1 << (row & 7))
                            break
                    else:
                        column[index].absent += 1
                    column[index].edges[row + 1] = <int32_t>column[index].used
                if as_map:
                    for pair in range(found):
                        append(&all_names, names[pair].at, names[pair].size)
                        append(&all_values, values[pair].at, values[pair].size)
                        pairs += 1
                        all_names.edges[pairs] = <int32_t>all_names.used
                        all_values.edges[pairs] = <int32_t>all_values.used
                    map_edges[row + 1] = <int32_t>pairs
        if not is_read:
            return None
        texts = []
        for index in range(columns):
            bits, edges, data = targets[index]
            texts.append(
                (
                    (<_Target>bits).owner,
                    column[index].absent,
                    (<_Target>edges).owner,
                    (<_Target>data).owner,
                )
            )
        if not as_map:
            return texts, None
        return texts, (pairs, *[(<_Target>target).owner for target in map_targets])


def scan(list bodies, int64_t start, int64_t end):
    """The records in `bodies`, or None if one of them is damaged or must be opened."""
    cdef Scan made = Scan.__new__(Scan)
    made.views = <Py_buffer *>calloc(max(len(bodies), 1), sizeof(Py_buffer))
    if made.views == NULL:
        raise MemoryError
    for body in bodies:
        PyObject_GetBuffer(body, &made.views[made.held], PyBUF_SIMPLE)
        made.held += 1
    return made if made._walk(start, end) else None
