"""Asking for a cache line that is written soon; the address may be any."""

from libc.stdint cimport uintptr_t

cdef extern from *:
    """
    #if defined(__GNUC__)
    #define pyromq_prefetch(address) __builtin_prefetch((const void *)(address), 1)
    #else
    #define pyromq_prefetch(address) ((void)(address))
    #endif
    """
    void prefetch "pyromq_prefetch"(uintptr_t address) noexcept nogil
