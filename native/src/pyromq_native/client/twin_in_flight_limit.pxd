cdef class InFlightCounts:
    cdef public Py_ssize_t count
    cdef public Py_ssize_t size_bytes
    cdef readonly Py_ssize_t _max_count
    cdef readonly Py_ssize_t _max_bytes
    cdef readonly object _waiting
    cpdef bint try_enter(self, Py_ssize_t size_bytes) except -1
