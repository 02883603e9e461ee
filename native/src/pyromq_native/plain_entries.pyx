# cython: boundscheck=False, wraparound=False
"""Plain messages become entries of a batch; what is unusual about one is declined."""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_CheckExact, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.unicode cimport PyUnicode_CheckExact
from libc.stdint cimport int32_t, uint8_t, uint16_t, uint32_t
from libc.string cimport memchr, memcpy, memset

from pyromq_native.big_endian cimport put_int16, put_int32

cdef extern from "Python.h":
    const char *PyUnicode_AsUTF8AndSize(object text, Py_ssize_t *size) except NULL

cdef enum:
    HEAD_BYTES = 20
    MIN_ENTRY_BYTES = 22
    MOST_PROPERTIES_BYTES = 32767
    AFTER_NAME = 1
    AFTER_PAIR = 2

cdef struct Text:
    const char *at
    Py_ssize_t size


cdef inline bint take(object text, Text *into) except -1:
    """Whether it is a text that may stand in properties."""
    if not PyUnicode_CheckExact(text):
        return False
    try:
        into.at = PyUnicode_AsUTF8AndSize(text, &into.size)
    except UnicodeEncodeError:
        return False
    return into.size > 0 and memchr(into.at, AFTER_PAIR, into.size) == NULL


cdef inline uint8_t *put_pair(uint8_t *at, const char *name, Py_ssize_t name_size, Text *value) noexcept nogil:
    memcpy(at, name, name_size)
    at += name_size
    at[0] = AFTER_NAME
    memcpy(at + 1, value.at, value.size)
    at += 1 + value.size
    at[0] = AFTER_PAIR
    return at + 1


def plain_entry(object message, str unique_key not None, str suffix not None, Py_ssize_t body_limit):
    cdef object body = message.body
    if not PyBytes_CheckExact(body):
        return None
    cdef Py_ssize_t body_size = PyBytes_GET_SIZE(body)
    if not 0 < body_size < body_limit:
        return None
    if message.properties or message.delay_level != 0 or message.delay_ms is not None:
        return None
    if message.deliver_at_ms is not None or message.wait_stored is not True or message.priority is not None:
        return None
    cdef object flag = message.flag
    if type(flag) is not int or not -0x80000000 <= flag <= 0x7FFFFFFF:
        return None
    cdef Text key, tags, keys, end
    tags.size = keys.size = 0
    key.at = PyUnicode_AsUTF8AndSize(unique_key, &key.size)
    end.at = PyUnicode_AsUTF8AndSize(suffix, &end.size)
    cdef Py_ssize_t size = 10 + key.size + end.size
    cdef object text = message.tags
    if text is not None:
        if not take(text, &tags):
            return None
        size += 6 + tags.size
    cdef object several = message.keys
    if type(several) is list:
        if len(several) != 1 or type(several[0]) is not str or " " in several[0]:
            return None
        several = several[0]
    if several != ():
        if not take(several, &keys):
            return None
        size += 6 + keys.size
    if size > MOST_PROPERTIES_BYTES:
        return None
    cdef Py_ssize_t total = MIN_ENTRY_BYTES + body_size + size
    if total > 0x7FFFFFFF:
        return None
    cdef bytes entry = PyBytes_FromStringAndSize(NULL, total)
    cdef uint8_t *at = <uint8_t *>PyBytes_AS_STRING(entry)
    put_int32(at, <uint32_t>total)
    memset(at + 4, 0, 8)
    put_int32(at + 12, <uint32_t><int32_t>flag)
    put_int32(at + 16, <uint32_t>body_size)
    memcpy(at + HEAD_BYTES, PyBytes_AS_STRING(body), body_size)
    at += HEAD_BYTES + body_size
    put_int16(at, <uint16_t>size)
    at += 2
    if keys.size:
        at = put_pair(at, b"KEYS", 4, &keys)
    if tags.size:
        at = put_pair(at, b"TAGS", 4, &tags)
    at = put_pair(at, b"UNIQ_KEY", 8, &key)
    memcpy(at, end.at, end.size)
    return entry
