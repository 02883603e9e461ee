"""Numbers as they stand in files and frames: the most significant byte first."""

from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t


cdef inline int16_t get_int16(const uint8_t *at) noexcept nogil:
    return <int16_t>(<uint16_t>at[0] << 8 | at[1])


cdef inline uint32_t get_uint32(const uint8_t *at) noexcept nogil:
    return <uint32_t>at[0] << 24 | <uint32_t>at[1] << 16 | <uint32_t>at[2] << 8 | at[3]


cdef inline int32_t get_int32(const uint8_t *at) noexcept nogil:
    return <int32_t>get_uint32(at)


cdef inline int64_t get_int64(const uint8_t *at) noexcept nogil:
    return <int64_t>(<uint64_t>get_uint32(at) << 32 | get_uint32(at + 4))


cdef inline void put_int16(uint8_t *at, uint16_t value) noexcept nogil:
    at[0] = <uint8_t>(value >> 8)
    at[1] = <uint8_t>value


cdef inline void put_int32(uint8_t *at, uint32_t value) noexcept nogil:
    at[0] = <uint8_t>(value >> 24)
    at[1] = <uint8_t>(value >> 16)
    at[2] = <uint8_t>(value >> 8)
    at[3] = <uint8_t>value


cdef inline void put_int64(uint8_t *at, uint64_t value) noexcept nogil:
    put_int32(at, <uint32_t>(value >> 32))
    put_int32(at + 4, <uint32_t>value)
