# cython: boundscheck=False, wraparound=False
"""CRC-32 as zlib has it: with carry-less multiplication where the processor can, by tables elsewhere."""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport uint8_t, uint32_t

cdef extern from *:
    """
    #include <stddef.h>
    #include <stdint.h>

    static uint32_t pyromq_crc_table[8][256];

    static void pyromq_crc_prepare(void) {
        for (uint32_t byte = 0; byte < 256; byte++) {
            uint32_t crc = byte;
            for (int bit = 0; bit < 8; bit++)
                crc = (crc >> 1) ^ (crc & 1 ? 0xEDB88320u : 0);
            pyromq_crc_table[0][byte] = crc;
        }
        for (uint32_t byte = 0; byte < 256; byte++)
            for (int table = 1; table < 8; table++) {
                uint32_t before = pyromq_crc_table[table - 1][byte];
                pyromq_crc_table[table][byte] = (before >> 8) ^ pyromq_crc_table[0][before & 0xFF];
            }
    }

    static inline uint32_t pyromq_little_endian(const uint8_t *at) {
        return (uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
    }

    /* Eight bytes at a time, each with its own table. */
    static uint32_t pyromq_crc_by_tables(uint32_t crc, const uint8_t *data, size_t length) {
        while (length >= 8) {
            uint32_t low = crc ^ pyromq_little_endian(data), high = pyromq_little_endian(data + 4);
            crc = pyromq_crc_table[7][low & 0xFF] ^ pyromq_crc_table[6][low >> 8 & 0xFF]
                ^ pyromq_crc_table[5][low >> 16 & 0xFF] ^ pyromq_crc_table[4][low >> 24]
                ^ pyromq_crc_table[3][high & 0xFF] ^ pyromq_crc_table[2][high >> 8 & 0xFF]
                ^ pyromq_crc_table[1][high >> 16 & 0xFF] ^ pyromq_crc_table[0][high >> 24];
            data += 8;
            length -= 8;
        }
        while (length--)
            crc = (crc >> 8) ^ pyromq_crc_table[0][(crc ^ *data++) & 0xFF];
        return crc;
    }

    #if defined(__x86_64__) && defined(__GNUC__)
    #include <immintrin.h>

    /* Folding: a stretch of 128 bits is multiplied to where the next one stands and added to it. The factors
       are powers of x modulo the polynomial, bits reversed: for 512, 128 and 64 bits ahead. */
    __attribute__((target("pclmul,sse4.1")))
    static uint32_t pyromq_crc_by_folding(uint32_t crc, const uint8_t *data, size_t length) {
        const __m128i by_512 = _mm_set_epi64x(0x01c6e41596, 0x0154442bd4);
        const __m128i by_128 = _mm_set_epi64x(0x00ccaa009e, 0x01751997d0);
        const __m128i by_64 = _mm_set_epi64x(0, 0x0163cd6124);
        const __m128i polynomial = _mm_set_epi64x(0x01f7011641, 0x01db710641);
        const __m128i low_32 = _mm_setr_epi32(-1, 0, -1, 0);
        __m128i sum[4], high;
        for (int lane = 0; lane < 4; lane++)
            sum[lane] = _mm_loadu_si128((const __m128i *)(data + 16 * lane));
        sum[0] = _mm_xor_si128(sum[0], _mm_cvtsi32_si128((int)crc));
        data += 64;
        length -= 64;
        while (length >= 64) {
            for (int lane = 0; lane < 4; lane++) {
                high = _mm_clmulepi64_si128(sum[lane], by_512, 0x11);
                sum[lane] = _mm_xor_si128(_mm_clmulepi64_si128(sum[lane], by_512, 0x00), high);
                sum[lane] = _mm_xor_si128(sum[lane], _mm_loadu_si128((const __m128i *)(data + 16 * lane)));
            }
            data += 64;
            length -= 64;
        }
        for (int lane = 1; lane < 4; lane++) {
            high = _mm_clmulepi64_si128(sum[0], by_128, 0x11);
            sum[0] = _mm_xor_si128(_mm_clmulepi64_si128(sum[0], by_128, 0x00), high);
            sum[0] = _mm_xor_si128(sum[0], sum[lane]);
        }
        while (length >= 16) {
            high = _mm_clmulepi64_si128(sum[0], by_128, 0x11);
            sum[0] = _mm_xor_si128(_mm_clmulepi64_si128(sum[0], by_128, 0x00), high);
            sum[0] = _mm_xor_si128(sum[0], _mm_loadu_si128((const __m128i *)data));
            data += 16;
            length -= 16;
        }
        /* 128 bits to 64, and those to the remainder by Barrett's reduction */
        high = _mm_clmulepi64_si128(sum[0], by_128, 0x10);
        sum[0] = _mm_xor_si128(_mm_srli_si128(sum[0], 8), high);
        high = _mm_srli_si128(sum[0], 4);
        sum[0] = _mm_clmulepi64_si128(_mm_and_si128(sum[0], low_32), by_64, 0x00);
        sum[0] = _mm_xor_si128(sum[0], high);
        high = _mm_clmulepi64_si128(_mm_and_si128(sum[0], low_32), polynomial, 0x10);
        high = _mm_clmulepi64_si128(_mm_and_si128(high, low_32), polynomial, 0x00);
        crc = (uint32_t)_mm_extract_epi32(_mm_xor_si128(sum[0], high), 1);
        return pyromq_crc_by_tables(crc, data, length);
    }

    static int pyromq_can_fold;

    static void pyromq_crc_look(void) {
        pyromq_can_fold = __builtin_cpu_supports("pclmul") && __builtin_cpu_supports("sse4.1");
    }

    static uint32_t pyromq_crc32(const uint8_t *data, size_t length) {
        if (length >= 64 && pyromq_can_fold)
            return ~pyromq_crc_by_folding(0xFFFFFFFFu, data, length);
        return ~pyromq_crc_by_tables(0xFFFFFFFFu, data, length);
    }
    #else
    static void pyromq_crc_look(void) {}

    static uint32_t pyromq_crc32(const uint8_t *data, size_t length) {
        return ~pyromq_crc_by_tables(0xFFFFFFFFu, data, length);
    }
    #endif
    """
    void pyromq_crc_prepare() nogil
    void pyromq_crc_look() nogil
    uint32_t pyromq_crc32(const uint8_t *data, size_t length) noexcept nogil
    uint32_t pyromq_crc_by_tables(uint32_t crc, const uint8_t *data, size_t length) noexcept nogil

pyromq_crc_prepare()
pyromq_crc_look()


cdef uint32_t crc32_of(const uint8_t *data, Py_ssize_t length) noexcept nogil:
    return pyromq_crc32(data, <size_t>length)


def crc32(bytes data not None):
    """The CRC-32 of bytes, by the quickest way this processor has."""
    return crc32_of(<const uint8_t *>PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data))


def crc32_by_tables(bytes data not None):
    """The same by the way that works everywhere."""
    cdef uint32_t start = 0xFFFFFFFF
    return start ^ pyromq_crc_by_tables(
        start, <const uint8_t *>PyBytes_AS_STRING(data), <size_t>PyBytes_GET_SIZE(data)
    )
