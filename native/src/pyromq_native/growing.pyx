"""A buffer that grows; its functions are in `growing.pxd`, where the compiler finds them for each module."""

from cpython.mem cimport PyMem_Free


cdef class Growing:
    def __dealloc__(self):
        PyMem_Free(self.data)
