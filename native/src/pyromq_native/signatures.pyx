# cython: boundscheck=False, wraparound=False
"""Whether a scanned request is signed; see `pyromq.security.signature`.

The values of its fields are joined in the order of their names, in place: nothing is decoded. False may also
mean that the request is unusual; the general path decides then. The sums are hashlib's.
"""

from cpython.buffer cimport PyBUF_READ
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from cpython.mem cimport PyMem_Free, PyMem_Malloc
from cpython.memoryview cimport PyMemoryView_FromMemory
from libc.stdint cimport uint8_t, uint32_t
from libc.string cimport memcmp, memcpy

from pyromq_native.headers cimport MAX_FIELDS, Header, Span, scan_header, unescape

cdef enum:
    SHORT_BYTES = 4096
    SUM_BYTES = 20
    SIGNATURE_CHARS = 28

cdef const char *DIGITS = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"


cdef bint is_signed(
    Header *header, const uint8_t *body, Py_ssize_t body_bytes, inner, outer
) except -1:
    """`inner` and `outer` are the sums over the two pads of the key."""
    cdef int order[MAX_FIELDS]
    cdef int signature = -1
    cdef Py_ssize_t room, length
    cdef uint8_t short_text[SHORT_BYTES]
    cdef uint8_t *text = short_text
    cdef bytes total
    if not _sort(header, order, &signature, &room) or signature < 0:
        return False
    if room > SHORT_BYTES:
        text = <uint8_t *>PyMem_Malloc(<size_t>room)
        if text is NULL:
            raise MemoryError()
    try:
        length = _join(header, order, text)
        if length < 0:
            return False
        hashed = inner.copy()
        hashed.update(PyMemoryView_FromMemory(<char *>text, length, PyBUF_READ))
        if body_bytes:
            hashed.update(PyMemoryView_FromMemory(<char *>body, body_bytes, PyBUF_READ))
        total = hashed.digest()
        hashed = outer.copy()
        hashed.update(total)
        total = hashed.digest()
    finally:
        if text is not short_text:
            PyMem_Free(text)
    return PyBytes_GET_SIZE(total) == SUM_BYTES and _is_same(
        <const uint8_t *>PyBytes_AS_STRING(total), header.values[signature]
    )


cdef bint _sort(Header *header, int *order, int *signature, Py_ssize_t *room) noexcept nogil:
    """The fields that are signed, in the order of their names; False if two have the same name."""
    cdef int count = 0
    cdef int index, place, compared
    room[0] = 0
    for index in range(header.field_count):
        if header.names[index].length == 9 and memcmp(header.names[index].at, b"Signature", 9) == 0:
            if signature[0] >= 0:
                return False
            signature[0] = index
            continue
        room[0] += header.values[index].length
        place = count
        while place > 0:
            compared = _compare(header.names[order[place - 1]], header.names[index])
            if compared == 0:
                return False
            if compared < 0:
                break
            order[place] = order[place - 1]
            place -= 1
        order[place] = index
        count += 1
    return True


cdef inline int _compare(Span one, Span other) noexcept nogil:
    cdef Py_ssize_t common = one.length if one.length < other.length else other.length
    cdef int compared = memcmp(one.at, other.at, <size_t>common)
    if compared:
        return compared
    return -1 if one.length < other.length else one.length > other.length


cdef Py_ssize_t _join(Header *header, int *order, uint8_t *text) noexcept nogil:
    cdef Py_ssize_t length = 0
    cdef Py_ssize_t written
    cdef int index
    cdef Span value
    for index in range(header.field_count - 1):  # without the signature
        value = header.values[order[index]]
        if value.has_escapes:
            written = unescape(value, text + length)
            if written < 0:
                return -1
        else:
            written = value.length
            memcpy(text + length, value.at, <size_t>written)
        length += written
    return length


cdef bint _is_same(const uint8_t *total, Span claimed) noexcept nogil:
    """Compare with a sum in base64; every wrong one takes the same time."""
    cdef uint32_t group
    cdef uint8_t different = 0
    cdef int index, digit
    if claimed.length != SIGNATURE_CHARS or claimed.has_escapes:
        return False
    for index in range(7):
        group = <uint32_t>total[3 * index] << 16 | <uint32_t>total[3 * index + 1] << 8
        if index < 6:
            group |= total[3 * index + 2]
        for digit in range(4):
            if index == 6 and digit == 3:
                different |= claimed.at[27] ^ 0x3D  # =
            else:
                different |= claimed.at[4 * index + digit] ^ <uint8_t>DIGITS[group >> (18 - 6 * digit) & 63]
    return different == 0


def is_signed_frame(bytes header not None, bint is_binary, bytes body not None, key):
    """For tests."""
    cdef Header found
    inner, outer = key
    return scan_header(
        <const uint8_t *>PyBytes_AS_STRING(header), PyBytes_GET_SIZE(header), is_binary, &found
    ) and is_signed(
        &found, <const uint8_t *>PyBytes_AS_STRING(body), PyBytes_GET_SIZE(body), inner, outer
    )
