from collections.abc import Callable
from mmap import mmap
from typing import Any

class LogEnd:
    end_offset: int
    buffer_start: int
    room_end: int
    last_store_timestamp: int
    wall_from_ms: int
    wall_until_ms: int
    appended_messages: int
    buffer: mmap | bytearray

class QueueEnd:
    queue_id: int
    is_schedule: bool
    is_dirty: bool
    fixed_bytes: int
    end_offset: int
    next_offset: int
    write_position: int
    write_limit: int
    write_buffer: mmap | bytearray
    topic_bytes: bytes
    index_prefix: bytes

class Appender:
    is_refusing: bool
    max_message_bytes: int
    def __init__(
        self,
        queues_by_topic: Any,
        log: Any,
        now_ms: Callable[[], int],
        result_type: Callable[..., Any],
        ok: object,
    ) -> None: ...
    def append(
        self,
        topic: str,
        queue_id: int,
        body: bytes,
        properties: bytes,
        born_timestamp: int,
        born_host: bytes,
        store_host: bytes,
        flag: int,
        sys_flag: int,
        reconsume_times: int,
        prepared_offset: int,
    ) -> Any | None: ...
    def append_again(
        self, record: memoryview, topic: str, queue_id: int, more_properties: bytes, store_host: bytes
    ) -> Any | None: ...
    def append_encoded_batch(
        self,
        topic: str,
        queue_id: int,
        batch: bytes,
        born_timestamp: int,
        born_host: bytes,
        store_host: bytes,
        sys_flag: int,
        reconsume_times: int,
        appended_properties: bytes,
    ) -> Any | int | None: ...
