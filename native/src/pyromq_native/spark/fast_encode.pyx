# cython: boundscheck=False, wraparound=False
"""Arrow columns become the entries of batch sends, without an object for each row.

Columns come as (bits that say who is there, or None; offset; edges; bytes, or None), as Arrow keeps them. What
cannot be sent (no body, separators inside of properties, properties that are too long) is declined.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer, Py_buffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t
from libc.string cimport memcmp, memcpy

from pyromq.protocol import properties as props

from pyromq_native.protocol.declared cimport MAX_PROPERTIES_BYTES, MIN_ENTRY_BYTES


cdef enum:
    ID_DIGITS = 12
    MOST_COLUMNS = 8
    MOST_SKIPPED = 64

ctypedef const uint8_t *Bytes

cdef bytes BEFORE_ID = f"{props.UNIQ_KEY}{props.NAME_SEPARATOR}".encode()
cdef bytes AFTER_ID = f"{props.PAIR_SEPARATOR}{props.WAIT}{props.NAME_SEPARATOR}true".encode()
cdef Bytes HEX = b"0123456789ABCDEF"


cdef struct Text:
    Bytes at
    int64_t size


cdef struct Cells:
    Bytes bits
    Bytes edges
    Bytes data
    int64_t offset
    int64_t count
    int64_t data_bytes


cdef class _Column:
    """Arrow's buffers of one column, held while this lives."""
    cdef Py_buffer views[3]
    cdef bint held[3]
    cdef Cells cells

    def __cinit__(self, parts):
        bits, offset, edges, data = parts
        cdef int index = 0
        cdef int64_t room
        for buffer in (bits, edges, data):
            if buffer is not None:
                PyObject_GetBuffer(buffer, &self.views[index], PyBUF_SIMPLE)
                self.held[index] = True
            index += 1
        self.cells.offset = offset
        self.cells.bits = <Bytes>self.views[0].buf if self.held[0] else NULL
        self.cells.edges = <Bytes>self.views[1].buf if self.held[1] else NULL
        self.cells.data = <Bytes>self.views[2].buf if self.held[2] else NULL
        self.cells.data_bytes = self.views[2].len if self.held[2] else 0
        room = self.views[1].len // 4 - 1 if self.held[1] else 0
        if self.held[0]:
            room = min(room, self.views[0].len * 8)
        self.cells.count = max(room - self.cells.offset, 0) if self.cells.offset >= 0 else 0

    def __dealloc__(self):
        cdef int index
        for index in range(3):
            if self.held[index]:
                PyBuffer_Release(&self.views[index])


cdef inline bint is_there(Cells *cells, int64_t row) noexcept nogil:
    row += cells.offset
    return cells.bits == NULL or (cells.bits[row >> 3] >> (row & 7)) & 1


cdef inline bint span(Cells *cells, int64_t row, int64_t limit, int64_t *start, int64_t *end) noexcept nogil:
    """Between which edges a row lies; False if they make no sense."""
    cdef int32_t low, high
    memcpy(&low, cells.edges + 4 * (row + cells.offset), 4)
    memcpy(&high, cells.edges + 4 * (row + cells.offset) + 4, 4)
    start[0] = low
    end[0] = high
    return 0 <= low <= high <= limit


cdef inline bint cell(Cells *cells, int64_t row, Text *text) noexcept nogil:
    """The value in a row, nothing where it is null; False if the column is damaged."""
    cdef int64_t start, end
    text.size = 0
    if not is_there(cells, row):
        return True
    if not span(cells, row, cells.data_bytes, &start, &end):
        return False
    text.at = cells.data + start
    text.size = end - start
    return True


cdef inline bint has_separator(Text *text) noexcept nogil:
    cdef uint8_t found = 0
    cdef int64_t at
    for at in range(text.size):
        found |= <uint8_t>(text.at[at] - 1) < 2
    return found


cdef inline uint8_t *put(uint8_t *out, Bytes at, int64_t size) noexcept nogil:
    memcpy(out, at, size)
    return out + size


cdef inline uint8_t *put_u32(uint8_t *out, uint32_t value) noexcept nogil:
    out[0] = <uint8_t>(value >> 24)
    out[1] = <uint8_t>(value >> 16)
    out[2] = <uint8_t>(value >> 8)
    out[3] = <uint8_t>value
    return out + 4


cdef int64_t column_bytes(Cells *cells, int64_t count) noexcept nogil:
    """How much is in some rows, -1 if the column has not that many."""
    cdef int64_t start, end, unused
    if count > cells.count:
        return -1
    if not span(cells, 0, cells.data_bytes, &start, &unused):
        return -1
    if not span(cells, count - 1, cells.data_bytes, &unused, &end):
        return -1
    return end - start


def entries(allocate, int64_t count, values, tuple texts, pairs, tuple skipped, bytes prefix, int64_t first):
    """Each row as an entry: (edges, bytes, bytes used), or None if a row cannot be sent like that.

    `texts`: for each property that is a column, its name and the column. `pairs`: the column of maps with the
    columns of names and values below it, or None; names in `skipped` are omitted. Ids are `prefix` and the
    number of the row, counted from `first`.
    """
    cdef int64_t bound = count * (
        MIN_ENTRY_BYTES + len(BEFORE_ID) + len(prefix) + ID_DIGITS + len(AFTER_ID)
    )
    cdef _Column body = _Column(values)
    cdef Cells columns[MOST_COLUMNS]
    cdef Text names[MOST_COLUMNS]
    cdef Text left_out[MOST_SKIPPED]
    cdef Cells maps
    cdef Cells map_names
    cdef Cells map_values
    cdef Cells *bodies = &body.cells
    cdef bint has_maps = pairs is not None
    cdef int column, columns_count = len(texts), skip, skipped_count = len(skipped), digit
    cdef int64_t row, pair, size, low = 0, high = 0, number
    cdef int32_t used
    cdef Text text
    cdef Text name
    cdef Bytes before_id = <Bytes>PyBytes_AS_STRING(BEFORE_ID)
    cdef Bytes after_id = <Bytes>PyBytes_AS_STRING(AFTER_ID)
    cdef int64_t before_bytes = len(BEFORE_ID), after_bytes = len(AFTER_ID), prefix_bytes = len(prefix)
    cdef int64_t tail_bytes = before_bytes + prefix_bytes + ID_DIGITS + after_bytes
    cdef Bytes id_prefix = <Bytes>PyBytes_AS_STRING(prefix)
    cdef uint8_t *out
    cdef uint8_t *base
    cdef uint8_t *limit
    cdef uint8_t *entry
    cdef uint8_t *properties
    cdef uint8_t *edge
    cdef Py_buffer edges_view
    cdef Py_buffer data_view
    cdef bint is_fine = True
    held = []
    if count < 1 or columns_count > MOST_COLUMNS or skipped_count > MOST_SKIPPED:
        return None
    size = column_bytes(bodies, count)
    if size < 0:
        return None
    bound += size
    for column in range(columns_count):
        text_name, parts = texts[column]
        made = _Column(parts)
        held.append((text_name, made))
        names[column].at = <Bytes>PyBytes_AS_STRING(text_name)
        names[column].size = PyBytes_GET_SIZE(text_name)
        columns[column] = (<_Column>made).cells
        size = column_bytes(&columns[column], count)
        if size < 0:
            return None
        bound += size + count * (names[column].size + 2)
    for skip in range(skipped_count):
        left_out[skip].at = <Bytes>PyBytes_AS_STRING(skipped[skip])
        left_out[skip].size = PyBytes_GET_SIZE(skipped[skip])
    if has_maps:
        map_column, name_column, value_column = [_Column(parts) for parts in pairs]
        maps = (<_Column>map_column).cells
        map_names = (<_Column>name_column).cells
        map_values = (<_Column>value_column).cells
        if count > maps.count:
            return None
        bound += map_names.data_bytes + map_values.data_bytes + 2 * min(map_names.count, map_values.count)
    if bound > 0x7FFFFFFF:
        return None
    edges = allocate(4 * (count + 1))
    data = allocate(bound)
    PyObject_GetBuffer(edges, &edges_view, PyBUF_WRITABLE)
    try:
        PyObject_GetBuffer(data, &data_view, PyBUF_WRITABLE)
        try:
            if edges_view.len < 4 * (count + 1) or data_view.len < bound:
                raise ValueError("a buffer is smaller than what was asked for")
            base = out = <uint8_t *>data_view.buf
            # Columns that are whole never reach it; damaged ones may say the same bytes twice.
            limit = base + bound
            edge = <uint8_t *>edges_view.buf
            with nogil:
                used = 0
                memcpy(edge, &used, 4)
                for row in range(count):
                    entry = out
                    if (
                        not cell(bodies, row, &text)
                        or not text.size
                        or limit - out < text.size + MIN_ENTRY_BYTES + tail_bytes
                    ):
                        is_fine = False
                        break
                    out = put_u32(entry + 4, 0)
                    out = put_u32(out, 0)
                    out = put_u32(out, 0)
                    out = put_u32(out, <uint32_t>text.size)
                    out = put(out, text.at, text.size)
                    properties = out + 2
                    out = properties
                    for column in range(columns_count):
                        if not cell(&columns[column], row, &text) or has_separator(&text):
                            is_fine = False
                            break
                        if text.size:
                            if limit - out < names[column].size + text.size + 2 + tail_bytes:
                                is_fine = False
                                break
                            out = put(out, names[column].at, names[column].size)
                            out[0] = 1
                            out = put(out + 1, text.at, text.size)
                            out[0] = 2
                            out += 1
                    if has_maps and is_fine and is_there(&maps, row):
                        if not span(&maps, row, min(map_names.count, map_values.count), &low, &high):
                            is_fine = False
                            break
                        for pair in range(low, high):
                            if (
                                not cell(&map_names, pair, &name)
                                or not cell(&map_values, pair, &text)
                                or has_separator(&name)
                                or has_separator(&text)
                            ):
                                is_fine = False
                                break
                            if not name.size or not text.size:
                                continue
                            for skip in range(skipped_count):
                                if (
                                    left_out[skip].size == name.size
                                    and memcmp(left_out[skip].at, name.at, name.size) == 0
                                ):
                                    break
                            else:
                                if limit - out < name.size + text.size + 2 + tail_bytes:
                                    is_fine = False
                                    break
                                out = put(out, name.at, name.size)
                                out[0] = 1
                                out = put(out + 1, text.at, text.size)
                                out[0] = 2
                                out += 1
                    if not is_fine:
                        break
                    out = put(out, before_id, before_bytes)
                    out = put(out, id_prefix, prefix_bytes)
                    number = first + row
                    for digit in range(ID_DIGITS):
                        out[ID_DIGITS - 1 - digit] = HEX[(number >> (4 * digit)) & 15]
                    out = put(out + ID_DIGITS, after_id, after_bytes)
                    size = out - properties
                    if size > MAX_PROPERTIES_BYTES:
                        is_fine = False
                        break
                    (properties - 2)[0] = <uint8_t>(size >> 8)
                    (properties - 1)[0] = <uint8_t>size
                    put_u32(entry, <uint32_t>(out - entry))
                    used = <int32_t>(out - base)
                    memcpy(edge + 4 * (row + 1), &used, 4)
        finally:
            PyBuffer_Release(&data_view)
    finally:
        PyBuffer_Release(&edges_view)
    return (edges, data) if is_fine else None
