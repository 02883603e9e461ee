# cython: boundscheck=False, wraparound=False
"""Headers of both forms, scanned in place.

Only the plain shape of a request is known here: ASCII, every extension field a text, numbers in their usual
form. For anything unusual `scan_header` and the readers return False, and the general path decides whether it
is allowed. No byte outside of `data` is read.
"""

from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcmp

from pyromq_native.big_endian cimport get_uint32
from pyromq_native.protocol.declared cimport FIXED_BINARY_BYTES, MAX_HEADER_BYTES, PREFIX_BYTES, RESPONSE_FLAG
from pyromq_native.protocol.spans cimport is_ascii

cdef enum:
    CODE = 1
    FLAG = 2
    OPAQUE = 4
    VERSION = 8
    FIELDS = 16
    LANGUAGE = 32
    REMARK = 64
    MAX_DIGITS = 19

cdef struct Cursor:
    const uint8_t *at
    const uint8_t *end


cdef bint scan_header(
    const uint8_t *data, Py_ssize_t length, bint is_binary, Header *header
) noexcept nogil:
    header.is_binary = is_binary
    header.code = header.flag = header.opaque = header.version = 0
    header.has_remark = False
    header.field_count = 0
    if length > MAX_HEADER_BYTES:
        return False
    if is_binary:
        return _scan_binary(data, length, header)
    return _scan_json(data, length, header)


cdef Py_ssize_t next_answer_with_body(
    const uint8_t *data,
    Py_ssize_t position,
    Py_ssize_t end,
    Py_ssize_t max_frame_bytes,
    Header *header,
    Py_ssize_t *body_at,
) noexcept nogil:
    """Read a whole frame that says success, in JSON; returns the position behind it, or 0 if something else
    is there."""
    cdef uint32_t length, header_bytes
    cdef Py_ssize_t after
    body_at[0] = 0
    if end - position <= PREFIX_BYTES:
        return 0
    length = get_uint32(data + position)
    header_bytes = get_uint32(data + position + 4)
    if length + <uint64_t>4 > <uint64_t>max_frame_bytes or header_bytes >> 24:
        return 0
    after = position + 4 + <Py_ssize_t>length
    position += PREFIX_BYTES
    body_at[0] = position + <Py_ssize_t>header_bytes
    if after > end or body_at[0] > after:
        return 0
    if not scan_header(data + position, header_bytes, False, header):
        return 0
    return after if header.code == 0 and header.flag == RESPONSE_FLAG else 0


cdef Py_ssize_t next_answer(
    const uint8_t *data, Py_ssize_t position, Py_ssize_t end, Py_ssize_t max_frame_bytes, Header *header
) noexcept nogil:
    """The same for a frame without a body."""
    cdef Py_ssize_t body_at
    cdef Py_ssize_t after = next_answer_with_body(data, position, end, max_frame_bytes, header, &body_at)
    return after if after == body_at else 0


# ------------------------------------------------------------------------------------------ binary


cdef bint _scan_binary(const uint8_t *data, Py_ssize_t length, Header *header) noexcept nogil:
    cdef Py_ssize_t at = FIXED_BINARY_BYTES + 4
    cdef Py_ssize_t end, name_bytes, value_bytes
    cdef uint32_t block_bytes
    if length < at or get_uint32(data + 13) != 0:  # a remark, or no room for the rest
        return False
    header.code = <int32_t><int16_t>(data[0] << 8 | data[1])
    header.version = <int32_t><int16_t>(data[3] << 8 | data[4])
    header.opaque = <int32_t>get_uint32(data + 5)
    header.flag = <int32_t>get_uint32(data + 9)
    block_bytes = get_uint32(data + FIXED_BINARY_BYTES)
    if block_bytes > <uint64_t>(length - at):
        return False
    end = at + <Py_ssize_t>block_bytes
    while at < end:
        if end - at < 6:
            return False
        name_bytes = <int16_t>(data[at] << 8 | data[at + 1])
        at += 2
        if name_bytes < 0 or name_bytes > end - at - 4:
            return False
        value_bytes = <Py_ssize_t>get_uint32(data + at + name_bytes)
        if value_bytes > end - at - name_bytes - 4:
            return False
        # An empty value counts as a missing one.
        if name_bytes and value_bytes:
            if header.field_count == MAX_FIELDS:
                return False
            header.names[header.field_count] = Span(data + at, name_bytes, False)
            header.values[header.field_count] = Span(data + at + name_bytes + 4, value_bytes, False)
            header.field_count += 1
        if not is_ascii(data + at, name_bytes) or not is_ascii(data + at + name_bytes + 4, value_bytes):
            return False
        at += name_bytes + 4 + value_bytes
    return True


# ------------------------------------------------------------------------------------------ JSON


cdef bint _scan_json(const uint8_t *data, Py_ssize_t length, Header *header) noexcept nogil:
    cdef Cursor cursor = Cursor(data, data + length)
    cdef Span name, text
    cdef int seen = 0
    cdef int which
    cdef int32_t number = 0
    if not is_ascii(data, length) or not _take(&cursor, b"{"):
        return False
    while True:
        if not _take_text(&cursor, &name) or name.has_escapes or not _take(&cursor, b":"):
            return False
        which = _which(name)
        if which & seen:
            return False
        seen |= which
        if which == FIELDS:
            if not _scan_fields(&cursor, header):
                return False
        elif which & (CODE | FLAG | OPAQUE | VERSION):
            if not _take_number(&cursor, &number):
                return False
            if which == CODE:
                header.code = number
            elif which == FLAG:
                header.flag = number
            elif which == OPAQUE:
                header.opaque = number
            else:
                header.version = number
        elif not _take_text(&cursor, &text) or text.has_escapes:
            return False
        elif which == REMARK:
            header.has_remark = text.length > 0
        if _take(&cursor, b","):
            continue
        if not _take(&cursor, b"}"):
            return False
        _skip_blanks(&cursor)
        # Only an answer may have no fields.
        return cursor.at == cursor.end and seen & CODE and (seen & FIELDS or header.flag & RESPONSE_FLAG)


cdef inline int _which(Span name) noexcept nogil:
    if is_called(name, b"code", 4):
        return CODE
    if is_called(name, b"flag", 4):
        return FLAG
    if is_called(name, b"opaque", 6):
        return OPAQUE
    if is_called(name, b"version", 7):
        return VERSION
    if is_called(name, b"extFields", 9):
        return FIELDS
    if is_called(name, b"language", 8):
        return LANGUAGE
    if is_called(name, b"remark", 6):
        return REMARK
    return 0


cdef bint _scan_fields(Cursor *cursor, Header *header) noexcept nogil:
    cdef Span name, value
    if not _take(cursor, b"{"):
        return False
    if _take(cursor, b"}"):
        return True
    while True:
        if not _take_text(cursor, &name) or name.has_escapes or not _take(cursor, b":"):
            return False
        if not _take_text(cursor, &value) or header.field_count == MAX_FIELDS:
            return False
        header.names[header.field_count] = name
        header.values[header.field_count] = value
        header.field_count += 1
        if _take(cursor, b","):
            continue
        return _take(cursor, b"}")


cdef inline void _skip_blanks(Cursor *cursor) noexcept nogil:
    while cursor.at < cursor.end and cursor.at[0] <= 0x20 and (
        cursor.at[0] == 0x20 or cursor.at[0] == 0x0A or cursor.at[0] == 0x0D or cursor.at[0] == 0x09
    ):
        cursor.at += 1


cdef inline bint _take(Cursor *cursor, char wanted) noexcept nogil:
    """Skip the next character if it is `wanted`."""
    _skip_blanks(cursor)
    if cursor.at < cursor.end and cursor.at[0] == <uint8_t>wanted:
        cursor.at += 1
        return True
    return False


cdef inline bint _take_text(Cursor *cursor, Span *text) noexcept nogil:
    cdef const uint8_t *at
    cdef const uint8_t *end = cursor.end
    cdef bint has_escapes = False
    if not _take(cursor, b'"'):
        return False
    at = cursor.at
    while at < end and at[0] != 0x22:
        if at[0] == 0x5C:
            has_escapes = True
            at += 1
            if at == end:
                return False
        at += 1
    if at >= end:
        return False
    text.at = cursor.at
    text.length = at - cursor.at
    text.has_escapes = has_escapes
    cursor.at = at + 1
    return True


cdef inline bint _take_number(Cursor *cursor, int32_t *number) noexcept nogil:
    cdef Span digits
    _skip_blanks(cursor)
    digits.at = cursor.at
    digits.has_escapes = False
    while cursor.at < cursor.end and (cursor.at[0] == 0x2D or 0x30 <= cursor.at[0] <= 0x39):
        cursor.at += 1
    digits.length = cursor.at - digits.at
    return read_int32(digits, number)


# ------------------------------------------------------------------------------------------ values


cdef bint read_int64(Span span, int64_t *number) noexcept nogil:
    """Digits only, without blanks or leading zeros."""
    cdef const uint8_t *at = span.at
    cdef const uint8_t *end = span.at + span.length
    cdef uint64_t value = 0
    cdef bint is_negative = span.length > 1 and at[0] == 0x2D
    if is_negative:
        at += 1
    if at == end or end - at > MAX_DIGITS or (at[0] == 0x30 and span.length > 1):
        return False
    while at < end:
        if at[0] < 0x30 or at[0] > 0x39:
            return False
        value = value * 10 + (at[0] - 0x30)
        at += 1
    if value > <uint64_t>0x7FFFFFFFFFFFFFFF:
        return False
    number[0] = -<int64_t>value if is_negative else <int64_t>value
    return True


cdef bint read_int32(Span span, int32_t *number) noexcept nogil:
    cdef int64_t value = 0
    if not read_int64(span, &value) or value < -0x80000000 or value > 0x7FFFFFFF:
        return False
    number[0] = <int32_t>value
    return True


cdef bint read_bool(Span span, bint *truth) noexcept nogil:
    if is_called(span, b"false", 5):
        truth[0] = False
        return True
    truth[0] = True
    return is_called(span, b"true", 4)


cdef bint is_called(Span span, const char *name, Py_ssize_t length) noexcept nogil:
    return span.length == length and memcmp(span.at, name, <size_t>length) == 0


cdef Py_ssize_t unescape(Span span, uint8_t *target) noexcept nogil:
    """Write the text of a JSON string, which is never longer than its span; returns its length, -1 if unusual."""
    cdef const uint8_t *at = span.at
    cdef const uint8_t *end = span.at + span.length
    cdef uint8_t *start = target
    cdef uint8_t letter
    cdef int high, low
    while at < end:
        letter = at[0]
        at += 1
        if letter == 0x5C:
            if at == end:
                return -1
            letter = at[0]
            at += 1
            if letter == 0x75:  # \u
                if end - at < 4 or at[0] != 0x30 or at[1] != 0x30:
                    return -1
                high, low = _hex_digit(at[2]), _hex_digit(at[3])
                if high < 0 or high > 7 or low < 0:
                    return -1
                letter = <uint8_t>(high << 4 | low)
                at += 4
            elif letter == 0x6E:  # \n
                letter = 0x0A
            elif letter == 0x74:  # \t
                letter = 0x09
            elif letter == 0x72:  # \r
                letter = 0x0D
            elif letter == 0x62:  # \b
                letter = 0x08
            elif letter == 0x66:  # \f
                letter = 0x0C
            elif letter != 0x22 and letter != 0x5C and letter != 0x2F:
                return -1
        target[0] = letter
        target += 1
    return target - start


cdef inline int _hex_digit(uint8_t letter) noexcept nogil:
    if 0x30 <= letter <= 0x39:
        return letter - 0x30
    letter |= 0x20
    return letter - 0x61 + 10 if 0x61 <= letter <= 0x66 else -1


def fields_of(bytes header, bint is_binary):
    """Code, flag, opaque and the extension fields of a header; None if it is unusual. For tests."""
    cdef Header found
    cdef const uint8_t *data = header
    cdef dict fields = {}
    cdef bytes value
    cdef bytearray scratch
    cdef Py_ssize_t length
    if not scan_header(data, len(header), is_binary, &found):
        return None
    for index in range(found.field_count):
        value = found.values[index].at[: found.values[index].length]
        if found.values[index].has_escapes:
            scratch = bytearray(len(value))
            length = unescape(found.values[index], scratch)
            if length < 0:
                return None
            value = bytes(scratch[:length])
        fields[found.names[index].at[: found.names[index].length].decode()] = value.decode()
    return found.code, found.flag, found.opaque, fields
