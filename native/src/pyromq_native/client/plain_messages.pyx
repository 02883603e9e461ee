# cython: boundscheck=False, wraparound=False
"""Reads the fields of plain messages; what is unusual about one is declined.

A `Message` keeps its fields at fixed places, which its type tells; they are read there.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_CheckExact, PyBytes_GET_SIZE
from cpython.object cimport PyObject
from cpython.unicode cimport PyUnicode_CheckExact
from libc.string cimport memchr

from msgspec.structs import fields as struct_fields

from pyromq_native.protocol.declared cimport AFTER_PAIR


cdef extern from "Python.h":
    const char *PyUnicode_AsUTF8AndSize(object text, Py_ssize_t *size) except NULL

cdef extern from "structmember.h":
    ctypedef struct PyMemberDef:
        int type
        Py_ssize_t offset
    int T_OBJECT_EX

cdef extern from *:
    ctypedef struct PyMemberDescrObject:
        PyMemberDef *d_member


class _Slotted:
    __slots__ = ("field",)


cdef object _MEMBER = type(_Slotted.field)


cdef inline bint take(object text, Text *into) except -1:
    """Whether it is a text that may stand in properties."""
    if not PyUnicode_CheckExact(text):
        return False
    try:
        into.at = PyUnicode_AsUTF8AndSize(text, &into.size)
    except UnicodeEncodeError:
        return False
    return into.size > 0 and memchr(into.at, AFTER_PAIR, <size_t>into.size) == NULL


cdef class PlainMessages:
    def __init__(self, kind):
        """`kind`: the type of the messages. What its other fields mean is not known here: they must have their
        defaults."""
        cdef int which
        fields = {field.name: field for field in struct_fields(kind)}
        self._kind = kind
        self._names = ("topic", "body", "tags", "keys", "properties", "flag")
        others = [name for name in fields if name not in self._names]
        self._defaults = [fields[name].default for name in others]
        self._names += tuple(others)
        self._fields = len(self._names)
        assert self._fields <= MAX_FIELDS
        for which in range(self._fields):
            if which >= OTHERS:
                self._default_at[which] = <PyObject *>self._defaults[which - OTHERS]
            found = getattr(kind, self._names[which], None)
            self._at[which] = -1
            if type(found) is _MEMBER and (<PyMemberDescrObject *><PyObject *>found).d_member.type == T_OBJECT_EX:
                self._at[which] = (<PyMemberDescrObject *><PyObject *>found).d_member.offset

    cdef object field(self, object message, int which):
        cdef PyObject *value
        if self._at[which] >= 0:
            value = (<PyObject **>(<char *><PyObject *>message + self._at[which]))[0]
            if value is not NULL:
                return <object>value
        return getattr(message, self._names[which])

    cdef bint _has_defaults(self, object message) except -1:
        """Whether all other fields have them. Most are compared at their places, without a reference."""
        cdef PyObject *value
        cdef Py_ssize_t which
        for which in range(OTHERS, self._fields):
            value = NULL
            if self._at[which] >= 0:
                value = (<PyObject **>(<char *><PyObject *>message + self._at[which]))[0]
            if value is NULL:
                if getattr(message, self._names[which]) is not <object>self._default_at[which]:
                    return False
            elif value is not self._default_at[which]:
                return False
        return True

    cdef bint read(self, object message, Py_ssize_t body_limit, Plain *into) except -1:
        """False if the general path must take the message. The texts are the message's own."""
        if type(message) is not self._kind:
            return False
        cdef object body = self.field(message, BODY)
        if not PyBytes_CheckExact(body):
            return False
        into.body.at = PyBytes_AS_STRING(body)
        into.body.size = PyBytes_GET_SIZE(body)
        if not 0 < into.body.size < body_limit:
            return False
        if self.field(message, PROPERTIES):
            return False
        if not self._has_defaults(message):
            return False
        cdef object flag = self.field(message, FLAG)
        if type(flag) is not int or not -0x80000000 <= flag <= 0x7FFFFFFF:
            return False
        into.flag = <int32_t>flag
        into.tags.size = into.keys.size = 0
        cdef object tags = self.field(message, TAGS)
        if tags is not None and (not take(tags, &into.tags) or "||" in tags):
            return False
        cdef object keys = self.field(message, KEYS)
        if type(keys) is list:
            if len(keys) != 1 or type(keys[0]) is not str or " " in keys[0]:
                return False
            keys = keys[0]
        return keys == () or take(keys, &into.keys)
