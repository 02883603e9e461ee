# cython: boundscheck=False, wraparound=False, cdivision=True
"""Twin of the usual case of dispatch: from the records of one log file to queue units and index entries.

The usual case: a sound record of a queue that exists, whose next unit fits where the queue is written, and
whose keys fit in the index file. At anything else the run ends, and the interpreted twin continues from there.
A record is either carried completely or not at all.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from cpython.unicode cimport PyUnicode_DecodeASCII
from libc.stdint cimport INT32_MAX, int32_t, int64_t, uint8_t, uint32_t, uintptr_t
from libc.string cimport memchr, memcmp, strlen

from pyromq_native.protocol.declared cimport (
    AFTER_NAME,
    AFTER_PAIR,
    FLAG_TRANSACTION_PREPARED,
    INDEX_HEADER_BYTES,
    LMQ_PREFIX,
    PROPERTY_INNER_MULTI_DISPATCH,
    PROPERTY_INNER_MULTI_QUEUE_OFFSET,
    PROPERTY_KEYS,
    PROPERTY_TAGS,
    PROPERTY_UNIQ_KEY,
    UNIT_BYTES,
)
from pyromq_native.protocol.spans cimport is_ascii
from pyromq_native.store.fast_appending cimport QueueEnd
from pyromq_native.big_endian cimport get_uint32, put_int32, put_int64
from pyromq_native.store.fast_key_hash cimport add_to_hash, as_index_hash
from pyromq_native.prefetch cimport prefetch
from pyromq_native.store.fast_light cimport LightEnd, hash_of_queue
from pyromq_native.protocol.records cimport Outline, outline_record

cdef enum:
    MAX_KEYS = 32
    MAX_WAITING = 64

cdef int64_t last_run = 0


cdef struct Text:
    const uint8_t *start
    Py_ssize_t length


cdef struct Wanted:
    Text tags
    Text unique_key
    Text keys
    Text light_queues
    Text light_offsets


cdef inline bint take_value(const uint8_t *at, Py_ssize_t size, const char *name, Text *value) noexcept nogil:
    """Whether a property has this name and a value, which is taken."""
    cdef Py_ssize_t length = <Py_ssize_t>strlen(name)
    if size <= length + 1 or at[length] != AFTER_NAME or memcmp(at, name, <size_t>length):
        return False
    value.start, value.length = at + length + 1, size - length - 1
    return True


cdef void find_wanted(const uint8_t *properties, Py_ssize_t length, Wanted *wanted) noexcept nogil:
    """The last value of each property that dispatch needs; an empty one does not count."""
    cdef const uint8_t *end = properties + length
    cdef const uint8_t *stop
    cdef Py_ssize_t piece
    wanted.tags.length = wanted.unique_key.length = wanted.keys.length = 0
    wanted.light_queues.length = wanted.light_offsets.length = 0
    while properties < end:
        stop = <const uint8_t *>memchr(properties, AFTER_PAIR, end - properties)
        if stop == NULL:
            stop = end
        piece = stop - properties
        if not take_value(properties, piece, PROPERTY_TAGS, &wanted.tags):
            if not take_value(properties, piece, PROPERTY_KEYS, &wanted.keys):
                if not take_value(properties, piece, PROPERTY_UNIQ_KEY, &wanted.unique_key):
                    if not take_value(properties, piece, PROPERTY_INNER_MULTI_DISPATCH, &wanted.light_queues):
                        take_value(properties, piece, PROPERTY_INNER_MULTI_QUEUE_OFFSET, &wanted.light_offsets)
        properties = stop + 1


cdef int gather_hashes(const Wanted *wanted, uint32_t prefix_hash, int32_t *hashes) noexcept nogil:
    """The hashes of the index keys of a message; how many there are, -1 if that is not for this road."""
    cdef int count = 0
    cdef uint32_t value
    cdef const uint8_t *key = wanted.keys.start
    cdef const uint8_t *end = key + wanted.keys.length
    cdef const uint8_t *stop
    if wanted.unique_key.length:
        value = prefix_hash
        if not add_to_hash(wanted.unique_key.start, wanted.unique_key.length, &value):
            return -1
        hashes[0] = as_index_hash(value)
        count = 1
    if wanted.keys.length:
        while key < end:
            stop = <const uint8_t *>memchr(key, c" ", end - key)
            if stop == NULL:
                stop = end
            if stop > key:
                value = prefix_hash
                if count == MAX_KEYS or not add_to_hash(key, stop - key, &value):
                    return -1
                hashes[count] = as_index_hash(value)
                count += 1
            key = stop + 1
    return count


cdef int64_t light_offset(const Wanted *wanted) noexcept nogil:
    """The offset in the only light queue that a record names; -1 if that is not for this road."""
    cdef Py_ssize_t index, prefix = <Py_ssize_t>strlen(LMQ_PREFIX)
    cdef int64_t offset = 0
    if (
        wanted.light_queues.length <= prefix
        or memcmp(wanted.light_queues.start, LMQ_PREFIX, <size_t>prefix)
        or memchr(wanted.light_queues.start, c",", <size_t>wanted.light_queues.length) != NULL
        or not is_ascii(wanted.light_queues.start, wanted.light_queues.length)
        or not 0 < wanted.light_offsets.length < 19
    ):
        return -1
    for index in range(wanted.light_offsets.length):
        if not c"0" <= wanted.light_offsets.start[index] <= c"9":
            return -1
        offset = 10 * offset + (wanted.light_offsets.start[index] - c"0")
    return offset


cdef struct Entry:
    int32_t key_hash
    int64_t log_offset
    int64_t store_timestamp


cdef struct IndexRoom:
    # The index file that is written, and the entries that wait for their slots to come into the cache.
    uint8_t *slots
    uint8_t *units
    int64_t slot_count
    int64_t next_unit
    int64_t end_unit
    int64_t used_slots
    int64_t begin_timestamp
    int waiting
    Entry entries[MAX_WAITING]


cdef void write_entries(IndexRoom *room) noexcept nogil:
    cdef const Entry *entry
    cdef uint8_t *slot
    cdef uint8_t *unit
    cdef uint32_t previous
    cdef int64_t seconds
    cdef int index
    for index in range(room.waiting):
        entry = &room.entries[index]
        slot = room.slots + entry.key_hash % room.slot_count * 4
        unit = room.units + room.next_unit * UNIT_BYTES
        previous = get_uint32(slot)
        if previous >= room.next_unit:
            previous = 0  # java: garbage, and the slot counts as empty
        seconds = entry.store_timestamp - room.begin_timestamp
        seconds = min(seconds // 1000, <int64_t>INT32_MAX) if seconds > 0 else 0
        put_int32(unit, entry.key_hash)
        put_int64(unit + 4, entry.log_offset)
        put_int32(unit + 12, <uint32_t>seconds)
        put_int32(unit + 16, previous)
        put_int32(slot, <uint32_t>room.next_unit)
        room.used_slots += previous == 0
        room.next_unit += 1
    room.waiting = 0


cdef class Carrier:
    """Carries the messages of one store; `carry` goes as far as it is usual."""

    cdef dict _queues_by_topic
    cdef object _mark_dirty
    cdef LightEnd _light
    cdef list _light_waiting
    cdef object _add_light
    cdef object _enters_light
    cdef dict _entering
    cdef dict _touched
    cdef dict _light_touched
    cdef dict _forgotten
    cdef readonly int64_t offset
    cdef readonly int64_t count
    cdef readonly int64_t last_timestamp

    def __init__(
        self,
        dict queues_by_topic not None,
        mark_dirty,
        LightEnd light=None,
        list light_waiting=None,
        add_light=None,
        enters_light=None,
    ):
        """`mark_dirty` gets each queue that was not written since the last flush. A record that names `light`
        queues enters them, unless others that are unusual are in `light_waiting`: then `add_light` gets its
        topic, log offset, size, tags code and properties. `enters_light` says whether the records of a topic do."""
        self._queues_by_topic = queues_by_topic
        self._mark_dirty = mark_dirty
        self._light = light
        self._light_waiting = light_waiting
        self._add_light = add_light
        self._enters_light = enters_light
        self._entering = {}

    def carry(
        self,
        buffer,
        int64_t buffer_start,
        int64_t offset,
        int64_t limit,
        int64_t max_messages,
        dict touched not None,
        dict light_touched not None,
        dict forgotten not None,
        bint is_indexing,
        int64_t index_from,
        index_file,
    ):
        """Carry records from `offset` on that end at or before `limit`, `max_messages` at most.

        Afterwards `offset` is where it ended, `count` how many were carried and `last_timestamp` the store
        time of the last one. `touched` gets the queues that have more now, `light_touched` the light queues.
        """
        cdef Py_buffer log, index
        cdef IndexRoom room
        cdef int64_t first_unit
        room.waiting = 0
        room.next_unit = room.end_unit = 0
        self._touched = touched
        self._light_touched = light_touched
        self._forgotten = forgotten
        self.count = 0
        self.offset = offset
        PyObject_GetBuffer(buffer, &log, PyBUF_SIMPLE)
        try:
            limit = min(limit, buffer_start + log.len)
            if index_file is None:
                self._carry(&log, buffer_start, limit, max_messages, is_indexing, index_from, &room)
                return
            PyObject_GetBuffer(index_file.mapped.buffer, &index, PyBUF_WRITABLE)
            try:
                room.slot_count = index_file.slots
                room.slots = <uint8_t *>index.buf + INDEX_HEADER_BYTES
                room.units = room.slots + 4 * room.slot_count
                room.next_unit = first_unit = index_file.next_unit
                room.end_unit = min(
                    <int64_t>index_file.units,
                    <int64_t>index_file.reserved_units,
                    (index.len - INDEX_HEADER_BYTES - 4 * room.slot_count) // UNIT_BYTES,
                )
                room.used_slots = index_file.used_slots
                room.begin_timestamp = index_file.begin_timestamp
                if room.slot_count < 1 or first_unit < 1:
                    room.end_unit = 0
                try:
                    self._carry(&log, buffer_start, limit, max_messages, is_indexing, index_from, &room)
                finally:
                    if room.next_unit != first_unit:
                        index_file.used_slots = room.used_slots
                        index_file.next_unit = room.next_unit
                        index_file.end_log_offset = room.entries[0].log_offset
                        index_file.end_timestamp = room.entries[0].store_timestamp
                        put_int64(<uint8_t *>index.buf + 8, room.entries[0].store_timestamp)
                        put_int64(<uint8_t *>index.buf + 24, room.entries[0].log_offset)
                        put_int32(<uint8_t *>index.buf + 32, <uint32_t>room.used_slots)
                        put_int32(<uint8_t *>index.buf + 36, <uint32_t>room.next_unit)
            finally:
                PyBuffer_Release(&index)
        finally:
            PyBuffer_Release(&log)
            self._touched = self._light_touched = self._forgotten = None

    cdef int _enter_light(
        self,
        topic,
        int64_t offset,
        int32_t size,
        int64_t tags_code,
        const Wanted *wanted,
        const uint8_t *properties,
        Py_ssize_t length,
    ) except -1:
        cdef int64_t light_end, number
        if not self._light_waiting:
            enters = self._entering.get(topic)
            if enters is None:
                enters = self._entering[topic] = self._enters_light(topic)
            light_end = light_offset(wanted)
            if light_end >= 0 and enters:
                number = self._light.names_end.recall(
                    wanted.light_queues.start,
                    wanted.light_queues.length,
                    hash_of_queue(wanted.light_queues.start, wanted.light_queues.length),
                )
                if number >= 0:
                    name = self._light.names_end.name_of(number)
                else:
                    name = PyUnicode_DecodeASCII(
                        <const char *>wanted.light_queues.start, wanted.light_queues.length, NULL
                    )
                if self._light.enter(name, number, light_end, offset, size, tags_code):
                    self._light_touched[name] = light_end + 1
                    return 0
        self._add_light(topic, offset, size, tags_code, (<const char *>properties)[:length])
        return 0

    cdef int _carry(
        self,
        const Py_buffer *log,
        int64_t log_start,
        int64_t limit,
        int64_t max_messages,
        bint is_indexing,
        int64_t index_from,
        IndexRoom *room,
    ) except -1:
        global last_run
        cdef Outline outline
        cdef Wanted wanted
        cdef Entry *entry
        cdef Entry last_entry
        cdef const uint8_t *at
        cdef uint8_t *unit
        cdef int32_t hashes[MAX_KEYS]
        cdef Py_buffer target
        cdef object target_owner = None
        cdef dict queues = None
        cdef object found = None
        cdef QueueEnd queue
        cdef bytes topic = b""
        cdef uint32_t prefix_hash = 0, tag_hash
        cdef int64_t offset = self.offset, run
        cdef int key_count, index
        cdef bint has_entries = False
        last_run += 1
        run = last_run
        try:
            while self.count < max_messages and offset < limit:
                at = <const uint8_t *>log.buf + (offset - log_start)
                if not outline_record(at, limit - offset, &outline) or outline.log_offset != offset:
                    break
                if outline.sys_flag & FLAG_TRANSACTION_PREPARED:
                    break
                if (
                    queues is None
                    or PyBytes_GET_SIZE(topic) != outline.topic_bytes
                    or memcmp(PyBytes_AS_STRING(topic), at + outline.topic_start, outline.topic_bytes) != 0
                ):
                    topic = (<const char *>at)[outline.topic_start : outline.topic_start + outline.topic_bytes]
                    prefix_hash = 0
                    if not add_to_hash(at + outline.topic_start, outline.topic_bytes, &prefix_hash):
                        break
                    add_to_hash(<const uint8_t *>b"#", 1, &prefix_hash)
                    found = PyUnicode_DecodeASCII(PyBytes_AS_STRING(topic), outline.topic_bytes, NULL)
                    queues = self._queues_by_topic.get(found)
                    if queues is None or found in self._forgotten:
                        break
                queue = queues.get(outline.queue_id)
                if (
                    queue is None
                    or queue.is_schedule
                    or outline.queue_offset != queue.end_offset
                    or queue.write_limit - queue.write_position < UNIT_BYTES
                    or queue.write_position < 0
                ):
                    break
                find_wanted(at + outline.properties_start, outline.properties_bytes, &wanted)
                tag_hash = 0
                if wanted.tags.length and not add_to_hash(wanted.tags.start, wanted.tags.length, &tag_hash):
                    break
                key_count = 0
                if is_indexing and offset >= index_from and (wanted.unique_key.length or wanted.keys.length):
                    key_count = gather_hashes(&wanted, prefix_hash, hashes)
                    if key_count < 0 or room.next_unit + room.waiting + key_count > room.end_unit:
                        break
                if queue.write_buffer is not target_owner:
                    if target_owner is not None:
                        target_owner = None
                        PyBuffer_Release(&target)
                    PyObject_GetBuffer(queue.write_buffer, &target, PyBUF_WRITABLE)
                    target_owner = queue.write_buffer
                if queue.write_limit > target.len:
                    break
                # From here on nothing can go wrong.
                unit = <uint8_t *>target.buf + queue.write_position
                put_int64(unit, offset)
                put_int32(unit + 8, outline.size)
                put_int64(unit + 12, <int64_t><int32_t>tag_hash)
                queue.write_position += UNIT_BYTES
                queue.end_offset += 1
                if not queue.is_dirty:
                    self._mark_dirty(queue)
                if queue.touched_in_run != run:
                    queue.touched_in_run = run
                    self._touched[queue] = None
                if wanted.light_queues.length and self._light is not None:
                    self._enter_light(
                        found, offset, outline.size, <int64_t><int32_t>tag_hash, &wanted,
                        at + outline.properties_start, outline.properties_bytes,
                    )
                if key_count:
                    if room.waiting + key_count > MAX_WAITING:
                        write_entries(room)
                    for index in range(key_count):
                        entry = &room.entries[room.waiting]
                        entry.key_hash = hashes[index]
                        entry.log_offset = offset
                        entry.store_timestamp = outline.store_timestamp
                        prefetch(<uintptr_t>(room.slots + entry.key_hash % room.slot_count * 4))
                        room.waiting += 1
                    last_entry = entry[0]
                    has_entries = True
                offset += outline.size
                self.offset = offset
                self.last_timestamp = outline.store_timestamp
                self.count += 1
        finally:
            if target_owner is not None:
                PyBuffer_Release(&target)
            if has_entries:
                write_entries(room)
                room.entries[0] = last_entry
        return 0
