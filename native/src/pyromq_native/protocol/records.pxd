"""Records of the log, written and found in raw bytes; for the other compiled modules."""

from libc.stdint cimport int32_t, int64_t, uint8_t

cdef struct Record:
    # What a record is made of; of properties there may be a second part, to go behind the first.
    const uint8_t *body
    const uint8_t *topic
    const uint8_t *properties
    const uint8_t *more_properties
    const uint8_t *born_host
    const uint8_t *store_host
    Py_ssize_t body_bytes
    Py_ssize_t topic_bytes
    Py_ssize_t properties_bytes
    Py_ssize_t more_properties_bytes
    Py_ssize_t born_host_bytes
    Py_ssize_t store_host_bytes
    int32_t queue_id
    int32_t flag
    int32_t sys_flag
    int32_t reconsume_times
    int64_t queue_offset
    int64_t log_offset
    int64_t born_timestamp
    int64_t store_timestamp
    int64_t prepared_transaction_offset
    bint is_version_2

cdef struct Outline:
    # Where things are in a record, from its first byte on.
    int32_t size
    int32_t queue_id
    int32_t sys_flag
    int64_t queue_offset
    int64_t log_offset
    int64_t store_timestamp
    Py_ssize_t topic_start
    Py_ssize_t topic_bytes
    Py_ssize_t properties_start
    Py_ssize_t properties_bytes

cdef Py_ssize_t record_size(const Record *record) noexcept nogil
cdef bint is_writable(const Record *record) noexcept nogil
cdef void write_record(uint8_t *at, const Record *record, Py_ssize_t size) noexcept nogil
cdef bint outline_record(const uint8_t *at, int64_t room, Outline *outline) noexcept nogil
cdef bint is_whole(object number, int64_t low, int64_t high, int64_t *value) noexcept
