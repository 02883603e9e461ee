"""Texts where they stand: a pointer and a length, nothing copied."""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport uint8_t
from libc.string cimport memcmp, strlen


cdef struct Slice:
    const uint8_t *at
    Py_ssize_t size


cdef inline Slice slice_of(const char *text, Py_ssize_t size) noexcept nogil:
    cdef Slice found
    found.at = <const uint8_t *>text
    found.size = size
    return found


cdef inline Slice slice_of_constant(const char *text) noexcept nogil:
    return slice_of(text, <Py_ssize_t>strlen(text))


cdef inline Slice slice_of_bytes(bytes text) noexcept:
    return slice_of(PyBytes_AS_STRING(text), PyBytes_GET_SIZE(text))


cdef inline object as_str(Slice text):
    return PyUnicode_DecodeUTF8(<const char *>text.at, text.size, NULL)


cdef inline bytes as_bytes(Slice text):
    return PyBytes_FromStringAndSize(<const char *>text.at, text.size)


cdef inline bint is_same(Slice one, Slice other) noexcept nogil:
    return one.size == other.size and memcmp(one.at, other.at, <size_t>one.size) == 0


cdef inline bint is_named(Slice name, const char *constant) noexcept nogil:
    return name.size == <Py_ssize_t>strlen(constant) and memcmp(name.at, constant, strlen(constant)) == 0


cdef inline bint is_plain(Slice text, bint *has_letter, bint *is_ascii) noexcept nogil:
    """Whether a text has no control characters; and has it a letter, is it ASCII?"""
    cdef Py_ssize_t index
    cdef uint8_t byte
    has_letter[0] = False
    is_ascii[0] = True
    for index in range(text.size):
        byte = text.at[index]
        if byte < 0x20 or byte == 0x7F:
            return False
        if byte >= 0x80:
            is_ascii[0] = False
            if byte == 0xC2 and index + 1 < text.size and text.at[index + 1] < 0xA0:
                return False
        elif byte > 0x20:
            has_letter[0] = True
    return True


cdef inline bint is_utf8(Slice text) except -1:
    try:
        PyUnicode_DecodeUTF8(<const char *>text.at, text.size, NULL)
    except UnicodeDecodeError:
        return False
    return True


cdef inline bint is_text(Slice text, bint must_have_letter) except -1:
    """Whether it is a text that no check of the general path would refuse for its letters."""
    cdef bint has_letter, is_ascii
    if not is_plain(text, &has_letter, &is_ascii) or (must_have_letter and not has_letter):
        return False
    return is_ascii or is_utf8(text)


cdef inline const uint8_t *start_of(bytes text) noexcept:
    return <const uint8_t *>PyBytes_AS_STRING(text)
